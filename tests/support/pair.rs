//! Two nodes and the network between them: the fixture of most tests.
//!
//! Their interfaces are made in the host `outer` and moved to `one` and `two`; the sockets stay
//! behind, so datagrams go over the loopback of `outer` and no test's port meets another's.
//! Or ([`Outer::Veth`]) each daemon runs where its interface is, and a veth joins the two.

use std::rc::Rc;

use anyhow::{Result, bail, ensure};
use lab::netns::Host;

use super::{Daemon, KeyPair, Scene, Sut, eventually, preshared_key, seconds};

/// What datagrams between the two travel over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outer {
    /// The loopback of a third host.
    Loopback,
    /// A veth, 10.9.0.1 and .2, fd09::1 and ::2, named `va` in `one` and `vb` in `two`.
    Veth,
    /// An impaired wire, such words of the lab each way, with the veth's names and addresses.
    Wire(&'static str),
}

/// How a pair is to be made.
pub struct Plan {
    pub suts: [Sut; 2],
    pub outer: Outer,
    pub preshared: bool,
    /// Whether endpoints are set, and then IPv4.
    pub endpoints: [bool; 2],
}

impl Default for Plan {
    fn default() -> Self {
        let suts = [Sut::under_test(), Sut::under_test()];
        Self { suts, outer: Outer::Loopback, preshared: true, endpoints: [true, true] }
    }
}

/// One of the two.
pub struct Node {
    pub host: Host,
    pub daemon: Rc<Daemon>,
    pub keys: KeyPair,
    pub port: u16,
    /// Inner addresses, without a mask.
    pub v4: &'static str,
    pub v6: &'static str,
    /// Outer addresses, without a mask.
    pub outer_v4: &'static str,
    pub outer_v6: &'static str,
}

pub struct Pair {
    pub one: Node,
    pub two: Node,
    /// Where the sockets are, if not beside the interfaces.
    pub outer: Host,
    pub psk: Option<String>,
}

/// Inner addresses of the two.
pub const INNER_V4: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
pub const INNER_V6: [&str; 2] = ["fd77::1", "fd77::2"];

impl Pair {
    /// A pair of the program under test over loopback.
    pub fn new(scene: &Scene) -> Result<Self> {
        Self::with(scene, Plan::default())
    }

    /// A pair of the program under test over a veth.
    pub fn over_veth(scene: &Scene) -> Result<Self> {
        Self::with(scene, Plan { outer: Outer::Veth, ..Plan::default() })
    }

    /// A pair as planned, with interfaces up and listening, and no handshake made yet.
    pub fn with(scene: &Scene, plan: Plan) -> Result<Self> {
        let [host_one, host_two] = [scene.host("one")?, scene.host("two")?];
        let outer = match plan.outer {
            Outer::Loopback => scene.host("outer")?,
            Outer::Veth | Outer::Wire(_) => {
                let one = ["10.9.0.1/24", "fd09::1/64"];
                let two = ["10.9.0.2/24", "fd09::2/64"];
                let ends = [(&host_one, "va", &one[..]), (&host_two, "vb", &two[..])];
                match plan.outer {
                    Outer::Wire(profile) => scene.wire(ends, profile)?,
                    _ => scene.veth(ends[0], ends[1])?,
                }
                host_one.clone()
            }
        };
        let [sut_one, sut_two] = &plan.suts;
        let one = node(scene, sut_one, host_one, &outer, 0, plan.outer)?;
        let home = if plan.outer != Outer::Loopback { host_two.clone() } else { outer.clone() };
        let two = node(scene, sut_two, host_two, &home, 1, plan.outer)?;
        let psk = plan.preshared.then(preshared_key);
        let pair = Self { one, two, outer, psk };
        pair.configure(plan.endpoints)?;
        Ok(pair)
    }

    fn configure(&self, endpoints: [bool; 2]) -> Result<()> {
        for (me, peer, endpoint) in
            [(&self.one, &self.two, endpoints[0]), (&self.two, &self.one, endpoints[1])]
        {
            let endpoint = endpoint.then(|| peer.endpoint_v4());
            me.set_up(peer, self.psk.as_deref(), endpoint.as_deref())?;
        }
        self.one.daemon.wait_bound(self.one.port)?;
        self.two.daemon.wait_bound(self.two.port)
    }

    /// Has both send to each other's IPv6 address from now on.
    pub fn use_ipv6(&self) -> Result<()> {
        self.one.point_at(&self.two, &self.two.endpoint_v6())?;
        self.two.point_at(&self.one, &self.one.endpoint_v6())
    }

    /// Sets the MTU of both interfaces.
    pub fn set_mtu(&self, mtu: u32) -> Result<()> {
        for node in [&self.one, &self.two] {
            node.set_mtu(mtu)?;
        }
        Ok(())
    }

    /// Pings until one answer comes.
    pub fn settle(&self) -> Result<()> {
        let reached = || self.one.ping_once(self.two.v4).is_ok();
        eventually("a ping through the pair is answered", seconds(12), reached).map(drop)
    }

    /// The two, this one first if `forward`.
    pub fn ends(&self, forward: bool) -> (&Node, &Node) {
        if forward { (&self.one, &self.two) } else { (&self.two, &self.one) }
    }
}

impl Node {
    /// Configures the daemon and its interface.
    pub fn set_up(&self, peer: &Self, psk: Option<&str>, endpoint: Option<&str>) -> Result<()> {
        self.daemon.set_config(&self.config(peer, psk, endpoint))?;
        self.host.sh(&format!("ip link set {} addrgenmode none || true", self.daemon.ifname))?;
        let addresses = [format!("{}/24", self.v4), format!("{}/64", self.v6)];
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        self.host.bring_up(&self.daemon.ifname, &addresses)
    }

    /// What `wg setconf` is told.
    pub fn config(&self, peer: &Self, psk: Option<&str>, endpoint: Option<&str>) -> String {
        let mut text = format!(
            "[Interface]\nPrivateKey = {}\nListenPort = {}\n\n[Peer]\nPublicKey = {}\n\
             AllowedIPs = {}/32, {}/128\n",
            self.keys.private_text(),
            self.port,
            peer.keys.public_text(),
            peer.v4,
            peer.v6
        );
        text += &psk.map(|psk| format!("PresharedKey = {psk}\n")).unwrap_or_default();
        text += &endpoint.map(|endpoint| format!("Endpoint = {endpoint}\n")).unwrap_or_default();
        text
    }

    pub fn endpoint_v4(&self) -> String {
        format!("{}:{}", self.outer_v4, self.port)
    }

    pub fn endpoint_v6(&self) -> String {
        format!("[{}]:{}", self.outer_v6, self.port)
    }

    /// Sets where `peer` is.
    pub fn point_at(&self, peer: &Self, endpoint: &str) -> Result<()> {
        self.daemon.set(&format!("peer {} endpoint {endpoint}", peer.keys.public_text()))
    }

    pub fn set_mtu(&self, mtu: u32) -> Result<()> {
        let mtu = mtu.to_string();
        self.host.run(&["ip", "link", "set", &self.daemon.ifname, "mtu", &mtu]).map(drop)
    }

    /// One ping with one second of patience.
    pub fn ping_once(&self, address: &str) -> Result<String> {
        self.host.run(&["ping", "-n", "-c", "1", "-W", "1", address])
    }

    /// `count` pings, each sent as soon as the last is answered; all must be. On a busy machine
    /// one in some thousand gets lost between `ping` and any TUN device, whoever serves it, so
    /// what fails is tried once again.
    pub fn flood_ping(&self, address: &str, count: u32) -> Result<()> {
        let count_text = count.to_string();
        let all = format!("{count} received");
        let mut said = String::new();
        for _ in 0..2 {
            let words = ["ping", "-n", "-q", "-f", "-W", "1", "-c", &count_text, address];
            said = self.host.run(&words)?;
            if said.contains(&all) {
                return Ok(());
            }
            eprintln!("of {count} pings to {address} some were lost:\n{said}");
        }
        bail!("of {count} pings to {address} some were lost, twice:\n{said}")
    }

    /// One ping of `bytes` that must not be fragmented on the way in.
    pub fn ping_sized(&self, address: &str, bytes: usize) -> Result<()> {
        let size = bytes.to_string();
        self.host.run(&["ping", "-n", "-M", "do", "-c", "1", "-W", "1", "-s", &size, address])?;
        Ok(())
    }
}

fn node(
    scene: &Scene,
    sut: &Sut,
    host: Host,
    home: &Host,
    index: usize,
    outer: Outer,
) -> Result<Node> {
    let ifname = scene.ifname(["a", "b"][index]);
    let daemon = scene.daemon(sut, home, &ifname)?;
    let (outer_v4, outer_v6) = match outer {
        Outer::Veth | Outer::Wire(_) => {
            (["10.9.0.1", "10.9.0.2"][index], ["fd09::1", "fd09::2"][index])
        }
        Outer::Loopback => {
            daemon.move_to(&host)?;
            ("127.0.0.1", "::1")
        }
    };
    Ok(Node {
        host,
        daemon,
        keys: KeyPair::new(),
        port: [10001, 10002][index],
        v4: INNER_V4[index],
        v6: INNER_V6[index],
        outer_v4,
        outer_v6,
    })
}
