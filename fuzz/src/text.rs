//! Text that people and programs hand us: the control socket, wg-quick files, topology files,
//! files of sites.

use std::collections::BTreeMap;
use std::path::Path;

use host::quick::{self, Facts, Plan};
use host::uapi::{self, Request};
use lab::topology;
use node::{Change, Node, PeerStatus, Status};
use noise::{Identity, Instant, PrivateKey};

use crate::Seeded;

const PRIVATE: &str = "YAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
const PUBLIC: &str = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=";
const HEX: &str = "b85996fecc9c7f1fc6d2572a76eda11d59bcd20be8e543b15ce4bd85a8e75a33";

/// A request of the control socket. What is read from it configures a node; what that node then
/// says of itself, said to another one, makes it say the same.
pub fn control(data: &[u8]) {
    let Ok(request) = uapi::text::parse(data) else {
        return;
    };
    let Request::Set(changes) = request else {
        return;
    };
    let said = uapi::text::format(&configured(&changes));
    let repeated: String = said.lines().filter(|line| is_setting(line)).fold(
        "set=1\nreplace_peers=true\n".to_owned(),
        |mut text, line| {
            text.extend([line, "\n"]);
            text
        },
    );
    let again = uapi::text::parse(repeated.as_bytes());
    let Ok(Request::Set(changes)) = again else {
        panic!("what we say we do not understand: {repeated}");
    };
    assert_eq!(uapi::text::format(&configured(&changes)), said);
}

/// A wg-quick file. A fault names a place in the file and stays on one line; what is good can be
/// planned, and changes nothing against itself.
pub fn link_file(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match quick::parse(text) {
        Ok(settings) => {
            let changes = settings.changes(&[], 0);
            assert_eq!(
                changes.iter().filter(|c| matches!(c, Change::Peer(_))).count(),
                settings.peers.len()
            );
            let since = settings.changes_since(&settings, |_| Err("nothing is resolved anew"));
            assert_eq!(since.map(|changes| changes.len()), Ok(0));
            for facts in [Facts::default(), Facts { outer_mtu: Some(1500), ..Facts::default() }] {
                let plans = [0; 2].map(|_| Plan::new("wt0", &settings, &facts).map(|p| p.steps));
                assert_eq!(plans[0], plans[1]);
            }
        }
        Err(faults) => {
            assert!((1..=20).contains(&faults.len()));
            for fault in faults {
                let lines = text.lines().count();
                assert!((1..=lines + 1).contains(&fault.line), "{fault:?}");
                let columns = text.lines().nth(fault.line - 1).map_or(0, |l| l.chars().count());
                assert!((1..=columns + 1).contains(&fault.column), "{fault:?} {text:?}");
                assert!(!fault.what.is_empty() && !fault.what.contains(char::is_control));
                assert!(!fault.what.contains(PRIVATE), "a secret is repeated");
            }
        }
    }
}

/// A topology file. A mistake names a place in the file; what is good always gives the same plan,
/// with names that the kernel takes.
pub fn topology(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let plan = |text| {
        let read = topology::Topology::parse(text, Path::new("lab.toml"));
        read.and_then(|read| topology::Plan::new(&read))
    };
    match plan(text) {
        Ok(made) => {
            assert_eq!(format!("{made:?}"), format!("{:?}", plan(text).expect("the same text")));
            for end in made.links.iter().flat_map(|link| &link.ends) {
                assert!((1..=15).contains(&end.ifname.len()), "{}", end.ifname);
                assert!(made.nodes.iter().any(|node| node.name == end.node));
            }
            for node in &made.nodes {
                assert!(node.routes.iter().all(|route| route.lines().count() == 1));
                assert!(!made.hosts_file(&node.name).is_empty());
            }
        }
        Err(mistake) => {
            assert!(mistake.line <= text.lines().count() + 1, "{mistake}");
            assert!(!mistake.what.is_empty());
        }
    }
}

/// A file of sites. A mistake names a place in the file; what is good has networks that do not
/// overlap, and steps after which there are none.
pub fn sites(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let read = ::sites::File::read(text);
    let numbered = read
        .and_then(|file| Ok((::sites::Numbering::new(&file, text, &::sites::Taken::new())?, file)));
    let (numbering, file) = match numbered {
        Ok(numbered) => numbered,
        Err(mistakes) => {
            assert!((1..=::sites::MISTAKES_MAX).contains(&mistakes.len()));
            for mistake in mistakes {
                let lines = text.lines().count();
                assert!((1..=lines + 1).contains(&mistake.line), "{mistake}");
                assert!(mistake.column >= 1 && !mistake.what.is_empty(), "{mistake}");
            }
            return;
        }
    };
    let mut known: Vec<_> = numbering.places.iter().flat_map(|place| &place.known_as).collect();
    known.sort_unstable();
    assert!(known.windows(2).all(|pair| !pair[0].contains(pair[1].address())), "{known:?}");
    let wanted = ::sites::desired(&file, &numbering, &::sites::Known::default());
    let steps = ::sites::steps(&wanted, &::sites::Report::default(), None);
    let found = steps.into_iter().map(|step| ::sites::Found {
        id: step.id,
        properties: step.properties,
        is_ours: true,
    });
    let report = ::sites::Report { found: found.collect() };
    assert_eq!(::sites::steps(&wanted, &report, None), []);
    assert_eq!(::sites::steps(&[], &report, None).len(), wanted.len());
}

/// Texts that are good, and some that are nearly so.
pub(crate) fn seeds(target: &str) -> Vec<Vec<u8>> {
    let peer = format!(
        "public_key={HEX}\npreshared_key={HEX}\nendpoint=[fd00::1]:51820\n\
         persistent_keepalive_interval=25\nreplace_allowed_ips=true\nallowed_ip=10.0.0.0/8\n\
         allowed_ip=fd00::/64\n"
    );
    let other = peer.replace("b8", "c9").replace("[fd00::1]", "192.0.2.1");
    let texts = match target {
        "control" => vec![
            "get=1\n\n".to_owned(),
            format!("set=1\nprivate_key={HEX}\nlisten_port=51820\nfwmark=9\n{peer}{other}\n"),
            format!("set=1\nreplace_peers=true\n{peer}{other}public_key={HEX}\nremove=true\n\n"),
            format!("set=1\n{peer}allowed_ip=-10.0.0.0/8\nupdate_only=true\n\n"),
            format!("set=1\n{}\n", peer.replace("[fd00::1]", "[fe80::1%lo]")),
        ],
        "link_file" => {
            let interface = format!(
                "[Interface]\nPrivateKey = {PRIVATE}\nListenPort = 51820\nFwMark = 0xca6c\n\
                 Address = 10.0.0.1/24, fd00::1/64\nMTU = 1400\nDNS = 1.1.1.1, example.org\n\
                 Table = auto\nPostUp = echo %i\nSaveConfig = true\n"
            );
            let peer = format!(
                "[Peer]\nPublicKey = {PUBLIC}\nPresharedKey = {PRIVATE}\nAllowedIPs = 0.0.0.0/0, \
                 ::/0\nEndpoint = vpn.example.org:51820\nPersistentKeepalive = 25\n"
            );
            let plain = peer
                .replace("0.0.0.0/0, ::/0", "10.0.0.2/32")
                .replace("vpn.example.org", "[fd00::9]");
            vec![
                format!("{interface}{peer}"),
                format!("{interface}\n# a comment\n{plain}"),
                interface.replace("auto", "1234") + &plain.replace("25", "off"),
                format!("{peer}{interface}").to_lowercase(),
            ]
        }
        "topology" => vec![
            "[hosts.a]\n[hosts.b]\n[routers.r]\n[[links]]\nbetween = [\"a\", \"r\"]\n[[links]]\n\
             between = [\"r\", \"b\"]\n"
                .to_owned(),
            "name = \"x\"\n[hosts.a]\nblocked = [\"udp\"]\n[routers.r]\nnat = \"symmetric\"\n\
             outside = [\"r-s\"]\n[switches.s]\n[hosts.b]\n[[links]]\nbetween = [\"a\", \"r\"]\n\
             addresses = [[\"10.0.0.2/24\"], [\"10.0.0.1/24\"]]\nimpair = \"medium loss=2%\"\n\
             seed = 7\nmtu = 1500\n[[links]]\nbetween = [\"r\", \"s\"]\nshape = { rate = \
             \"20mbit\", burst = \"32kb\", latency = \"50ms\" }\n[[links]]\nbetween = [\"b\", \
             \"s\"]\nimpair = \"high\"\nimpair-back = \"low delay=3ms\"\n"
                .to_owned(),
        ],
        "sites" => vec![
            "network = \"acme\"\n[[site]]\nname = \"a\"\nprovider = \"ssh\"\nhosts = \
             [\"root@192.0.2.7:22\", \"[fd00::1]:2222\"]\n"
                .to_owned(),
            "network = \"acme\"\ntopology = \"tree\"\nrange = \"10.0.0.0/8\"\nsite_bits = 20\n\
             [[site]]\nname = \"b\"\nprovider = \"aws\"\nregion = \"eu-west-1\"\ngateways = 2\n\
             number = 3\n[[site]]\nname = \"c\"\nprovider = \"openstack\"\nsubnets = \
             [\"192.168.5.0/24\"]\nalias = true\ninside = [\"192.168.5.1\"]\n"
                .to_owned(),
        ],
        _ => panic!("no text is called {target}"),
    };
    texts.into_iter().map(String::into_bytes).collect()
}

/// What a node says of itself once it was told all this.
fn configured(changes: &[Change]) -> Status {
    let mut node = Node::new();
    let mut random = Seeded(1);
    let mut status = Status::default();
    for change in changes {
        match change {
            Change::PrivateKey(key) => {
                status.private_key.clone_from(key);
                let identity = |key: &PrivateKey| Identity::new(key.clone());
                node.set_identity(key.as_ref().map(identity), &mut random);
            }
            Change::ListenPort(port) => status.listen_port = *port,
            Change::Fwmark(mark) => status.fwmark = *mark,
            Change::ListenIcmp(_) | Change::ListenIp(_) => {}
            Change::ReplacePeers => node.remove_peers(),
            Change::Peer(change) => node.change_peer(change, &mut random).expect("there is room"),
        }
    }
    status.peers = node.peers(Instant(1), std::time::Duration::ZERO);
    one_owner_each(&status.peers);
    status
}

/// No prefix has two owners.
fn one_owner_each(peers: &[PeerStatus]) {
    let mut owners = BTreeMap::new();
    for peer in peers {
        for prefix in &peer.allowed_ips {
            let before = owners.insert(*prefix, peer.key);
            assert!(before.is_none(), "{prefix} has two owners");
        }
    }
}

/// Lines of a node's account of itself that it takes back.
fn is_setting(line: &str) -> bool {
    let told = ["last_handshake_time_sec", "last_handshake_time_nsec", "tx_bytes", "rx_bytes"];
    line.split_once('=').is_some_and(|(key, _)| key != "errno" && !told.contains(&key))
}
