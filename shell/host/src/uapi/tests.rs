//! The protocol word by word, the parser against noise, and the stock `wg` against a living server.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use node::{AllowedIp, Change, PeerChange, PeerStatus, Prefix, Status};
use noise::{PresharedKey, PrivateKey, PublicKey};
use proptest::prelude::*;

use super::*;
use crate::linux::netlink::tests::soon;
use crate::linux::sys::{Interest, Poll};

const KEY: &str = "58d402e8d3a0cc7d4c0a4f2e0e6ba2b9f7d4a4c7c7b6f9b5f7dfb16b8e8b6c4f";

fn set(lines: &str) -> Result<Vec<Change>, Errno> {
    match text::parse(format!("set=1\n{lines}\n").as_bytes())? {
        Request::Set(changes) => Ok(changes),
        other => panic!("a set was read as {other:?}"),
    }
}

#[test]
fn every_key_is_read() {
    let all = format!(
        "private_key={KEY}\nlisten_port=51820\nfwmark=7\nreplace_peers=true\npublic_key={KEY}\n\
         update_only=true\nremove=true\npreshared_key={KEY}\nendpoint=[fd00::1]:9\n\
         persistent_keepalive_interval=25\nallowed_ip=9.9.9.9/32\nreplace_allowed_ips=true\n\
         allowed_ip=10.0.0.9/8\nallowed_ip=-fd00::/16\nprotocol_version=1\n\
         public_key={KEY}\nendpoint=192.0.2.1:65535\n"
    );
    let key = PublicKey::from_hex(KEY).unwrap();
    let given = |text: &str, remove| AllowedIp { prefix: text.parse::<Prefix>().unwrap(), remove };
    let expected = vec![
        Change::PrivateKey(Some(PrivateKey::from_hex(KEY).unwrap())),
        Change::ListenPort(51820),
        Change::Fwmark(7),
        Change::ReplacePeers,
        Change::Peer(PeerChange {
            key,
            update_only: true,
            remove: true,
            preshared_key: Some(PresharedKey::from_hex(KEY).unwrap().into()),
            endpoint: Some("[fd00::1]:9".parse().unwrap()),
            carrier: None,
            poll: None,
            keepalive_s: Some(25),
            replace_allowed_ips: true,
            allowed_ips: vec![given("10.0.0.0/8", false), given("fd00::/16", true)],
            compress: None,
            hold: None,
            translate: None,
        }),
        Change::Peer(PeerChange {
            endpoint: Some("192.0.2.1:65535".parse().unwrap()),
            ..PeerChange::new(key)
        }),
    ];
    assert_eq!(set(&all), Ok(expected.clone()));
    assert_eq!(set(&all.replace('\n', "\r\n")), Ok(expected));
    assert_eq!(set(""), Ok(vec![]));
    assert_eq!(set("fwmark=\n"), Ok(vec![Change::Fwmark(0)]));
    let zero = "0".repeat(64);
    assert_eq!(set(&format!("private_key={zero}\n")), Ok(vec![Change::PrivateKey(None)]));
    assert_eq!(text::parse(b"get=1\n\n"), Ok(Request::Get));
    assert_eq!(text::parse(b"weather=1\n\n"), Ok(Request::Weather));
    assert_eq!(text::parse(b"weather=1\nx=1\n\n"), Err(Errno::INVALID));
}

#[test]
fn bad_values_are_einval_and_bad_lines_are_eproto() {
    for line in [
        "private_key=abc",
        "private_key=",
        "listen_port=65536",
        "listen_port=+1",
        "listen_port=",
        "listen_port= 1",
        "fwmark=4294967296",
        "fwmark=0x10",
        "replace_peers=false",
        "colour=red",
        "endpoint=1.2.3.4:5",
        "=",
        "public_key=",
        "public_key=zz",
    ] {
        assert_eq!(set(&format!("{line}\n")), Err(Errno::INVALID), "{line}");
    }
    for line in [
        "endpoint=1.2.3.4",
        "endpoint=example.org:1",
        "endpoint=[fe80::1%no-such-link]:1",
        "endpoint=1.2.3.4:65536",
        "persistent_keepalive_interval=65536",
        "persistent_keepalive_interval=off",
        "preshared_key=00",
        "replace_allowed_ips=1",
        "remove=yes",
        "update_only=",
        "allowed_ip=10.0.0.0",
        "allowed_ip=10.0.0.0/33",
        "allowed_ip=10.0.0.0/08",
        "allowed_ip=--10.0.0.0/8",
        "allowed_ip=",
        "protocol_version=2",
        "listen_port=1",
    ] {
        let text = format!("public_key={KEY}\n{line}\n");
        assert_eq!(set(&text), Err(Errno::INVALID), "{line}");
    }
    assert_eq!(set("listen_port\n"), Err(Errno::PROTOCOL));
    assert_eq!(set(&format!("a={}\n", "x".repeat(LINE_LEN_MAX))), Err(Errno::IO));
    assert_eq!(text::parse(b"set=1\nlisten_port=\xff\n\n"), Err(Errno::INVALID));
    assert_eq!(text::parse(b"get=1\nx"), Err(Errno::INVALID));
    for nonsense in ["", "\n", "get=2\n\n", "set=1x\n\n", "GET / HTTP/1.1\r\n\r\n"] {
        assert_eq!(text::parse(nonsense.as_bytes()), Err(Errno::PROTOCOL), "{nonsense:?}");
    }
}

#[test]
fn a_status_is_written_in_the_usual_order() {
    let peer = PeerStatus {
        keys: None,
        key: PublicKey::from_hex(KEY).unwrap(),
        preshared_key: PresharedKey::default(),
        endpoint: Some("[::ffff:192.0.2.1]:7".parse().unwrap()),
        last_handshake: Some(Duration::new(1_700_000_000, 42)),
        rx_bytes: 1,
        tx_bytes: 2,
        keepalive_s: 25,
        allowed_ips: vec!["10.0.0.0/8".parse().unwrap(), "::/0".parse().unwrap()],
    };
    let status = Status {
        private_key: Some(PrivateKey::from_hex(KEY).unwrap()),
        listen_port: 51820,
        fwmark: 1,
        peers: vec![peer],
    };
    let private = PrivateKey::from_hex(KEY).unwrap().to_hex();
    let zero = "0".repeat(64);
    let expected = format!(
        "private_key={private}\nlisten_port=51820\nfwmark=1\npublic_key={KEY}\n\
         preshared_key={zero}\nprotocol_version=1\nendpoint=192.0.2.1:7\n\
         last_handshake_time_sec=1700000000\nlast_handshake_time_nsec=42\ntx_bytes=2\nrx_bytes=1\n\
         persistent_keepalive_interval=25\nallowed_ip=10.0.0.0/8\nallowed_ip=::/0\nerrno=0\n\n"
    );
    assert_eq!(text::format(&status), expected);
    assert_eq!(text::format(&Status::default()), "errno=0\n\n");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = text::parse(&bytes);
        let _ = text::parse(&[b"set=1\n", &bytes[..]].concat());
    }

    #[test]
    fn no_near_miss_makes_the_parser_panic(
        lines in proptest::collection::vec(("[a-z_]{0,9}|public_key|private_key|listen_port|fwmark\
            |replace_peers|update_only|remove|preshared_key|endpoint|persistent_keepalive_interval\
            |replace_allowed_ips|allowed_ip|protocol_version",
            "\\PC{0,40}|[0-9a-f]{64}|true|[0-9]{1,11}|-?[0-9:.]{0,20}/[0-9]{0,3}|\\[.*\\]:[0-9]+"),
            0..12),
    ) {
        let text: String = lines.iter().map(|(k, v)| format!("{k}={v}\n")).collect();
        if let Ok(changes) = set(&text) {
            prop_assert!(changes.len() <= lines.len());
        }
    }
}

/// The smallest thing that can be configured: what a node does with changes, without a node.
#[derive(Default)]
struct Store(Status);

impl Store {
    fn handle(&mut self, request: Request) -> Reply {
        let Request::Set(changes) = request else { return Reply::Status(self.0.clone()) };
        for change in changes {
            match change {
                Change::PrivateKey(key) => self.0.private_key = key,
                Change::ListenPort(1) => return Reply::Refused(Errno::PORT_IN_USE),
                Change::ListenPort(port) => self.0.listen_port = port,
                Change::Fwmark(mark) => self.0.fwmark = mark,
                Change::ListenIcmp(_) | Change::ListenIp(_) => {}
                Change::ReplacePeers => self.0.peers.clear(),
                Change::Peer(change) => self.change_peer(change),
            }
        }
        Reply::Done
    }

    fn change_peer(&mut self, change: PeerChange) {
        let known = self.0.peers.iter().position(|p| p.key == change.key);
        if change.remove || (known.is_none() && change.update_only) {
            self.0.peers.retain(|p| !change.remove || p.key != change.key);
            return;
        }
        let place = known.unwrap_or_else(|| {
            self.0.peers.push(PeerStatus {
                keys: None,
                key: change.key,
                preshared_key: PresharedKey::default(),
                endpoint: None,
                last_handshake: None,
                rx_bytes: 0,
                tx_bytes: 0,
                keepalive_s: 0,
                allowed_ips: Vec::new(),
            });
            self.0.peers.len() - 1
        });
        for given in &change.allowed_ips {
            for peer in &mut self.0.peers {
                peer.allowed_ips.retain(|p| *p != given.prefix);
            }
        }
        let peer = &mut self.0.peers[place];
        if let Some(node::Preshared::Key(key, _)) = change.preshared_key {
            peer.preshared_key = key;
        }
        peer.endpoint = change.endpoint.or(peer.endpoint);
        peer.keepalive_s = change.keepalive_s.unwrap_or(peer.keepalive_s);
        if change.replace_allowed_ips {
            peer.allowed_ips.clear();
        }
        let given = change.allowed_ips.iter().filter(|a| !a.remove).map(|a| a.prefix);
        peer.allowed_ips.extend(given);
    }
}

/// A server on a thread of its own, driven from an outer epoll as a driver would.
struct Running {
    name: String,
    path: PathBuf,
    store: Arc<Mutex<Store>>,
    gone: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

fn fresh_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("wtc{}-{count}", std::process::id())
}

fn run_server() -> Running {
    let name = fresh_name();
    let path = PathBuf::from(format!("{DIRECTORY}/{name}.sock"));
    let mut server = Server::bind(&name).unwrap();
    let (store, gone, stop) = <(Arc<Mutex<Store>>, Arc<AtomicBool>, Arc<AtomicBool>)>::default();
    let (thread_store, thread_gone, thread_stop) = (store.clone(), gone.clone(), stop.clone());
    let thread = std::thread::spawn(move || {
        let poll = Poll::new().unwrap();
        poll.watch(server.fd(), Interest::READ).unwrap();
        let mut ready = Vec::new();
        while !thread_stop.load(Ordering::Relaxed) {
            poll.wait(Some(Duration::from_millis(20)), &mut ready).unwrap();
            if ready.is_empty() {
                continue;
            }
            let mut store = thread_store.lock().unwrap();
            let turn = server.handle_ready(&mut |request| store.handle(request)).unwrap();
            if turn == Turn::SocketGone {
                thread_gone.store(true, Ordering::Relaxed);
                return;
            }
        }
    });
    Running { name, path, store, gone, stop, thread: Some(thread) }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let joined = self.thread.take().map(std::thread::JoinHandle::join);
        if !std::thread::panicking() {
            joined.unwrap().unwrap();
        }
    }
}

impl Running {
    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream
    }
}

/// Runs `wg`, with `input` for `/dev/stdin`.
fn wg(arguments: &[&str], input: &str) -> Result<String, String> {
    let mut child = Command::new("wg")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the package wireguard-tools is needed");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

fn public(seed: u8) -> PublicKey {
    PrivateKey::from_bytes([seed; 32]).public()
}

/// A configuration with every key that `wg` knows, for two peers.
fn full_config(key: &str, psk: &str, a: PublicKey, b: PublicKey) -> String {
    format!(
        "[Interface]\nPrivateKey = {key}\nListenPort = 4242\nFwMark = 0x10\n\
         [Peer]\nPublicKey = {a}\nAllowedIPs = 10.0.0.2/32, fd00::2/128\n\
         Endpoint = 192.0.2.1:51820\n\
         [Peer]\nPublicKey = {b}\nPresharedKey = {psk}\nAllowedIPs = 10.0.0.3/32\n\
         Endpoint = [2001:db8::3]:1\nPersistentKeepalive = 25\n"
    )
}

#[test]
fn stock_wg_configures_and_shows() {
    let server = run_server();
    let name = server.name.as_str();
    let (ours, a, b) = (PrivateKey::from_bytes([1; 32]), public(2), public(3));
    let psk = PresharedKey::from_bytes([9; 32]).to_base64();
    let key = ours.to_base64();
    let first = full_config(&key, &psk, a, b);
    wg(&["setconf", name, "/dev/stdin"], &first).unwrap();
    let dump = wg(&["show", name, "dump"], "").unwrap();
    let expected = format!(
        "{key}\t{}\t4242\t0x10\n\
         {a}\t(none)\t192.0.2.1:51820\t10.0.0.2/32,fd00::2/128\t0\t0\t0\toff\n\
         {b}\t{psk}\t[2001:db8::3]:1\t10.0.0.3/32\t0\t0\t0\t25\n",
        ours.public()
    );
    assert_eq!(dump, expected);
    assert!(wg(&["show", name], "").unwrap().contains("persistent keepalive: every 25 seconds"));
    assert!(wg(&["show", "interfaces"], "").unwrap().split_whitespace().any(|n| n == name));
    let shown = wg(&["showconf", name], "").unwrap();
    assert!(shown.contains(&format!("PrivateKey = {key}")), "{shown}");

    // what it shows it can read again
    wg(&["setconf", name, "/dev/stdin"], &shown).unwrap();
    assert_eq!(wg(&["show", name, "dump"], "").unwrap(), expected);

    let c = public(4);
    let added = format!("[Peer]\nPublicKey = {c}\nAllowedIPs = 10.0.0.2/32\n");
    wg(&["addconf", name, "/dev/stdin"], &added).unwrap();
    let peers = wg(&["show", name, "allowed-ips"], "").unwrap();
    assert!(peers.contains(&format!("{c}\t10.0.0.2/32")), "the prefix has moved: {peers}");
    assert!(peers.contains(&format!("{a}\tfd00::2/128")), "{peers}");

    let synced = format!("[Interface]\nPrivateKey = {key}\n[Peer]\nPublicKey = {b}\n");
    wg(&["syncconf", name, "/dev/stdin"], &synced).unwrap();
    assert_eq!(wg(&["show", name, "peers"], "").unwrap(), format!("{b}\n"));

    let b = b.to_string();
    wg(
        &[
            "set",
            name,
            "listen-port",
            "77",
            "fwmark",
            "off",
            "peer",
            &b,
            "endpoint",
            "127.0.0.1:5",
            "persistent-keepalive",
            "off",
            "allowed-ips",
            "0.0.0.0/0",
        ],
        "",
    )
    .unwrap();
    assert_eq!(wg(&["show", name, "endpoints"], "").unwrap(), format!("{b}\t127.0.0.1:5\n"));
    assert_eq!(wg(&["show", name, "listen-port"], "").unwrap(), "77\n");
    assert_eq!(wg(&["show", name, "fwmark"], "").unwrap(), "off\n");
    wg(&["set", name, "peer", &b, "remove"], "").unwrap();
    assert_eq!(wg(&["show", name, "peers"], "").unwrap(), "");

    let refused = wg(&["set", name, "listen-port", "1"], "").unwrap_err();
    assert!(refused.contains("Address already in use"), "{refused}");
}

#[test]
fn a_reply_of_many_peers_reaches_a_slow_reader_whole() {
    let server = run_server();
    let mut text = String::from("set=1\n");
    for i in 0..20_000u32 {
        let mut key = [0; 32];
        key[..4].copy_from_slice(&i.to_be_bytes());
        text += &format!("public_key={}\nallowed_ip={}/32\n", PublicKey(key).to_hex(), {
            std::net::Ipv4Addr::from_bits(i)
        });
    }
    text += "\n";
    // the store is quadratic in its peers, so it is filled without it
    let Request::Set(changes) = text::parse(text.as_bytes()).unwrap() else { unreachable!() };
    assert_eq!(changes.len(), 20_000);
    for change in changes {
        let Change::Peer(change) = change else { unreachable!() };
        let allowed_ips = change.allowed_ips.iter().map(|a| a.prefix).collect();
        server.store.lock().unwrap().0.peers.push(PeerStatus {
            keys: None,
            key: change.key,
            preshared_key: PresharedKey::default(),
            endpoint: None,
            last_handshake: None,
            rx_bytes: 0,
            tx_bytes: 0,
            keepalive_s: 0,
            allowed_ips,
        });
    }
    let mut slow = server.connect();
    slow.write_all(b"get=1\n\n").unwrap();
    // meanwhile somebody else is served
    let mut quick = server.connect();
    quick.write_all(b"set=1\nfwmark=9\n\n").unwrap();
    let mut reply = [0; 9];
    quick.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"errno=0\n\n");
    slow.shutdown(Shutdown::Write).unwrap();
    let mut all = String::new();
    slow.read_to_string(&mut all).unwrap();
    assert_eq!(all.matches("public_key=").count(), 20_000);
    assert!(all.ends_with("errno=0\n\n"));
}

#[test]
fn requests_that_come_together_or_in_pieces_are_all_answered() {
    let server = run_server();
    let mut stream = server.connect();
    stream.write_all("get=1\n\n".repeat(50).as_bytes()).unwrap();
    let mut reply = vec![0; 9 * 50];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply, "errno=0\n\n".repeat(50).as_bytes());
    for byte in b"set=1\r\nlisten_port=5\r\n\r\n" {
        stream.write_all(&[*byte]).unwrap();
    }
    stream.read_exact(&mut reply[..9]).unwrap();
    stream.write_all(b"set=1\nlisten_port=6\nnonsense=1\n\n").unwrap();
    let mut refused = [0; 11];
    stream.read_exact(&mut refused).unwrap();
    assert_eq!(&refused, b"errno=-22\n\n");
    assert_eq!(server.store.lock().unwrap().0.listen_port, 5, "all or nothing");
}

#[test]
fn who_breaks_the_protocol_is_told_and_dismissed() {
    let server = run_server();
    let talk = |text: &[u8]| {
        let mut stream = server.connect();
        let _ = stream.write_all(text);
        let _ = stream.shutdown(Shutdown::Write);
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply); // a reset may follow the reply
        String::from_utf8(reply).unwrap()
    };
    assert_eq!(talk(b"GET / HTTP/1.1\r\n\r\n"), "errno=-71\n\n");
    assert_eq!(talk(b"set=1\nlisten_port=9\n"), "errno=-71\n\n", "cut off in the middle");
    assert_eq!(talk(b"set=1\nno equals sign\n\n"), "errno=-71\n\n");
    assert_eq!(talk(&[b"set=1\n", &vec![b'x'; LINE_LEN_MAX + 9000][..]].concat()), "errno=-5\n\n");
    let endless = [b"set=1\n", &b"fwmark=1\n".repeat(REQUEST_LEN_MAX / 9 + 1)[..]].concat();
    assert_eq!(talk(&endless), "errno=-5\n\n");
    assert_eq!(server.store.lock().unwrap().0, Status::default());
    assert_eq!(talk(b"get=1\n\n"), "errno=0\n\n");
}

#[test]
fn silent_clients_do_not_lock_others_out() {
    let server = run_server();
    let silent: Vec<_> = (0..CLIENTS_MAX * 3).map(|_| server.connect()).collect();
    let mut stream = server.connect();
    stream.write_all(b"get=1\n\n").unwrap();
    let mut reply = [0; 9];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"errno=0\n\n");
    drop(silent);
}

#[test]
fn a_name_in_use_is_refused_and_a_stale_socket_is_replaced() {
    let server = run_server();
    let mode = std::fs::metadata(&server.path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "for the owner only");
    let e = Server::bind(&server.name).unwrap_err();
    assert!(matches!(e, BindError::Taken(_)), "{e}");
    assert!(e.to_string().contains("taken by a running program"), "{e}");
    let path = server.path.clone();
    drop(server);
    assert!(!path.exists(), "removed on the way out");

    let name = fresh_name();
    let path = PathBuf::from(format!("{DIRECTORY}/{name}.sock"));
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "left by a program that died");
    let server = soon(|| Server::bind(&name)).unwrap();
    // somebody else takes the place: ours must not remove it
    std::fs::remove_file(&path).unwrap();
    let successor = Server::bind(&name).unwrap();
    drop(server);
    assert!(path.exists());
    drop(successor);
    assert!(!path.exists());

    std::fs::write(&path, "not a socket").unwrap();
    let e = Server::bind(&name).unwrap_err().to_string();
    std::fs::remove_file(&path).unwrap();
    assert!(e.contains("not a socket"), "{e}");
    for name in ["", "a/b", "..", "sixteen-letters!", "sixteen-letters-"] {
        assert!(matches!(Server::bind(name), Err(BindError::Name(_))), "{name}");
    }
}

#[test]
fn removing_the_socket_ends_the_service() {
    let mut server = run_server();
    std::fs::remove_file(&server.path).unwrap();
    server.thread.take().unwrap().join().unwrap();
    assert!(server.gone.load(Ordering::Relaxed));
    server.thread = Some(std::thread::spawn(|| {}));
}
