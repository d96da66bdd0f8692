//! A thief has the private key of one gateway. He can be that gateway, and nobody else.

use lab::process::Process;

use crate::proofs::{lost_percent, status};
use crate::ssh::{SITES, World, sshd};
use crate::support::capture::Capture;
use crate::support::*;

const PARIS: usize = 0;
const LYON: usize = 1;
const NICE: usize = 2;

/// A machine in the network outside, with one interface of wireguard-go for each other gateway.
struct Thief<'w> {
    world: &'w World,
    host: Host,
    programs: [Process; 2],
}

impl<'w> Thief<'w> {
    fn new(scene: &Scene, world: &'w World) -> Result<Self> {
        let host = scene.host("thief")?;
        scene.veth((&world.server, "p66", &[]), (&host, "wan0", &["198.51.100.66/24"]))?;
        world.server.sh("ip link set p66 master br0")?;
        let program = Sut::wireguard_go().context("install the package wireguard-go")?;
        let start = |to: usize| host.spawn_command(program.command(&host, &format!("t{to}")));
        let programs = [start(PARIS)?, start(LYON)?];
        for to in [PARIS, LYON] {
            let made = || host.sh(&format!("wg show t{to}")).is_ok();
            eventually("wireguard-go serves", seconds(5), made)?;
            host.bring_up(&format!("t{to}"), &[])?;
        }
        Ok(Self { world, host, programs })
    }

    /// Speaks to `to` with the key of `whose`, as it lies on that gateway's disk.
    fn use_key(&self, whose: usize, to: usize) -> Result<()> {
        let kept = self.world.gateways[whose].sh("cat /run/warren-state/node.json")?;
        let kept: serde_json::Value = serde_json::from_str(&kept)?;
        let told = status(self.world, to)?;
        let (key, peer) = (kept["node"].as_str(), told["self"]["key"].as_str());
        let config = format!(
            "[Interface]\nPrivateKey={}\n[Peer]\nPublicKey={}\nEndpoint=198.51.100.{}:{}\n\
             AllowedIPs=0.0.0.0/0\nPersistentKeepalive=1\n",
            key.context("a private key")?,
            peer.context("a public key")?,
            to + 1,
            told["port"]
        );
        let path = self.world.path("thief.conf");
        std::fs::write(&path, config)?;
        self.host.sh(&format!("wg setconf t{to} {}", path.display()))?;
        let shaken = || {
            let told = self.host.sh(&format!("wg show t{to} latest-handshakes"));
            told.is_ok_and(|line| line.split_whitespace().last().is_some_and(|at| at != "0"))
        };
        let what = format!("{} shakes hands with the key of {}", SITES[to], SITES[whose]);
        eventually(&what, seconds(20), shaken).map(drop)
    }

    /// How many echoes from the address `from` reach the machine behind the gateway `to`.
    fn arrived(&self, from: &str, to: usize) -> Result<usize> {
        let app = &self.world.apps[to];
        app.sh(&format!(
            "nft add table inet came
             nft 'add chain inet came in {{ type filter hook prerouting priority -300; }}'
             nft add rule inet came in ip saddr {from} icmp type echo-request counter"
        ))?;
        self.host.sh(&format!(
            "ip addr add {from}/32 dev t{to}
             ip route add 10.4.{to}.0/24 dev t{to}
             ping -q -c 5 -i 0.1 -W 1 -I {from} 10.4.{to}.1 || true
             ip addr del {from}/32 dev t{to}"
        ))?;
        let told = app.sh("nft list table inet came; nft delete table inet came")?;
        let count = told.split("counter packets ").nth(1).and_then(|rest| rest.split(' ').next());
        Ok(count.context(told.clone())?.parse()?)
    }

    /// Sooner or later: the gateway whose key he has shakes hands as well.
    fn reaches(&self, from: &str, to: usize) -> Result<()> {
        let reaches = || self.arrived(from, to).is_ok_and(|came| came > 0);
        eventually(&format!("{from} reaches {}", SITES[to]), seconds(30), reaches).map(drop)
    }
}

/// How many of these packets are from `from` and for `to`.
fn count(packets: &[Vec<u8>], from: &str, to: &str) -> Result<usize> {
    let octets = |text: &str| text.parse::<std::net::Ipv4Addr>().map(|address| address.octets());
    let both = [octets(from)?, octets(to)?].concat();
    let is_it = |packet: &&Vec<u8>| packet[0] >> 4 == 4 && packet.get(12..20) == Some(&both[..]);
    Ok(packets.iter().filter(is_it).count())
}

/// Two addresses that only this gateway answers for: one of its site, and its own.
fn addresses(world: &World, of: usize) -> Result<[String; 2]> {
    let told = status(world, of)?;
    let own = told["self"]["addresses"][0].as_str().context("an address")?;
    Ok([format!("10.4.{of}.77"), own.to_owned()])
}

/// With the key of nice he is nice toward `to`, and is not `other`.
fn is_only_nice(thief: &Thief<'_>, to: usize, other: usize) -> Result<()> {
    thief.use_key(NICE, to)?;
    let refused = || -> Result<u64> {
        Ok(status(thief.world, to)?["drops"]["source-not-allowed"].as_u64().unwrap_or(0))
    };
    for from in addresses(thief.world, NICE)? {
        thief.reaches(&from, to).context("the control, with the key of nice")?;
    }
    for from in addresses(thief.world, other)? {
        let before = refused()?;
        let came = thief.arrived(&from, to)?;
        ensure!(came == 0, "{came} from {from} reach {}", SITES[to]);
        let more = refused()? - before;
        ensure!(more > 0, "{} counts {more} from {from}", SITES[to]);
    }
    Ok(())
}

/// He takes the place of paris, where lyon looks for it, with the key of `whose`. Returns how many
/// handshakes came that are for another key than his, and how many echoes for paris he can read.
fn in_the_place_of_paris(thief: &Thief<'_>, whose: usize) -> Result<(usize, usize)> {
    thief.use_key(whose, LYON)?;
    let port = &status(thief.world, PARIS)?["port"];
    thief.host.sh(&format!("wg set t{LYON} listen-port {port}"))?;
    let foreign = || thief.programs[LYON].log().matches("invalid mac1").count();
    let before = foreign();
    let inside = Capture::start(&thief.host, &format!("t{LYON}"))?;
    thief.world.apps[LYON].sh("ping -q -i 0.2 -w 30 10.4.0.1 || true")?;
    let read = count(&inside.stop()?, "10.4.1.1", "10.4.0.1")?;
    let foreign = foreign() - before;
    eprintln!("source_001_8: key of {}: {foreign} refused, {read} read", SITES[whose]);
    Ok((foreign, read))
}

#[test]
fn si_12_source_001_8_a_stolen_key_of_one_gateway_opens_no_other_link() -> Result<()> {
    let Some(sshd) = sshd() else { return Ok(()) };
    scene("sites52", |scene| {
        let world = World::new(scene, "sites52", &sshd)?;
        world.sites(&["apply", "--yes"])?;
        eventually("joined", seconds(20), || world.reaches(0, 1) && world.reaches(2, 0))?;
        let thief = Thief::new(scene, &world)?;

        // Beside all that he does, paris and lyon go on, and he sees nothing of it.
        let captures = ["wan0", "t0", "t1"].map(|ifname| Capture::start(&thief.host, ifname));
        let ping = world.apps[PARIS].spawn(&["ping", "-q", "-i", "0.05", "10.4.1.1"])?;
        is_only_nice(&thief, PARIS, LYON)?;
        is_only_nice(&thief, LYON, PARIS)?;
        ping.signal(libc::SIGINT)?;
        let lost = lost_percent(&ping)?;
        eprintln!("source_001_8: {}", ping.log());
        ensure!(lost < 1.0, "{}", ping.log());
        for capture in captures {
            let packets = capture?.stop()?;
            ensure!(!packets.is_empty(), "the control: his own are there");
            for ends in [["10.4.0.1", "10.4.1.1"], ["198.51.100.1", "198.51.100.2"]] {
                let [one, other] = ends;
                let both = count(&packets, one, other)? + count(&packets, other, one)?;
                ensure!(both == 0, "he sees {both} packets between {one} and {other}");
            }
        }

        // The control: with the key of lyon he is lyon, by the same means.
        thief.use_key(LYON, PARIS)?;
        for from in addresses(&world, LYON)? {
            thief.reaches(&from, PARIS).context("with the key of lyon")?;
        }

        // Paris is away, and he is where it was.
        world.gateways[PARIS].sh("ip link set wan0 down")?;
        thief.host.sh("ip addr flush dev wan0; ip addr add 198.51.100.1/24 dev wan0")?;
        thief.host.sh("ip link set t0 down; ip neigh flush dev wan0; ping -c 1 198.51.100.2")?;
        let (foreign, read) = in_the_place_of_paris(&thief, NICE)?;
        ensure!(foreign > 0 && read == 0, "{foreign} handshakes for paris, {read} packets read");
        let (_, read) = in_the_place_of_paris(&thief, PARIS)?;
        ensure!(read > 0, "the control: with the key of paris he reads nothing");
        Ok(())
    })
}
