//! Webhooks of a real server: what arrives, signed, in order, again after a no, and never at the
//! cost of anything else.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, sync_channel};

use super::*;

const SECRET: &str = "a secret of this test";

/// More than any test here waits for.
const RECEIVED_MAX: usize = 100;

/// What a receiver got: the signature's field, and the body.
type Got = (String, String);

/// Reads one request of HTTP.
fn request(stream: &mut impl Read) -> Option<Got> {
    let (mut text, mut byte) = (Vec::new(), [0]);
    while !text.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        text.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&text).to_lowercase();
    let field = |name: &str| {
        let found = head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        found.unwrap_or_default().to_owned()
    };
    assert!(head.starts_with("post /events?a=b http/1.1"), "{head}");
    assert_eq!(field("content-type"), "application/json");
    let mut body = vec![0; field("content-length").parse().ok()?];
    stream.read_exact(&mut body).ok()?;
    Some((field("warren-signature"), String::from_utf8(body).ok()?))
}

/// A receiver that says no to the first event it is shown, and takes the rest.
fn receiver() -> (u16, Receiver<Got>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, received) = sync_channel(RECEIVED_MAX);
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let Ok(mut stream) = stream else { return };
            let Some(got) = request(&mut stream) else { continue };
            let status = if number == 0 { "500 Not Now" } else { "204 No Content" };
            let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
            if sender.send(got).is_err() {
                return;
            }
        }
    });
    (port, received)
}

/// The signature as a receiver computes it, by another program.
fn signed(time: &str, body: &str) -> String {
    let script = "import hashlib, hmac, sys
print(hmac.new(sys.argv[1].encode(), sys.argv[2].encode(), hashlib.sha256).hexdigest())";
    let message = format!("{time}.{body}");
    let output = Command::new("python3").args(["-c", script, SECRET, &message]).output();
    let said = output.expect("python3 is installed").stdout;
    String::from_utf8(said).unwrap().trim().to_owned()
}

#[test]
fn a_webhook_is_told_what_happens_and_one_that_hangs_harms_nothing() {
    let (port, received) = receiver();
    // Takes connections, and says nothing.
    let hangs = TcpListener::bind("127.0.0.1:0").unwrap();
    let hanging = hangs.local_addr().unwrap().port();
    let data = std::env::temp_dir().join(format!("warren-serve-hooks-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&data);
    std::fs::create_dir_all(&data).unwrap();
    let secret = data.join("secret");
    std::fs::write(&secret, format!("{SECRET}\n")).unwrap();
    let words = [
        "--webhook".to_owned(),
        format!("http://127.0.0.1:{hanging}/events?a=b"),
        "--webhook".to_owned(),
        format!("http://127.0.0.1:{port}/events?a=b"),
        "--webhook-secret".to_owned(),
        format!("file:{}", secret.display()),
        "--approve".to_owned(),
    ];
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let own = free_port();
    let child = start_with(&data, own, "127.0.0.1", &words);
    let serve = Serve { data, child, port: own };
    // The first look is what later ones are held against.
    std::thread::sleep(Duration::from_secs(2));
    let token = serve.token(&["--reusable"]);
    let member = join(&token, "robot");
    let event = |got: &Got| serde_json::from_str::<Value>(&got.1).expect("it is JSON");
    let next = |wanted: &str| {
        let got = received.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no {wanted}"));
        let told = event(&got);
        assert_eq!(told["event"], wanted, "{told}");
        got
    };
    let refused = next("waits");
    let waits = next("waits");
    assert_eq!(refused.1, waits.1, "what was not taken comes again");
    let told = event(&waits);
    assert_eq!((&told["schema"], &told["node"]["name"]), (&1.into(), &"robot".into()));
    assert!(told["text"].as_str().unwrap().contains("warren node approve robot"), "{told}");
    for (field, body) in [&refused, &waits] {
        let (time, signature) = field.split_once(",v1=").expect("time and signature");
        let time = time.strip_prefix("t=").unwrap();
        assert_eq!(signature, signed(time, body), "as another program computes it");
    }
    let begin = Instant::now();
    serve.said(&["node", "approve", "robot"]);
    next("approved");
    serve.said(&["node", "expire", "robot"]);
    next("expired");
    let policy = serve.data.join("policy.hujson");
    std::fs::write(&policy, "{}").unwrap();
    serve.said(&["policy", "set", policy.to_str().unwrap()]);
    next("policy");
    serve.said(&["node", "remove", "robot"]);
    next("removed");
    println!("four events after each other: {:?}", begin.elapsed());
    drop(member);
    // The status of the last is read after it was sent.
    let begin = Instant::now();
    loop {
        let mut admin = dial::Admin::local(&serve.data).unwrap();
        let metrics = admin.call("GET", "/metrics", "").unwrap().body;
        if metrics.lines().any(|line| line == "warren_webhook_delivered_total 5") {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "{metrics}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn each_node_is_watched_and_its_lines_of_the_log_are_json() {
    let data = std::env::temp_dir().join(format!("warren-serve-watch-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&data);
    std::fs::create_dir_all(&data).unwrap();
    let (log, port) = (data.join("log"), free_port());
    let mut child = Command::new(WARREN)
        .args(["serve", "--log", "debug", "--log-format", "json", "--no-stun"])
        .args(["--listen", &format!("127.0.0.1:{port}"), "--node-lifetime", "90d"])
        .args(["--url", &format!("https://127.0.0.1:{port}"), "--data"])
        .arg(&data)
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    until_ready(&mut child);
    let mut serve = Serve { data, child, port };
    let token = serve.token(&["--reusable"]);
    let one = join(&token, "robot");
    until(&one, "a map", has_peers(0));
    let metrics = dial::Admin::local(&serve.data).unwrap().call("GET", "/metrics", "").unwrap();
    for line in [
        "warren_node_online{node=\"robot\"} 1",
        "warren_node_last_seen_seconds{node=\"robot\"} 1",
        "warren_node_expires_seconds{node=\"robot\"} 1",
    ] {
        assert!(metrics.body.lines().any(|known| known.starts_with(line)), "{}", metrics.body);
    }
    serve.kill();
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.contains("enrolled"), "{text}");
    for line in text.lines() {
        let told: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        let is_text = |name: &str| told[name].as_str().is_some_and(|text| !text.is_empty());
        assert!(is_text("time") && is_text("level") && is_text("message"), "{line}");
    }
    drop(one);
}
