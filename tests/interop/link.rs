//! A link from two files: source 004.5, statements 1, 11 and 14.

use std::cell::RefCell;
use std::process::Command;
use std::rc::Rc;
use std::thread::sleep;
use std::time::Duration;

use crate::support::capture::{Capture, udp_payload};
use crate::support::pair::{INNER_V4, INNER_V6};
use crate::support::{
    Context as _, Daemon, Host, KeyPair, Result, Scene, Sut, ensure, eventually, preshared_key,
    scene, seconds, traffic,
};

const WARREN: &str = env!("CARGO_BIN_EXE_warren");
pub const PORTS: [u16; 2] = [10001, 10002];
const OUTER_V4: [&str; 2] = ["10.9.0.1", "10.9.0.2"];
const OUTER_V6: [&str; 2] = ["fd09::1", "fd09::2"];

/// Two hosts on one veth, each with a file.
pub struct Link<'a> {
    pub scene: &'a Scene,
    pub hosts: [Host; 2],
    pub keys: [KeyPair; 2],
    pub psk: RefCell<String>,
    /// Lines in place of that key.
    pub psk_lines: RefCell<Option<String>>,
    pub mtu: u32,
    pub outer_v6: bool,
    /// Names under which the other end finds each, in place of addresses.
    pub names: RefCell<[Option<String>; 2]>,
    ups: RefCell<[Option<Rc<Daemon>>; 2]>,
    /// Put before the command that brings a link up, for example an environment.
    pub env: RefCell<Vec<(String, String)>>,
    /// Words more of the command that brings a link up.
    pub args: RefCell<Vec<String>>,
    /// Lines put after `[Interface]` in the files of our program.
    pub head: RefCell<[String; 2]>,
    /// Lines put at the end of the files.
    pub more: RefCell<[String; 2]>,
}

impl<'a> Link<'a> {
    /// Hosts and cable, nothing up yet.
    pub fn new(scene: &'a Scene, mtu: u32, outer_v6: bool) -> Result<Self> {
        let hosts = [scene.host("one")?, scene.host("two")?];
        let cidr = |i: usize| [format!("{}/24", OUTER_V4[i]), format!("{}/64", OUTER_V6[i])];
        let (a, b) = (cidr(0), cidr(1));
        scene.veth((&hosts[0], "va", &[&a[0], &a[1]]), (&hosts[1], "vb", &[&b[0], &b[1]]))?;
        Ok(Self {
            scene,
            hosts,
            keys: [KeyPair::new(), KeyPair::new()],
            psk: RefCell::new(preshared_key()),
            psk_lines: RefCell::default(),
            args: RefCell::default(),
            mtu,
            outer_v6,
            names: RefCell::default(),
            ups: RefCell::default(),
            env: RefCell::default(),
            head: RefCell::default(),
            more: RefCell::default(),
        })
    }

    /// Hosts, cable and both ends up.
    pub fn up(scene: &'a Scene) -> Result<Self> {
        let link = Self::new(scene, 1420, false)?;
        link.start(0)?;
        link.start(1)?;
        link.settle()?;
        Ok(link)
    }

    pub fn ifname(&self, me: usize) -> String {
        self.scene.ifname(["a", "b"][me])
    }

    fn addresses(&self, me: usize) -> Vec<String> {
        let mut all = vec![format!("{}/24", INNER_V4[me])];
        // IPv6 needs an MTU of 1280 (RFC 8200 section 5).
        if self.mtu >= 1280 {
            all.push(format!("{}/64", INNER_V6[me]));
        }
        all
    }

    pub fn endpoint(&self, i: usize) -> String {
        let port = PORTS[i];
        if let Some(name) = &self.names.borrow()[i] {
            return format!("{name}:{port}");
        }
        if self.outer_v6 {
            format!("[{}]:{port}", OUTER_V6[i])
        } else {
            format!("{}:{port}", OUTER_V4[i])
        }
    }

    /// What `wg setconf` takes.
    fn config(&self, me: usize) -> String {
        let peer = 1 - me;
        let v6 = if self.mtu >= 1280 { format!(", {}/128", INNER_V6[peer]) } else { String::new() };
        let psk = || format!("PresharedKey = {}\n", self.psk.borrow());
        let psk = self.psk_lines.borrow().clone().unwrap_or_else(psk);
        format!(
            "[Interface]\nPrivateKey = {}\nListenPort = {}\n\n[Peer]\nPublicKey = {}\n\
             {}AllowedIPs = {}/32{v6}\nEndpoint = {}\n{}",
            self.keys[me].private_text(),
            PORTS[me],
            self.keys[peer].public_text(),
            psk,
            INNER_V4[peer],
            self.endpoint(peer),
            self.more.borrow()[me]
        )
    }

    /// Writes the file as it is to be now, and returns its path.
    pub fn write(&self, me: usize) -> Result<String> {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.scene.net.borrow().dir().join(format!("{}.conf", self.ifname(me)));
        let addresses = self.addresses(me).join(", ");
        let (mtu, head) = (self.mtu, &self.head.borrow()[me]);
        let more = format!("[Interface]\nAddress = {addresses}\nMTU = {mtu}\n{head}");
        let text = self.config(me).replacen("[Interface]\n", &more, 1);
        std::fs::write(&path, text)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        Ok(path.to_string_lossy().into_owned())
    }

    fn with_env(&self, command: &mut Command) {
        for (name, value) in self.env.borrow().iter() {
            command.env(name, value);
        }
    }

    /// Brings one end up: our own program from the file, any other by `wg` and `ip`.
    pub fn start(&self, me: usize) -> Result<()> {
        let (path, host, ifname) = (self.write(me)?, &self.hosts[me], self.ifname(me));
        let sut = Sut::under_test();
        if sut.is_warren() {
            let mut command = host.command(&[WARREN, "link", "up", &path]);
            command.args(self.args.borrow().iter());
            self.with_env(&mut command);
            let process = host.spawn_command(command)?;
            let daemon = Rc::new(Daemon { ifname: ifname.clone(), home: host.clone(), process });
            self.scene.watch(&daemon);
            let up = || {
                let shown = host.run(&["ip", "-br", "addr", "show", &ifname, "up"]);
                let listening = host.run(&["ss", "-Hlun"]).unwrap_or_default();
                let ready = shown.is_ok_and(|text| text.contains(INNER_V4[me]))
                    && listening.contains(&format!(":{}", PORTS[me]));
                ready || !daemon.process.is_running()
            };
            eventually("`link up` has its address", seconds(5), up)?;
            ensure!(daemon.process.is_running(), "`link up` ended:\n{}", daemon.process.log());
            self.ups.borrow_mut()[me] = Some(daemon);
        } else {
            let mut command = sut.command(host, &ifname);
            self.with_env(&mut command);
            let daemon = Daemon::start_command(command, host, &ifname)?;
            self.scene.watch(&daemon);
            daemon.set_config(&self.config(me))?;
            host.run(&["ip", "link", "set", &ifname, "mtu", &self.mtu.to_string()])?;
            let addresses = self.addresses(me);
            let words: Vec<&str> = addresses.iter().map(String::as_str).collect();
            host.bring_up(&ifname, &words)?;
            self.ups.borrow_mut()[me] = Some(daemon);
        }
        Ok(())
    }

    /// The running program of one end.
    pub fn daemon(&self, me: usize) -> Result<Rc<Daemon>> {
        self.ups.borrow()[me].clone().context("this end is not up")
    }

    /// Ends one end.
    pub fn stop(&self, me: usize) -> Result<()> {
        let daemon = self.ups.borrow_mut()[me].take().context("this end is not up")?;
        self.scene.forget(&daemon);
        daemon.process.stop()?;
        Ok(())
    }

    /// Has one end read its file again, which is written anew.
    pub fn reload(&self, me: usize) -> Result<()> {
        self.write(me)?;
        let daemon = self.daemon(me)?;
        if Sut::under_test().is_warren() {
            daemon.process.signal(libc::SIGHUP)?;
            // It says nothing of when it is done.
            sleep(Duration::from_millis(200));
            ensure!(daemon.process.is_running(), "SIGHUP ended it:\n{}", daemon.process.log());
            Ok(())
        } else {
            daemon.sync_config(&self.config(me))
        }
    }

    pub fn ping(&self, from: usize) -> Result<()> {
        let argv = ["ping", "-n", "-q", "-c", "1", "-W", "1", INNER_V4[1 - from]];
        self.hosts[from].run(&argv).map(drop)
    }

    pub fn settle(&self) -> Result<()> {
        let passes = || self.ping(0).is_ok() && self.ping(1).is_ok();
        eventually("pings pass both ways", seconds(12), passes).map(drop)
    }

    /// How many packets have come out of the link at this end.
    pub fn delivered(&self, me: usize) -> Result<u64> {
        let text = self.hosts[me].run(&["ip", "-s", "-j", "link", "show", &self.ifname(me)])?;
        let all: serde_json::Value = serde_json::from_str(&text)?;
        all[0]["stats64"]["rx"]["packets"].as_u64().context("a counter of `ip -s link`")
    }
}

#[test]
fn source_004_1_two_files_with_a_preshared_key_make_a_link() -> Result<()> {
    scene("l01", |scene| {
        let link = Link::up(scene)?;
        let [one, two] = &link.hosts;
        traffic::exact_stream(one, two, INNER_V4[1], 32 << 20)?;
        traffic::exact_stream(two, one, INNER_V6[0], 32 << 20)?;
        // And with another preshared key on one side there is none.
        link.stop(0)?;
        link.stop(1)?;
        link.start(0)?;
        link.psk.replace(preshared_key());
        link.start(1)?;
        sleep(seconds(1));
        ensure!(link.ping(0).is_err() && link.ping(1).is_err(), "the preshared key is not used");
        Ok(())
    })
}

/// Lengths of the transport packets of a link that comes up anew and carries a ping or some, but
/// keepalives.
fn lengths_of_a_start(link: &Link<'_>) -> Result<Vec<usize>> {
    link.stop(0)?;
    link.stop(1)?;
    let capture = Capture::start(&link.hosts[0], "va")?;
    link.start(0)?;
    link.start(1)?;
    link.settle()?;
    sleep(seconds(1));
    let packets = capture.stop()?;
    let payloads = packets.iter().filter_map(|packet| udp_payload(packet)).filter(|p| is_ours(*p));
    let transport = payloads.filter(|(_, _, payload)| payload[0] == 4).map(|(.., p)| p.len());
    Ok(transport.filter(|len| *len != 32).collect())
}

/// By the file's key or by the word of the command; one end is enough.
#[test]
fn where_frames_are_off_a_link_is_plain_wireguard() -> Result<()> {
    if !Sut::under_test().is_warren() {
        eprintln!("skipped: others have no frames");
        return Ok(());
    }
    // An echo of 84 bytes is padded to 96.
    const ECHO_LEN: usize = 128;
    scene("l16", |scene| {
        let link = Link::up(scene)?;
        let framed = lengths_of_a_start(&link)?;
        ensure!(framed.iter().any(|len| *len != ECHO_LEN), "no Hello is among {framed:?}");
        for me in 0..2 {
            link.head.borrow_mut()[me] = "Frames = off\n".to_owned();
            let plain = lengths_of_a_start(&link)?;
            ensure!(plain.iter().all(|len| *len == ECHO_LEN), "end {me}: {plain:?}");
            link.head.borrow_mut()[me].clear();
        }
        link.env.borrow_mut().push(("WARREN_FRAMES".to_owned(), "off".to_owned()));
        let plain = lengths_of_a_start(&link)?;
        ensure!(plain.iter().all(|len| *len == ECHO_LEN), "by the command: {plain:?}");
        Ok(())
    })
}

/// What `warren link status` tells of one end.
fn told(link: &Link<'_>, me: usize) -> Result<serde_json::Value> {
    let told = link.hosts[me].run(&[WARREN, "link", "status", "--json", &link.ifname(me)])?;
    let told: serde_json::Value = serde_json::from_str(&told)?;
    ensure!(told["links"][0]["interface"] == link.ifname(me), "{told}");
    Ok(told["links"][0]["peers"][0].clone())
}

#[test]
fn a_link_tells_how_it_is_and_why_where_nothing_is_known() -> Result<()> {
    if !Sut::under_test().is_warren() {
        eprintln!("skipped: others tell nothing");
        return Ok(());
    }
    scene("l17", |scene| {
        let link = Link::up(scene)?;
        let peer = told(&link, 0)?;
        ensure!(peer["key"] == link.keys[1].public_text(), "{peer}");
        ensure!(peer["link"]["repair"]["state"].is_string(), "{peer}");
        ensure!(peer["link_why"].is_null(), "{peer}");
        let shown = link.hosts[0].run(&[WARREN, "link", "status", "--links"])?;
        ensure!(shown.contains(&link.ifname(0)) && shown.contains("LOST OUT"), "{shown}");
        let metrics = link.hosts[0].run(&[WARREN, "link", "metrics"])?;
        let of_peer = format!("interface=\"{}\",peer=\"{}\"", link.ifname(0), peer["key"]);
        let of_peer = of_peer.replace("\"\"", "\"");
        for name in ["inbound_bytes_total", "last_handshake_timestamp_seconds", "repair_ratio"] {
            ensure!(metrics.contains(&format!("warren_peer_{name}{{{of_peer}}} ")), "{metrics}");
        }
        link.stop(1)?;
        link.head.borrow_mut()[1] = "Frames = off\n".to_owned();
        link.start(1)?;
        eventually("the other end is plain now", seconds(25), || {
            let _ = link.ping(1);
            told(&link, 1).is_ok_and(|peer| peer["link"].is_null())
        })?;
        let why = told(&link, 1)?["link_why"].to_string();
        ensure!(why.contains("plain WireGuard"), "{why}");
        let absent = link.hosts[0].output(&[WARREN, "link", "status", "wtnone"])?;
        let error = String::from_utf8_lossy(&absent.stderr).into_owned();
        ensure!(!absent.status.success() && error.contains("no link wtnone"), "{error}");
        Ok(())
    })
}

/// Packets of the link that left on `ifname` of `host` while `work` was done.
fn sizes(host: &Host, ifname: &str, work: impl FnOnce() -> Result<()>) -> Result<Vec<usize>> {
    let capture = Capture::start(host, ifname)?;
    work()?;
    let packets = capture.stop()?;
    for packet in &packets {
        let fragment = match packet[0] >> 4 {
            4 => packet[6] & 0x3f != 0 || packet[7] != 0,
            _ => packet[6] == 44,
        };
        ensure!(!fragment, "a datagram was fragmented, its packet has {} bytes", packet.len());
    }
    let ours = packets.iter().filter(|packet| udp_payload(packet).is_some_and(is_ours));
    Ok(ours.map(Vec::len).collect())
}

fn is_ours((from, to, _): (u16, u16, &[u8])) -> bool {
    PORTS.contains(&from) && PORTS.contains(&to)
}

/// Every inner packet fits, and no outer one is larger than `outer_mtu`.
fn fits(scene: &Scene, outer_mtu: u32, outer_v6: bool) -> Result<()> {
    let overhead = if outer_v6 { 80 } else { 60 };
    let mtu = outer_mtu - overhead;
    let link = Link::new(scene, mtu, outer_v6)?;
    for (host, veth) in link.hosts.iter().zip(["va", "vb"]) {
        // Without these a capture shows what will be cut later.
        host.sh(&format!(
            "ethtool -K {veth} tso off gso off tx-udp-segmentation off >/dev/null
             ip link set {veth} mtu {outer_mtu}"
        ))?;
    }
    link.start(0)?;
    link.start(1)?;
    link.settle()?;
    let [one, two] = &link.hosts;
    let largest = mtu as usize - 28;
    let seen = sizes(one, "va", || {
        for bytes in (largest - 40..=largest).chain([0, 1, 100, largest / 2]) {
            let size = bytes.to_string();
            let argv = ["ping", "-n", "-M", "do", "-q", "-c", "1", "-W", "1", "-s", &size];
            one.run(&[&argv[..], &[INNER_V4[1]]].concat())?;
        }
        traffic::exact_stream(one, two, INNER_V4[1], 4 << 20)?;
        traffic::exact_stream(two, one, INNER_V4[0], 4 << 20)?;
        traffic::udp(one, two, INNER_V4[1])
    })?;
    let max = seen.iter().max().copied().unwrap_or_default();
    eprintln!("outer MTU {outer_mtu}: {} datagrams, the largest has {max} bytes", seen.len());
    ensure!(max <= outer_mtu as usize, "a datagram of {max} bytes exceeds {outer_mtu}");
    ensure!(max > outer_mtu as usize - 16, "nothing was as large as it may be, only {max}");
    Ok(())
}

#[test]
fn source_004_11_datagrams_never_exceed_the_set_mtu() -> Result<()> {
    for (id, outer_mtu, v6) in [
        ("l576", 576, false),
        ("l800", 800, false),
        ("l1280", 1280, true),
        ("l1401", 1401, false),
        ("l1500", 1500, false),
        ("l1500v", 1500, true),
    ] {
        scene(id, |scene| {
            fits(scene, outer_mtu, v6).with_context(|| format!("outer MTU {outer_mtu}"))
        })?;
    }
    Ok(())
}

#[test]
fn source_004_14_files_are_read_again_without_dropping_the_link() -> Result<()> {
    scene("l14", |scene| {
        let link = Link::up(scene)?;
        let [one, two] = &link.hosts;
        let stream = traffic::Numbered::start(one, two, INNER_V4[1], Duration::from_millis(2))?;
        // New preshared keys, one side after the other; a peer more; then the same once again.
        for round in 0..3 {
            link.psk.replace(preshared_key());
            let peer = KeyPair::new().public_text();
            link.more.borrow_mut()[1] =
                format!("\n[Peer]\nPublicKey = {peer}\nAllowedIPs = 10.70.{round}.0/24\n");
            link.reload(0)?;
            sleep(Duration::from_millis(500));
            link.reload(1)?;
            sleep(Duration::from_millis(500));
        }
        let (sent, lost) = stream.stop()?;
        ensure!(lost.is_empty(), "of {sent} datagrams these were lost: {lost:?}");
        // That the files were read shows when only one side has a new key and must begin anew.
        let alone = || format!("{}\nPresharedKeyOverlap = 0", preshared_key());
        let ours = Sut::under_test().is_warren();
        let new = || if ours { alone() } else { preshared_key() };
        link.psk.replace(new());
        link.reload(0)?;
        link.stop(1)?;
        link.start(1)?;
        eventually("the new key makes a session", seconds(25), || link.ping(1).is_ok())?;
        let old = link.psk.replace(new());
        link.reload(0)?;
        link.psk.replace(old);
        link.stop(1)?;
        link.start(1)?;
        ensure!(link.ping(1).is_err(), "the file was not read: its new key is not used");
        Ok(())
    })
}

#[test]
fn a_file_that_became_wrong_changes_nothing() -> Result<()> {
    if !Sut::under_test().is_warren() {
        eprintln!("skipped: `link up` is a command of our own");
        return Ok(());
    }
    scene("l15", |scene| {
        let link = Link::up(scene)?;
        let path = link.write(0)?;
        std::fs::write(&path, "[Interface]\nPrivateKey = nonsense\n")?;
        let daemon = link.daemon(0)?;
        daemon.process.signal(libc::SIGHUP)?;
        sleep(Duration::from_millis(300));
        ensure!(daemon.process.is_running(), "a wrong file ended it");
        let log = daemon.process.log();
        ensure!(log.contains("PrivateKey"), "it does not say what is wrong:\n{log}");
        link.ping(0)?;
        link.ping(1)
    })
}

/// As a home line's address changes every night, and its name with it.
#[test]
fn a_silent_peers_name_is_looked_up_again_and_followed() -> Result<()> {
    if !Sut::under_test().is_warren() {
        eprintln!("skipped: `link up` is a command of our own");
        return Ok(());
    }
    scene("l24", |scene| {
        let link = Link::new(scene, 1420, false)?;
        let name = "home.dyn.example";
        link.names.replace([None, Some(name.to_owned())]);
        let [one, two] = &link.hosts;
        let point = |to: &str| std::fs::write(one.etc().join("hosts"), format!("{to} {name}\n"));
        point(OUTER_V4[1])?;
        link.start(0)?;
        link.start(1)?;
        link.settle()?;
        link.stop(1)?;
        two.sh("ip addr add 10.9.0.77/24 dev vb; ip addr del 10.9.0.2/24 dev vb")?;
        two.sh("ip addr show dev vb | grep -q 10.9.0.77 || ip addr add 10.9.0.77/24 dev vb")?;
        link.start(1)?;
        ensure!(link.ping(0).is_err(), "the control: it is elsewhere");
        point("10.9.0.77")?;
        let took = eventually("it is found", seconds(60), || link.ping(0).is_ok())?;
        eprintln!("found {took:?} after its name was changed");
        let log = link.daemon(0)?.process.log();
        ensure!(log.contains("10.9.0.77"), "{log}");
        Ok(())
    })
}
