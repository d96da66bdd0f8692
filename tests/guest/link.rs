//! One WireGuard link between the kernel in the guest and a program on the host.

use std::fmt;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use lab::process::Process;

use super::Bench;

/// The host's end of the Ethernet to the guest.
pub(crate) const TAP: &str = "tap0";
/// The guest's end, and its WireGuard interface.
const GUEST_NIC: &str = "eth0";
const GUEST_WG: &str = "wg0";

const HOST_PORT: u16 = 51820;
const GUEST_PORT: u16 = 51821;
const MOVED_PORT: u16 = 51999;

/// Payloads of ping, up to what fills an IPv4 packet of the interface's 1420 bytes.
const PING_SIZES_V4: &str = "56 57 100 511 512 1000 1201 1372 1379 1391 1392";
const PING_SIZES_V6: &str = "56 57 511 1200 1371 1372";

/// Size of the file fetched each way.
const FILE_BYTES: usize = 1 << 20;

/// Addresses of the Ethernet below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outer {
    V4,
    V6,
}

/// Who knows the other's endpoint, and so sends the first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Initiator {
    Guest,
    Host,
    /// Both, at the same time.
    Both,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) outer: Outer,
    pub(crate) preshared: bool,
    pub(crate) initiator: Initiator,
}

/// A configured link; both interfaces go on drop.
pub(crate) struct Link<'a> {
    bench: &'a Bench,
    setup: Setup,
    keys: Keys,
    ifname: String,
    daemon: Process,
}

struct Keys {
    host: KeyPair,
    guest: KeyPair,
    preshared: String,
}

pub(crate) struct KeyPair {
    pub(crate) private: String,
    pub(crate) public: String,
}

impl Outer {
    pub(crate) const BOTH: [Self; 2] = [Self::V4, Self::V6];

    pub(crate) fn host_cidr(self) -> String {
        self.address(1) + self.bits()
    }

    pub(crate) fn guest_cidr(self) -> String {
        self.address(2) + self.bits()
    }

    fn address(self, host: u8) -> String {
        match self {
            Self::V4 => format!("10.70.0.{host}"),
            Self::V6 => format!("fd70::{host}"),
        }
    }

    fn bits(self) -> &'static str {
        match self {
            Self::V4 => "/24",
            Self::V6 => "/64",
        }
    }

    fn endpoint(self, host: u8, port: u16) -> String {
        let address = self.address(host);
        match self {
            Self::V4 => format!("{address}:{port}"),
            Self::V6 => format!("[{address}]:{port}"),
        }
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outer = if self.outer == Outer::V4 { "outer IPv4" } else { "outer IPv6" };
        let preshared = if self.preshared { "PSK" } else { "no PSK" };
        let initiator = match self.initiator {
            Initiator::Guest => "guest initiates",
            Initiator::Host => "host initiates",
            Initiator::Both => "both initiate",
        };
        write!(f, "{outer}, {preshared}, {initiator}")
    }
}

impl Keys {
    fn new() -> Result<Self> {
        let preshared = stdout("wg genpsk")?.trim().to_owned();
        Ok(Self { host: KeyPair::new()?, guest: KeyPair::new()?, preshared })
    }
}

impl KeyPair {
    pub(crate) fn new() -> Result<Self> {
        let text = stdout("k=$(wg genkey); echo $k; echo $k | wg pubkey")?;
        let mut lines = text.lines().map(str::to_owned);
        let private = lines.next().context("no private key")?;
        Ok(Self { private, public: lines.next().context("no public key")? })
    }
}

impl<'a> Link<'a> {
    pub(crate) fn up(bench: &'a Bench, setup: Setup) -> Result<Self> {
        let ifname = format!("wtg{}", bench.implementation.name);
        let mut argv = bench.implementation.command.to_vec();
        argv.push(&ifname);
        let daemon = bench.host.spawn(&argv)?;
        let link = Link { bench, setup, keys: Keys::new()?, ifname: ifname.clone(), daemon };
        link.outer_addresses()?;
        eventually("the interface is there", Duration::from_secs(5), || {
            bench.host.run(&["wg", "show", &ifname]).map(|_| true)
        })
        .with_context(|| format!("{argv:?} said: {}", link.daemon.log().trim()))?;
        link.configure()?;
        bench.host.bring_up(&ifname, &["10.71.0.1/24", "fd71::1/64"])?;
        bench.host.sh(&format!("ip link set {ifname} mtu 1420"))?;
        bench.guest.run(&format!(
            "ip address add 10.71.0.2/24 dev {GUEST_WG}; \
             ip address add fd71::2/64 dev {GUEST_WG} nodad; ip link set {GUEST_WG} up"
        ))?;
        Ok(link)
    }

    /// The first packet, from the initiator, makes the session.
    pub(crate) fn first_contact(&self) -> Result<()> {
        match self.setup.initiator {
            Initiator::Guest => self.guest_pings().and_then(|()| self.host_pings()),
            Initiator::Host => self.host_pings().and_then(|()| self.guest_pings()),
            Initiator::Both => std::thread::scope(|scope| {
                let host = scope.spawn(|| self.host_pings());
                let guest = self.guest_pings();
                host.join().expect("pinging does not panic").and(guest)
            }),
        }
    }

    pub(crate) fn guest_pings(&self) -> Result<()> {
        self.bench.guest.run("ping -n -q -c 1 -W 4 10.71.0.1").map(drop)
    }

    pub(crate) fn host_pings(&self) -> Result<()> {
        self.bench.host.sh("ping -n -q -c 1 -W 4 10.71.0.2").map(drop)
    }

    pub(crate) fn ping_all_sizes(&self) -> Result<()> {
        let script = |last: u8| {
            format!(
                "for size in {PING_SIZES_V4}; do
                     ping -n -q -c 1 -W 2 -M do -s $size 10.71.0.{last} || exit 1
                 done
                 for size in {PING_SIZES_V6}; do
                     ping -n -q -c 1 -W 2 -M do -s $size fd71::{last} || exit 1
                 done"
            )
        };
        self.bench.guest.run(&script(1)).context("from the guest")?;
        self.bench.host.sh(&script(2)).context("from the host").map(drop)
    }

    /// Seconds since 1970 of the last handshake, as host and guest tell.
    pub(crate) fn handshake_times(&self) -> Result<(u64, u64)> {
        let host = self.on_host("latest-handshakes")?;
        let guest = self.in_guest("latest-handshakes")?;
        Ok((number(&host, 1)?, number(&guest, 1)?))
    }

    pub(crate) fn handshake_is_fresh(&self) -> Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let (host, guest) = self.handshake_times()?;
        for (side, time) in [("host", host), ("guest", guest)] {
            ensure!(now.abs_diff(time) < 60, "the {side} says {time}, now is {now}");
        }
        Ok(())
    }

    pub(crate) fn eventually_fresh(&self, limit: Duration) -> Result<()> {
        eventually("a handshake", limit, || self.handshake_is_fresh().map(|()| true))
    }

    /// What one side has sent is what the other has received: nothing else ran meanwhile, and
    /// handshake messages count on both.
    pub(crate) fn counters_agree(&self) -> Result<()> {
        eventually("equal counters", Duration::from_secs(3), || {
            let (host, guest) = (self.on_host("transfer")?, self.in_guest("transfer")?);
            let (host_rx, host_tx) = (number(&host, 1)?, number(&host, 2)?);
            let (guest_rx, guest_tx) = (number(&guest, 1)?, number(&guest, 2)?);
            ensure!(host_rx > 0 && host_tx > 0, "the host counts nothing");
            ensure!(
                host_rx == guest_tx && host_tx == guest_rx,
                "host received {host_rx} of {guest_tx}, guest {guest_rx} of {host_tx}"
            );
            Ok(true)
        })
    }

    /// Random bytes over TCP each way, by a web server in the guest; checksums tell.
    pub(crate) fn fetch_both_ways(&self) -> Result<()> {
        let address = if self.setup.outer == Outer::V4 { "10.71.0.2" } else { "[fd71::2]" };
        let served = self.bench.guest.run(&format!(
            "mkdir -p /tmp/www/cgi-bin; cd /tmp/www
             head -c {FILE_BYTES} /dev/urandom > file
             printf '#!/usr/bin/sh\\necho; head -c $CONTENT_LENGTH | sha256sum' > cgi-bin/sum
             chmod +x cgi-bin/sum
             pidof httpd > /dev/null || httpd -p 80
             sha256sum < file"
        ))?;
        let curl = "curl --silent --show-error --fail --max-time 20";
        let got = self
            .bench
            .host
            .sh(&format!("{curl} http://{address}/file | sha256sum"))
            .context("fetching from the guest")?;
        ensure!(got == served, "guest to host: {served} became {got}");
        let directory = tempdir(&self.ifname)?;
        let path = format!("{}/file", directory.0);
        let sent = self
            .bench
            .host
            .sh(&format!("head -c {FILE_BYTES} /dev/urandom | tee {path} | sha256sum"))?;
        let post = format!("{curl} --data-binary @{path} http://{address}/cgi-bin/sum");
        let got = self.bench.host.sh(&post).context("sending to the guest")?;
        ensure!(got == sent, "host to guest: {sent} became {got}");
        Ok(())
    }

    /// Gives the host another address and port; returns the endpoint the guest is to learn.
    pub(crate) fn move_host(&self) -> Result<String> {
        let outer = self.setup.outer;
        let (old, new) = (outer.host_cidr(), outer.address(11) + outer.bits());
        // In this order, because a second IPv4 address goes with the first of its subnet.
        self.bench.host.ip_batch(&format!("address delete {old} dev {TAP}\n"))?;
        self.bench.host.bring_up(TAP, &[&new])?;
        self.bench.host.sh(&format!("wg set {} listen-port {MOVED_PORT}", self.ifname))?;
        Ok(outer.endpoint(11, MOVED_PORT))
    }

    /// Gives the guest another address and port; returns the endpoint the host is to learn.
    pub(crate) fn move_guest(&self) -> Result<String> {
        let outer = self.setup.outer;
        let (old, new) = (outer.guest_cidr(), outer.address(12) + outer.bits());
        let nodad = if outer == Outer::V6 { "nodad" } else { "" };
        self.bench.guest.run(&format!(
            "ip address delete {old} dev {GUEST_NIC}
             ip address add {new} dev {GUEST_NIC} {nodad}
             wg set {GUEST_WG} listen-port {MOVED_PORT}"
        ))?;
        Ok(outer.endpoint(12, MOVED_PORT))
    }

    pub(crate) fn endpoint_in_guest(&self) -> Result<String> {
        self.in_guest("endpoints").map(|line| word(&line, 1).to_owned())
    }

    pub(crate) fn endpoint_on_host(&self) -> Result<String> {
        self.on_host("endpoints").map(|line| word(&line, 1).to_owned())
    }

    pub(crate) fn replace_keys(&mut self) -> Result<()> {
        self.keys = Keys::new()?;
        self.configure()
    }

    pub(crate) fn guest_forgets(&self) -> Result<()> {
        let key = &self.keys.host.public;
        let conf = self.guest_conf();
        self.bench.guest.run(&format!(
            "wg set {GUEST_WG} peer {key} remove
             cat > /run/conf <<END\n{conf}END
             wg setconf {GUEST_WG} /run/conf"
        ))?;
        Ok(())
    }

    pub(crate) fn host_forgets(&self) -> Result<()> {
        let (key, ifname) = (&self.keys.guest.public, &self.ifname);
        let outer = self.setup.outer;
        // The host did not know the guest's endpoint from its own configuration.
        let conf = self.host_conf(Some(outer.endpoint(2, GUEST_PORT)));
        self.bench.host.sh(&format!(
            "wg set {ifname} peer {key} remove\nwg setconf {ifname} /dev/stdin <<END\n{conf}END"
        ))?;
        Ok(())
    }

    /// Whether a packet from an address that the host does not allow got no answer.
    pub(crate) fn guest_pings_from_foreign_address(&self) -> Result<bool> {
        self.bench.guest.run(&format!("ip address add 10.71.9.9/32 dev {GUEST_WG}"))?;
        self.bench.host.ip_batch(&format!("route add 10.71.9.9 dev {}\n", self.ifname))?;
        let limit = Duration::from_secs(5);
        let ping = "ping -n -q -c 2 -i 0.2 -W 1 -I 10.71.9.9 10.71.0.1";
        Ok(self.bench.guest.output(ping, limit)?.status == 1)
    }

    pub(crate) fn spoil_preshared_key(&self) -> Result<()> {
        let key = &self.keys.host.public;
        self.bench.guest.run(&format!(
            "wg genpsk > /run/psk; wg set {GUEST_WG} peer {key} preshared-key /run/psk"
        ))?;
        Ok(())
    }

    /// True when all the host sent are responses to initiations, 92 bytes each.
    pub(crate) fn host_counts_nothing_sent_but_responses(&self) -> Result<bool> {
        Ok(number(&self.on_host("transfer")?, 2)? % 92 == 0)
    }

    pub(crate) fn host_keeps_alive(&self) -> Result<()> {
        let (key, ifname) = (&self.keys.guest.public, &self.ifname);
        self.bench.host.sh(&format!("wg set {ifname} peer {key} persistent-keepalive 1")).map(drop)
    }

    /// One ping each 0.5 s from each side; none may be lost.
    pub(crate) fn ping_for(&self, duration: Duration) -> Result<()> {
        let count = duration.as_secs() * 2;
        let ping = |last: u8| format!("ping -n -q -i 0.5 -c {count} -W 2 10.71.0.{last}");
        let limit = duration + Duration::from_secs(20);
        let (host, guest) = std::thread::scope(|scope| {
            let host = scope.spawn(|| self.bench.host.sh(&ping(2)));
            let guest = self.bench.guest.output(&ping(1), limit);
            (host.join().expect("pinging does not panic"), guest)
        });
        let guest = String::from_utf8(guest?.stdout)?;
        for (side, said) in [("host", host?), ("guest", guest)] {
            ensure!(said.contains(" 0% packet loss"), "the {side} lost packets: {said}");
        }
        Ok(())
    }

    /// The addresses of the Ethernet as they are at the start, whatever the last case did.
    fn outer_addresses(&self) -> Result<()> {
        self.bench.host.sh(&format!("ip address flush dev {TAP} scope global"))?;
        let both = Outer::BOTH.map(Outer::host_cidr);
        self.bench.host.bring_up(TAP, &[&both[0], &both[1]])?;
        let [v4, v6] = Outer::BOTH.map(Outer::guest_cidr);
        self.bench.guest.run(&format!(
            "ip address flush dev {GUEST_NIC} scope global
             ip address add {v4} dev {GUEST_NIC}; ip address add {v6} dev {GUEST_NIC} nodad
             ip link add {GUEST_WG} type wireguard"
        ))?;
        Ok(())
    }

    /// Sets both sides, first the one that waits, so that no message meets a deaf peer.
    fn configure(&self) -> Result<()> {
        let (outer, initiator) = (self.setup.outer, self.setup.initiator);
        let known = initiator != Initiator::Guest;
        let host_conf = self.host_conf(known.then(|| outer.endpoint(2, GUEST_PORT)));
        let ifname = &self.ifname;
        self.bench.host.sh(&format!("wg setconf {ifname} /dev/stdin <<END\n{host_conf}END"))?;
        let guest_conf = self.guest_conf();
        self.bench.guest.run(&format!(
            "cat > /run/conf <<END\n{guest_conf}END\nwg setconf {GUEST_WG} /run/conf"
        ))?;
        Ok(())
    }

    fn host_conf(&self, guest_endpoint: Option<String>) -> String {
        let (own, other) = (&self.keys.host, &self.keys.guest);
        self.conf(HOST_PORT, own, other, "10.71.0.2/32, fd71::2/128", guest_endpoint)
    }

    fn guest_conf(&self) -> String {
        let known = self.setup.initiator != Initiator::Host;
        let endpoint = known.then(|| self.setup.outer.endpoint(1, HOST_PORT));
        let (own, other) = (&self.keys.guest, &self.keys.host);
        self.conf(GUEST_PORT, own, other, "10.71.0.1/32, fd71::1/128", endpoint)
    }

    fn conf(
        &self,
        port: u16,
        own: &KeyPair,
        other: &KeyPair,
        allowed: &str,
        endpoint: Option<String>,
    ) -> String {
        let mut text = format!(
            "[Interface]\nPrivateKey = {}\nListenPort = {port}\n[Peer]\nPublicKey = {}\n\
             AllowedIPs = {allowed}\n",
            own.private, other.public
        );
        if self.setup.preshared {
            text += &format!("PresharedKey = {}\n", self.keys.preshared);
        }
        if let Some(endpoint) = endpoint {
            text += &format!("Endpoint = {endpoint}\n");
        }
        text
    }

    fn on_host(&self, what: &str) -> Result<String> {
        self.bench.host.run(&["wg", "show", &self.ifname, what])
    }

    fn in_guest(&self, what: &str) -> Result<String> {
        self.bench.guest.run(&format!("wg show {GUEST_WG} {what}"))
    }
}

impl Drop for Link<'_> {
    fn drop(&mut self) {
        // The next link says so when this one is still there.
        let _ = self.bench.guest.run(&format!("ip link delete {GUEST_WG}"));
    }
}

/// A directory for one case, removed on drop.
pub(crate) struct Directory(pub(crate) String);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn tempdir(name: &str) -> Result<Directory> {
    let path = std::env::temp_dir().join(format!("warren-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&path)?;
    Ok(Directory(path.display().to_string()))
}

fn stdout(script: &str) -> Result<String> {
    let output = Command::new("sh").args(["-ec", script]).output()?;
    ensure!(output.status.success(), "`{script}` failed");
    Ok(String::from_utf8(output.stdout)?)
}

/// Tries until it is true; after `limit` the last error is the answer.
pub(crate) fn eventually(
    what: &str,
    limit: Duration,
    check: impl Fn() -> Result<bool>,
) -> Result<()> {
    let start = Instant::now();
    loop {
        match check() {
            Ok(true) => return Ok(()),
            Ok(false) if start.elapsed() > limit => anyhow::bail!("not within {limit:?}: {what}"),
            Err(error) if start.elapsed() > limit => {
                return Err(error.context(format!("not within {limit:?}: {what}")));
            }
            _ => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

fn word(line: &str, index: usize) -> &str {
    line.split_whitespace().nth(index).unwrap_or_default()
}

fn number(line: &str, index: usize) -> Result<u64> {
    word(line, index).parse().with_context(|| format!("`{line}` has no number {index}"))
}
