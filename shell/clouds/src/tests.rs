//! What plays a metadata service for tests.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread::JoinHandle;

/// Gives these answers, one to each request: where it is asked, and a thread that ends with the
/// last one, with the heads of the requests.
pub(crate) fn answering(answers: &'static [&'static str]) -> (String, JoinHandle<Vec<String>>) {
    let listening = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = format!("http://{}", listening.local_addr().unwrap());
    let answer = move |answer: &&str| {
        let (mut stream, _) = listening.accept().unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let len = answer.len();
        let told = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {len}");
        write!(stream, "{told}\r\n\r\n{answer}").unwrap();
        String::from_utf8(head).unwrap()
    };
    (at, std::thread::spawn(move || answers.iter().map(answer).collect()))
}
