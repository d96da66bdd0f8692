//! A network of real daemons with a subnet and an Internet behind one of them.
//!
//! `a`, `b` and `server` are on one LAN, 10.9.0.0/24. Behind `b` are `lan` (192.168.5.9, fd05::9
//! and addresses that could be anywhere in the Internet, 192.0.2.9, 2001:db8:5::9)
//! and `net`, which has addresses of the Internet (203.0.113.9, 2001:db8:9::9). `a` has a way
//! to the Internet of its own, by `isp`, which has the same addresses: who answers tells which way
//! was taken. Where a world's number is odd, `a`, `b` and `c` forward everything, as machines with
//! containers do. `c` is a second gateway, behind which `lan2` has the address of `lan`.

#![allow(unreachable_pub)]

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::support::{Host, Result, Scene, bail, ensure, eventually, inside, seconds};

const WARREN: &str = env!("CARGO_BIN_EXE_warren");
const SERVER: &str = "10.9.0.254";
const NAMES: [&str; 3] = ["a", "b", "c"];
pub(crate) const NET: [&str; 2] = ["203.0.113.9", "2001:db8:9::9"];
pub(crate) const LAN: [&str; 2] = ["192.168.5.9", "fd05::9"];
/// Addresses of the Internet that `lan` has, with the length of its network.
const PUBLIC: [&str; 2] = ["192.0.2.9/24", "2001:db8:5::9/64"];

/// A program of the test, ended with it.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The whole of it. Fields are dropped in order: programs before their folder.
pub(crate) struct World {
    pub(crate) daemons: [Option<Running>; 3],
    _serve: Running,
    _tellers: Vec<Teller>,
    pub(crate) a: Host,
    pub(crate) b: Host,
    pub(crate) c: Host,
    pub(crate) server: Host,
    pub(crate) lan: Host,
    pub(crate) lan2: Host,
    pub(crate) isp: Host,
    pub(crate) folder: Folder,
}

pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl World {
    /// Hosts and server; no daemon yet.
    pub(crate) fn new(scene: &Scene, id: &str) -> Result<Self> {
        let [a, b, server] = [scene.host("a")?, scene.host("b")?, scene.host("server")?];
        let [c, lan2] = [scene.host("c")?, scene.host("lan2")?];
        let [lan, net, isp] = [scene.host("lan")?, scene.host("net")?, scene.host("isp")?];
        // every second world's machines forward everything for reasons of their own
        let forwards = id.bytes().last().is_some_and(|digit| digit % 2 == 1);
        for host in [&a, &b, &c] {
            let value = u8::from(forwards);
            host.sh(&format!(
                "cd /proc/sys/net; echo {value} > ipv4/ip_forward
                 echo {value} > ipv6/conf/all/forwarding
                 echo {value} > ipv6/conf/default/forwarding"
            ))?;
        }
        server.sh(&format!(
            "ip link add br0 type bridge; ip link set br0 up; ip addr add {SERVER}/24 dev br0"
        ))?;
        for (i, host) in [(1, &a), (2, &b), (3, &c)] {
            let (port, address) = (format!("p{i}"), format!("10.9.0.{i}/24"));
            scene.veth((&server, &port, &[]), (host, "eth0", &[&address]))?;
            server.sh(&format!("ip link set {port} master br0"))?;
        }
        let far = ["203.0.113.9/32", "2001:db8:9::9/128", "169.254.169.254/16"];
        scene.veth(
            (&b, "lan0", &["192.168.5.1/24", "fd05::1/64", "192.0.2.1/24", "2001:db8:5::1/64"]),
            (&lan, "eth0", &["192.168.5.9/24", "fd05::9/64", PUBLIC[0], PUBLIC[1]]),
        )?;
        scene.veth((&b, "out0", &["203.0.113.1/32", "2001:db8:9::1/128"]), (&net, "eth0", &far))?;
        // the Internet is behind a router, and not a network of b's
        b.sh("ip route add default via 203.0.113.9 dev out0 onlink
             ip -6 route add 2001:db8:9::9 dev out0; ip -6 route add default via 2001:db8:9::9
             ip -6 route del 2001:db8:9::9 dev out0")?;
        net.sh("ip route add 203.0.113.1 dev eth0; ip -6 route add 2001:db8:9::1 dev eth0")?;
        scene.veth(
            (&a, "isp0", &["198.51.100.1/24", "2001:db8:1::1/64"]),
            (&isp, "eth0", &["198.51.100.2/24", "2001:db8:1::2/64"]),
        )?;
        isp.sh("ip addr add 203.0.113.9/32 dev lo; ip addr add 2001:db8:9::9/128 dev lo")?;
        a.sh("ip route add default via 198.51.100.2; ip -6 route add default via 2001:db8:1::2")?;
        lan.sh("ip route add default via 192.168.5.1; ip -6 route add default via fd05::1")?;
        b.sh("ip route add 169.254.169.254 dev out0")?;
        scene.veth((&c, "lan0", &["192.168.5.1/24"]), (&lan2, "eth0", &["192.168.5.9/24"]))?;
        let any = ["0.0.0.0", "::"];
        let mut tellers = Vec::new();
        for (host, name) in
            [(&lan, "lan"), (&net, "net"), (&isp, "isp"), (&a, "a"), (&b, "b"), (&lan2, "lan2")]
        {
            let ports: &[u16] = if name == "net" { &[80, 25] } else { &[80] };
            for (address, port) in any.iter().flat_map(|a| ports.iter().map(move |p| (a, *p))) {
                tellers.push(Teller::start(host, address, port, name)?);
            }
        }
        let path = std::env::temp_dir().join(format!("warren-gate-{id}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path)?;
        let folder = Folder(path);
        let (data, at) = (folder.path("server"), format!("{SERVER}:8443"));
        let (url, stun) = (format!("https://{at}"), format!("{SERVER}:3478"));
        let words = ["serve", "--data", &data, "--listen", &at, "--url", &url, "--stun", &stun];
        let serve = run(&server, &words, &folder, "serve", "serving on")?;
        let daemons = [None, None, None];
        let (_serve, _tellers) = (serve, tellers);
        Ok(Self { daemons, _serve, _tellers, a, b, c, server, lan, lan2, isp, folder })
    }

    pub(crate) fn host(&self, i: usize) -> &Host {
        [&self.a, &self.b, &self.c][i]
    }

    /// Starts the daemon of `a` (0), `b` (1) or `c` (2).
    pub(crate) fn daemon(&mut self, i: usize) -> Result<()> {
        self.daemon_within(i, &[])
    }

    /// The same, started by these words.
    pub(crate) fn daemon_within(&mut self, i: usize, by: &[&str]) -> Result<()> {
        let name = NAMES[i];
        let (state, socket) = (self.folder.path(name), self.folder.path(&format!("{name}.sock")));
        let words = ["daemon", "--state", &state, "--socket", &socket, "--tun", "warren0"];
        let running = run_by(by, self.host(i), &words, (&self.folder, name, "daemon at"))?;
        self.daemons[i] = Some(running);
        Ok(())
    }

    /// `warren` with these words for a node.
    pub(crate) fn node(&self, i: usize, words: &[&str]) -> Result<String> {
        let socket = self.folder.path(&format!("{}.sock", NAMES[i]));
        said(self.host(i).command(&[WARREN]).args(["--socket", &socket]).args(words))
    }

    pub(crate) fn admin(&self, words: &[&str]) -> Result<String> {
        let data = self.folder.path("server");
        said(self.server.command(&[WARREN]).args(words).args(["--data", &data]))
    }

    /// `warren cleanup` for a node.
    pub(crate) fn cleanup(&self, i: usize) -> Result<String> {
        let state = self.folder.path(NAMES[i]);
        said(&mut self.host(i).command(&[WARREN, "cleanup", "--state", &state]))
    }

    /// Both are up: `b` serves `routes`, which are approved, and `a` uses them.
    pub(crate) fn join(&mut self, routes: &str, of_b: &[&str], of_a: &[&str]) -> Result<()> {
        let token = self.admin(&["key", "create", "--reusable"])?;
        self.daemon(0)?;
        self.daemon(1)?;
        let up = ["up", token.trim(), "--timeout", "20s", "--hostname"];
        let mut words_b = [&up[..], &["b"], of_b].concat();
        if !routes.is_empty() {
            words_b.extend(["--advertise-routes", routes]);
        }
        self.node(0, &[&up[..], &["a", "--accept-routes"], of_a].concat())?;
        self.node(1, &words_b)?;
        let mut approved: Vec<&str> = routes.split(',').filter(|r| !r.is_empty()).collect();
        if of_b.contains(&"--advertise-exit-node") {
            approved.extend(["0.0.0.0/0", "::/0"]);
        }
        if !approved.is_empty() {
            self.admin(&[&["route", "approve", "b"], &approved[..]].concat())?;
        }
        Ok(())
    }

    /// Until a program on host `i` that asks `to` is answered; what it is told.
    pub(crate) fn reaches(&self, i: usize, to: &str) -> Result<String> {
        let last = std::cell::RefCell::new(String::new());
        eventually(&format!("{to} answers"), seconds(20), || {
            asks(self.host(i), to, 80).map(|told| last.replace(told)).is_ok()
        })?;
        Ok(last.take())
    }
}

fn run(host: &Host, words: &[&str], folder: &Folder, name: &str, ready: &str) -> Result<Running> {
    run_by(&[], host, words, (folder, name, ready))
}

/// Runs `warren` with these words, started by others.
fn run_by(
    by: &[&str],
    host: &Host,
    words: &[&str],
    (folder, name, ready): (&Folder, &str, &str),
) -> Result<Running> {
    let log = PathBuf::from(folder.path(&format!("{name}.log")));
    let file = std::fs::File::create(&log)?;
    let mut command = host.command(&[by, &[WARREN]].concat());
    command.args(words).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let running = Running(command.spawn()?);
    let text = || std::fs::read_to_string(&log).unwrap_or_default();
    let waited = eventually(&format!("{name} is ready"), seconds(20), || text().contains(ready));
    if waited.is_err() {
        bail!("{name} did not start:\n{}", text());
    }
    Ok(running)
}

fn said(command: &mut Command) -> Result<String> {
    let out = command.output()?;
    let why = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "{command:?}: {}", why.trim());
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Tells whoever connects its own name, and from which address and port the connection came.
pub(crate) struct Teller {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Teller {
    pub(crate) fn start(host: &Host, address: &str, port: u16, name: &'static str) -> Result<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        let address: IpAddr = address.parse()?;
        let listener = inside::inside(host, || {
            let kind = socket2::Domain::for_address((address, port).into());
            let socket = socket2::Socket::new(kind, socket2::Type::STREAM, None)?;
            if address.is_ipv6() {
                socket.set_only_v6(true)?;
            }
            socket.set_reuse_address(true)?;
            socket.bind(&SocketAddr::new(address, port).into())?;
            socket.listen(16)?;
            socket.set_nonblocking(true)?;
            Ok(TcpListener::from(socket))
        })?;
        let stop = ended.clone();
        let thread = std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                if let Ok((mut stream, from)) = listener.accept() {
                    let _ = write!(stream, "{name} {} {}", from.ip(), from.port());
                } else {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
            }
            Ok(())
        });
        Ok(Self { ended, thread: Some(thread) })
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// What the teller at `to` says to a program in `host`: `NAME ADDRESS PORT`.
pub(crate) fn asks(host: &Host, to: &str, port: u16) -> Result<String> {
    let to = SocketAddr::new(to.parse()?, port);
    inside::inside(host, || {
        let mut stream = TcpStream::connect_timeout(&to, std::time::Duration::from_secs(1))?;
        stream.set_read_timeout(Some(seconds(2)))?;
        let mut told = String::new();
        stream.read_to_string(&mut told)?;
        Ok(told)
    })
}

/// Everything of a host that a daemon could leave changed.
pub(crate) fn machine(host: &Host) -> Result<String> {
    host.sh("ip -br link | awk '{print $1}' | sort; ip rule; ip -6 rule; nft list ruleset
         ip route show table all | sort
         ip -6 route show table all | grep -v ' fe80\\| ff00' | sed 's/expires.*//' | sort
         cd /proc/sys/net; grep -H . ipv4/ip_forward ipv4/conf/*/forwarding \
         ipv4/conf/all/src_valid_mark ipv6/conf/*/forwarding ipv6/conf/*/accept_ra
         echo; stat -c '%a %u %g' /etc/resolv.conf; cat /etc/resolv.conf")
}
