//! Source 004's two recipes over links of two config files, with nothing but the filters that its
//! text has: a protocol of its own between two sites, and a site that may only ping.

use std::collections::BTreeMap;
use std::rc::Rc;

use lab::process::Process;

use crate::support::capture::Capture;
use crate::support::traffic::{Pinger, exact_stream};
use crate::support::{
    Context as _, Host, KeyPair, Result, Scene, Sut, ensure, eventually, scene, seconds,
};

const WARREN: &str = env!("CARGO_BIN_EXE_warren");
/// The addresses inside the link.
const INNER: [&str; 2] = ["10.77.0.1", "10.77.0.2"];

/// Two sites, and a router between them that lets through what a test says.
struct Sites {
    /// Inside, 192.168.0.2, and outside, 198.51.100.2.
    ends: [Host; 2],
    router: Host,
    keys: [KeyPair; 2],
}

impl Sites {
    fn new(scene: &Scene) -> Result<Self> {
        let ends = [scene.host("in")?, scene.host("ext")?];
        let router = scene.host("fw")?;
        scene.veth(
            (&ends[0], "va", &["192.168.0.2/24", "fd01::2/64"]),
            (&router, "vi", &["192.168.0.1/24", "fd01::1/64"]),
        )?;
        scene.veth(
            (&ends[1], "va", &["198.51.100.2/24", "fd02::2/64"]),
            (&router, "vo", &["198.51.100.1/24", "fd02::1/64"]),
        )?;
        for (end, by) in ends.iter().zip([["192.168.0.1", "fd01::1"], ["198.51.100.1", "fd02::1"]])
        {
            let [v4, v6] = by;
            end.sh(&format!("ip route add default via {v4}; ip route add default via {v6}"))?;
        }
        router.sh("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")?;
        Ok(Self { ends, router, keys: [KeyPair::new(), KeyPair::new()] })
    }

    /// Brings one side's link up: its file has these lines in its two sections.
    fn link(&self, scene: &Scene, side: usize, own: &str, peer: &str) -> Result<Rc<Process>> {
        use std::os::unix::fs::PermissionsExt as _;
        let name = scene.ifname(["a", "b"][side]);
        let path = scene.net.borrow().dir().join(format!("{name}.conf"));
        let text = format!(
            "[Interface]\nPrivateKey = {}\nAddress = {}/24\n{own}\n\
             [Peer]\nPublicKey = {}\nAllowedIPs = {}/32\n{peer}\n",
            self.keys[side].private_text(),
            INNER[side],
            self.keys[1 - side].public_text(),
            INNER[1 - side],
        );
        std::fs::write(&path, text)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        let link = self.ends[side].spawn(&[WARREN, "link", "up", &path.to_string_lossy()])?;
        link.wait_for(|log| log.contains("is up")).with_context(|| link.log())?;
        Ok(Rc::new(link))
    }

    fn reach(&self, side: usize) -> Result<()> {
        let ping = ["ping", "-n", "-c", "1", "-W", "1", INNER[1 - side]];
        eventually("a ping through the link", seconds(30), || self.ends[side].run(&ping).is_ok())
            .map(drop)
    }

    fn carrier(&self, scene: &Scene, side: usize) -> Result<String> {
        let name = scene.ifname(["a", "b"][side]);
        let told = self.ends[side].run(&[WARREN, "link", "status", "--json", &name])?;
        let told: serde_json::Value = serde_json::from_str(&told)?;
        Ok(told["links"][0]["peers"][0]["carrier"].as_str().unwrap_or_default().to_owned())
    }
}

fn applies() -> bool {
    let ours = Sut::under_test().is_warren();
    if !ours {
        eprintln!("skipped: `link up` is a command of our own");
    }
    ours
}

#[test]
fn source_004_3_16_recipe_one_passes_where_only_protocol_99_does() -> Result<()> {
    if !applies() {
        return Ok(());
    }
    scene("c1", |scene| {
        let sites = Sites::new(scene)?;
        sites.router.sh("nft 'add table inet f; \
             add chain inet f passing { type filter hook forward priority 0; policy drop; }; \
             add rule inet f passing meta l4proto 99 accept'")?;
        for (family, at) in [("4", ["192.168.0.2", "198.51.100.2"]), ("6", ["fd01::2", "fd02::2"])]
        {
            let links: Result<Vec<_>> = (0..2)
                .map(|side| {
                    let peer = format!("Carrier = ip:99\nEndpoint = {}", at[1 - side]);
                    sites.link(scene, side, "ListenIp = 99\nOuterMtu = 1400", &peer)
                })
                .collect();
            let links = links?;
            let capture = Capture::start(&sites.router, "vo")?;
            sites.reach(0)?;
            sites.reach(1)?;
            let [a, b] = &sites.ends;
            exact_stream(a, b, INNER[1], 4 << 20)?;
            exact_stream(b, a, INNER[0], 4 << 20)?;
            ensure!(sites.carrier(scene, 0)? == "ip:99", "{}", sites.carrier(scene, 0)?);
            let packets = capture.stop()?;
            let protocol = |packet: &[u8]| if packet[0] >> 4 == 4 { packet[9] } else { packet[6] };
            let ours: Vec<_> = packets.iter().filter(|packet| protocol(packet) == 99).collect();
            let longest = ours.iter().map(|packet| packet.len()).max().unwrap_or(0);
            ensure!(ours.len() > 5_000, "IPv{family}: {} packets of protocol 99", ours.len());
            ensure!((1_300..=1_400).contains(&longest), "IPv{family}: {longest} bytes at most");
            for link in &links {
                link.stop()?;
            }
        }
        Ok(())
    })
}

/// Lets echo requests out, 200 in a second, and one reply in for each within 10 s, with identifiers
/// translated; drops everything else, and counts replies that answer nothing.
const PING_ONLY: &str = "
sysctl -qw net.netfilter.nf_conntrack_icmp_timeout=10
nft -f - <<'END'
table ip f {
    set asked {
        typeof ip daddr . icmp id . icmp sequence
        flags dynamic,timeout
        timeout 10s
        size 65535
    }
    counter unasked { }
    chain passing {
        type filter hook forward priority 0; policy drop;
        iifname vi icmp type echo-request ct state new,established limit rate 200/second \\
            burst 200 packets add @asked { ip daddr . icmp id . icmp sequence } accept
        iifname vo icmp type echo-reply ip saddr . icmp id . icmp sequence @asked \\
            delete @asked { ip saddr . icmp id . icmp sequence } accept
        iifname vo counter name unasked
    }
    chain post {
        type nat hook postrouting priority 100;
        oifname vo masquerade fully-random
    }
}
END";

/// Each reply answers one request that came before, less than 10 s ago, and no other reply does.
fn pairs(packets: &[Vec<u8>]) -> Result<(usize, usize)> {
    let mut open: BTreeMap<(u16, u16), u32> = BTreeMap::new();
    let (mut requests, mut replies) = (0, 0);
    for packet in packets.iter().filter(|packet| packet.len() >= 28 && packet[9] == 1) {
        let word = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
        let pair = (word(24), word(26));
        match packet[20] {
            8 => {
                requests += 1;
                *open.entry(pair).or_default() += 1;
            }
            0 => {
                replies += 1;
                let count = open.get_mut(&pair).filter(|count| **count > 0);
                *count.with_context(|| format!("reply {pair:?} answers nothing"))? -= 1;
            }
            other => anyhow::bail!("a message of ICMP of type {other}"),
        }
    }
    Ok((requests, replies))
}

#[test]
fn source_004_4_5_7_16_recipe_two_passes_where_only_pings_do() -> Result<()> {
    if !applies() {
        return Ok(());
    }
    scene("c2", |scene| {
        let sites = Sites::new(scene)?;
        sites.router.sh(PING_ONLY)?;
        let [inside, outside] = &sites.ends;
        let answers = sites.link(scene, 1, "ListenIcmp = 198.51.100.2", "")?;
        let capture = Capture::start(outside, "va")?;
        let asks = sites.link(
            scene,
            0,
            "",
            "Carrier = icmp\nEndpoint = 198.51.100.2\nIcmpPollMs = 500",
        )?;
        // Everybody else's pings go on being answered: by the kernel, to their own address.
        let others = Pinger::start(&sites.router, "198.51.100.2", 10)?;
        sites.reach(1)?;
        sites.reach(0)?;
        let up = exact_stream(inside, outside, INNER[1], 1 << 20)?;
        let down = exact_stream(outside, inside, INNER[0], 1 << 20)?;
        eprintln!("1 MiB by 200 pings a second: {up:?} with requests, {down:?} with replies");
        let others = others.stop()?;
        ensure!(others.lost() == 0 && others.sent > 10, "ordinary pings: {others:?}");
        ensure!(sites.carrier(scene, 0)? == "icmp" && sites.carrier(scene, 1)? == "icmp", "");
        let (requests, replies) = pairs(&capture.stop()?)?;
        ensure!(replies > 400 && requests >= replies, "{requests} requests, {replies} replies");
        let unasked = sites.router.sh("nft list counter ip f unasked")?;
        ensure!(unasked.contains("packets 0 "), "replies that answer nothing: {unasked}");
        // The link stays, with nothing to carry, past what the filter remembers.
        std::thread::sleep(seconds(11));
        outside.run(&["ping", "-n", "-c", "1", "-W", "2", INNER[0]])?;
        // What a killed one leaves is found: by the next start, and by `warren cleanup`.
        answers.signal(libc::SIGKILL)?;
        answers.wait(seconds(5))?;
        let tables = || outside.run(&["nft", "list", "tables"]);
        ensure!(tables()?.contains("warren_icmp"), "{}", tables()?);
        outside.run(&["ping", "-n", "-c", "1", "-W", "1", "198.51.100.1"])?;
        outside.run(&[WARREN, "cleanup"])?;
        ensure!(!tables()?.contains("warren_icmp"), "{}", tables()?);
        let again = sites.link(scene, 1, "ListenIcmp = 198.51.100.2", "")?;
        sites.reach(0)?;
        again.stop()?;
        ensure!(!tables()?.contains("warren_icmp"), "{}", tables()?);
        asks.stop()?;
        Ok(())
    })
}
