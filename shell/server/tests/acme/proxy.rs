//! A proxy that wants a password, and remembers where it was asked to lead.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// `anna:right` as it is said.
const KNOWN: &str = "Proxy-Authorization: Basic YW5uYTpyaWdodA==";

/// It lives as long as the test.
pub(crate) struct Proxy {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, asked) = (listener.local_addr().unwrap(), Arc::default());
        let told = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let told = Arc::clone(&told);
                std::thread::spawn(move || serve(stream, &told));
            }
        });
        Self { address, asked }
    }

    /// Its URL for a user with a password.
    pub(crate) fn url(&self, user: &str) -> String {
        format!("http://{user}@{}", self.address)
    }

    /// Where it led.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(mut stream: TcpStream, asked: &Mutex<Vec<String>>) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).unwrap_or(0) == 0 {
            return;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    if !head.lines().any(|line| line == KNOWN) {
        let _ = stream.write_all(b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n");
        return;
    }
    let target = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).unwrap();
    let Ok(mut other) = TcpStream::connect(target) else { return };
    asked.lock().unwrap().push(target.to_owned());
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
    let (mut from, mut to) = (stream.try_clone().unwrap(), other.try_clone().unwrap());
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    let _ = std::io::copy(&mut other, &mut stream);
    let _ = stream.shutdown(Shutdown::Write);
}
