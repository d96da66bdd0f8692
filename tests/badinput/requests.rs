//! Nonsense on the control socket: an errno, or the end of the connection, and nothing changed.

use std::io::Write as _;
use std::os::unix::net::UnixStream;

use crate::support::keys::hex;
use crate::support::{KeyPair, Pair, Result, Sut, ensure, scene, uapi};

/// Requests none of which may succeed. `KEY` stands for a good public key in hexadecimal.
const NONSENSE: [&str; 34] = [
    "set=1\nprivate_key=abc\n\n",
    "set=1\nprivate_key=zz00000000000000000000000000000000000000000000000000000000000000\n\n",
    "set=1\nprivate_key=\n\n",
    "set=1\nprivate_key=KEY00\n\n",
    "set=1\nno_such_key=1\n\n",
    "set=1\nlisten_port=65536\n\n",
    "set=1\nlisten_port=-1\n\n",
    "set=1\nlisten_port=port\n\n",
    "set=1\nlisten_port=\n\n",
    "set=1\nfwmark=mark\n\n",
    "set=1\nfwmark=4294967296\n\n",
    "set=1\nreplace_peers=yes\n\n",
    "set=1\nendpoint=10.0.0.1:1\n\n",
    "set=1\nallowed_ip=10.0.0.0/8\n\n",
    "set=1\npublic_key=abc\n\n",
    "set=1\npublic_key=KEY\npreshared_key=1\n\n",
    "set=1\npublic_key=KEY\nendpoint=10.0.0.1\n\n",
    "set=1\npublic_key=KEY\nendpoint=10.0.0.1:99999\n\n",
    "set=1\npublic_key=KEY\nendpoint=:::1:1\n\n",
    "set=1\npublic_key=KEY\nendpoint=[::1]\n\n",
    "set=1\npublic_key=KEY\nallowed_ip=10.0.0.0/33\n\n",
    "set=1\npublic_key=KEY\nallowed_ip=300.0.0.0/8\n\n",
    "set=1\npublic_key=KEY\nallowed_ip=::/129\n\n",
    "set=1\npublic_key=KEY\nallowed_ip=/\n\n",
    "set=1\npublic_key=KEY\npersistent_keepalive_interval=65536\n\n",
    "set=1\npublic_key=KEY\npersistent_keepalive_interval=-1\n\n",
    "set=1\npublic_key=KEY\nprotocol_version=2\n\n",
    "set=1\npublic_key=KEY\nremove=maybe\n\n",
    "set=1\npublic_key=KEY\nno_such_key=1\n\n",
    "set=1\nlisten_port\n\n",
    "set=2\n\n",
    "get=2\n\n",
    "nonsense\n\n",
    "=\n\n",
];

#[test]
fn nonsense_on_the_control_socket_is_answered_by_an_errno() -> Result<()> {
    scene("b10", |scene| {
        let pair = Pair::over_veth(scene)?;
        pair.settle()?;
        let name = &pair.one.daemon.ifname;
        let before = uapi::ask(name, "get=1\n\n")?;
        let key = hex(&KeyPair::new().public);
        let mut wrong = Vec::new();
        for request in NONSENSE {
            let reply = uapi::ask(name, &request.replace("KEY", &key));
            match reply {
                Err(error) => wrong.push(format!("{request:?} hangs: {error:#}")),
                Ok(reply) if uapi::errno(&reply) == Some(0) => {
                    wrong.push(format!("{request:?} succeeded"));
                }
                Ok(_) => {}
            }
            ensure!(uapi::answers(name), "{request:?} was the last to be answered");
        }
        if Sut::under_test().is_warren() {
            ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
            let peers = uapi::ask(name, "get=1\n\n")?.matches("public_key=").count();
            let known = before.matches("public_key=").count();
            ensure!(peers <= known + 1, "nonsense left {} peers", peers - known);
        } else {
            eprintln!("this program takes:\n{}", wrong.join("\n"));
        }
        pair.one.ping_once(pair.two.v4)?;
        super::refusals::alive(&[&pair.one.daemon, &pair.two.daemon])
    })
}

#[test]
fn noise_and_endless_lines_on_the_control_socket_end_the_connection() -> Result<()> {
    scene("b11", |scene| {
        let host = scene.host("one")?;
        let daemon = scene.daemon(&Sut::under_test(), &host, &scene.ifname("a"))?;
        let name = &daemon.ifname;
        let before_kib = daemon.process.rss_kib();
        for round in 0..20_u8 {
            let noise: Vec<u8> = (0..=255).map(|n: u8| n.wrapping_mul(31) ^ round).collect();
            // Whatever it answers to this, it must go on answering.
            let _ = uapi::ask_bytes(name, &[&noise[..], b"\n\n"].concat());
            let _ = uapi::ask_bytes(name, b"set=1\npublic_key=\xff\xfe\n\n");
        }
        let mut endless = UnixStream::connect(uapi::path(name))?;
        endless.set_write_timeout(Some(std::time::Duration::from_secs(1)))?;
        let chunk = vec![b'a'; 1 << 16];
        // 64 MiB without a newline: refused at some point, or at least not kept.
        let taken = (0..1024).take_while(|_| endless.write_all(&chunk).is_ok()).count();
        ensure!(uapi::answers(name), "an endless line keeps others out");
        let grown_kib = daemon.process.rss_kib().saturating_sub(before_kib);
        eprintln!("took {} KiB of one line and grew by {grown_kib} KiB", taken * 64);
        if Sut::under_test().is_warren() {
            ensure!(grown_kib < 16 << 10, "one line made it grow by {grown_kib} KiB");
        }
        Ok(())
    })
}

#[test]
fn a_silent_client_keeps_nobody_out() -> Result<()> {
    scene("b12", |scene| {
        let host = scene.host("one")?;
        let daemon = scene.daemon(&Sut::under_test(), &host, &scene.ifname("a"))?;
        let mut silent = Vec::new();
        for words in ["", "get=1", "get=1\n", "set=1\nlisten_port=5"] {
            let mut stream = UnixStream::connect(uapi::path(&daemon.ifname))?;
            stream.write_all(words.as_bytes())?;
            silent.push(stream);
            ensure!(uapi::answers(&daemon.ifname), "kept out by {words:?}");
        }
        for _ in 0..200 {
            silent.push(UnixStream::connect(uapi::path(&daemon.ifname))?);
        }
        // With so many waiting it may refuse, but once they are gone it answers again.
        drop(silent);
        let answers = || uapi::answers(&daemon.ifname);
        crate::support::eventually("it answers", crate::support::seconds(3), answers).map(drop)
    })
}
