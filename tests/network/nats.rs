//! Nodes in every kind of place at once: each pair reaches each other, directly where the theory of
//! translators lets it, by the server's relay otherwise. `grid.toml` and, for two of one kind,
//! `twins.toml` say what the places are, `grid.txt` and `twins.txt` what came of them;
//! `WARREN_REWRITE=1` writes these again.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use lab::process::Process;

use super::*;

/// What the theory promises is there after so long, and what it forbids is not.
const SETTLED: Duration = Duration::from_secs(3);

/// Where a node is; in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Open,
    FullCone,
    Restricted,
    PortRestricted,
    Symmetric,
    Double,
    Blocked,
    HttpsOnly,
    V6Only,
}

/// Kinds, and the hosts' names.
const KINDS: [(Kind, &str); 9] = [
    (Kind::Open, "open"),
    (Kind::FullCone, "full-cone"),
    (Kind::Restricted, "restricted"),
    (Kind::PortRestricted, "port-restricted"),
    (Kind::Symmetric, "symmetric"),
    (Kind::Double, "double"),
    (Kind::Blocked, "udp-blocked"),
    (Kind::HttpsOnly, "https-only"),
    (Kind::V6Only, "v6-only"),
];

/// What the theory says of two.
fn theory(a: Kind, b: Kind) -> &'static str {
    // Lets in a port that it has sent to, and no other.
    let is_strict = |kind| matches!(kind, Kind::PortRestricted | Kind::Double);
    match (a, b) {
        (Kind::Blocked | Kind::HttpsOnly, _) | (_, Kind::Blocked | Kind::HttpsOnly) => "relay",
        (Kind::V6Only, Kind::V6Only) => "direct",
        // Neither end's port for the other can be known.
        (Kind::Symmetric, Kind::Symmetric) => "relay",
        // Open has both families; IPv6 alone meets nobody else.
        (Kind::V6Only, other) | (other, Kind::V6Only) if other != Kind::Open => "relay",
        (Kind::Symmetric, other) | (other, Kind::Symmetric) if is_strict(other) => "relay",
        _ => "direct",
    }
}

/// Nodes, and which of them speak with each other.
struct Grid {
    topology: &'static str,
    /// The name of the topology, and of the table.
    name: &'static str,
    table: &'static str,
    nodes: Vec<(Kind, String)>,
    pairs: Vec<(usize, usize)>,
}

/// One pair: their places in [`Grid::nodes`], the echoes that go between them, and since when it
/// has been what the theory says at both ends.
struct Pair {
    ends: (usize, usize),
    echoes: Process,
    settled: Option<Duration>,
    now: String,
}

#[test]
fn nt_11_source_000_5_2_3_8_real_translators_are_crossed_where_that_can_be() -> Result<()> {
    let nodes: Vec<_> = KINDS.map(|(kind, name)| (kind, name.to_owned())).into();
    let all = 0..nodes.len();
    let pairs = all.clone().flat_map(|i| (i + 1..nodes.len()).map(move |j| (i, j))).collect();
    let (topology, table) = (include_str!("grid.toml"), include_str!("grid.txt"));
    met(&Grid { topology, name: "grid", table, nodes, pairs })
}

#[test]
fn nt_11_source_000_5_3_two_behind_translators_of_one_kind_meet_where_that_can_be() -> Result<()> {
    let twice = |(kind, name): (Kind, &str)| [(kind, name.to_owned()), (kind, format!("{name}-2"))];
    let nodes: Vec<_> = KINDS.into_iter().flat_map(twice).collect();
    let pairs = (0..nodes.len()).step_by(2).map(|i| (i, i + 1)).collect();
    let (topology, table) = (include_str!("twins.toml"), include_str!("twins.txt"));
    met(&Grid { topology, name: "twins", table, nodes, pairs })
}

fn met(grid: &Grid) -> Result<()> {
    let _turn = turn::shared();
    let lab = lab_of(grid.name, grid.topology, grid.name)?;
    let node =
        |(_, name): &(Kind, String)| -> Result<Node> { Ok(Node::new(name, lab.host(name)?)) };
    let nodes = grid.nodes.iter().map(node).collect::<Result<_>>()?;
    // By its name, which is in every host's /etc/hosts with the addresses of both families.
    let place = ["[::]:443", "https://server", "[::]:3478"].map(str::to_owned);
    let mut lan = Lan::on(grid.name, lab.host("server")?.clone(), Place(place), nodes)?;
    let result = every_pair(&mut lan, grid).and_then(|()| named(&lan, grid));
    lan.told(result)
}

/// Six of them have the same address where they are; inside, each has its own, and a name that
/// everybody knows.
fn named(lan: &Lan, grid: &Grid) -> Result<()> {
    let count = grid.nodes.len();
    for index in 0..count {
        let status = lan.status(index)?;
        for peer in status["peers"].as_array().into_iter().flatten() {
            let why = peer["path"]["why"].as_str().unwrap_or_default();
            ensure!(!why.is_empty(), "why is {} reached so? {peer}", peer["name"]);
        }
        let (host, to) = (&lan.nodes[index].host, (index + 1) % count);
        let name = &grid.nodes[to].1;
        let found = host.sh(&format!("getent ahostsv4 {name}.warren.internal"))?;
        ensure!(found.starts_with(&format!("100.64.0.{} ", to + 1)), "{name} is {found}");
        let v6 = lan.node(index, &["ip", "-6"])?;
        ensure!(v6.starts_with("fd"), "{v6}");
    }
    Ok(())
}

/// Has everybody speak with everybody, and compares what came of it with the table.
fn every_pair(lan: &mut Lan, grid: &Grid) -> Result<()> {
    let token = lan.token(&["--reusable"])?;
    lan.all_up(&token)?;
    let begin = Instant::now();
    let mut pairs = Vec::new();
    for &(i, j) in &grid.pairs {
        let to = format!("100.64.0.{}", j + 1);
        let echoes = lan.nodes[i].host.spawn(&["ping", "-n", "-i", "0.2", &to])?;
        pairs.push(Pair { ends: (i, j), echoes, settled: None, now: String::new() });
    }
    loop {
        look(lan, grid, &mut pairs, begin)?;
        let is_settled = pairs.iter().all(|pair| pair.settled.is_some() && pair.is_heard());
        if is_settled && begin.elapsed() > SETTLED || begin.elapsed() > seconds(PATIENCE) {
            break;
        }
    }
    let mut table = String::from("# One end, the other end, how they speak.\n");
    let mut slowest = Duration::ZERO;
    for pair in &pairs {
        let ((a, a_name), (b, b_name)) = (&grid.nodes[pair.ends.0], &grid.nodes[pair.ends.1]);
        ensure!(pair.is_heard(), "{a_name} does not reach {b_name}:\n{}", pair.echoes.log());
        writeln!(table, "{a_name:17}{b_name:17}{}", pair.now)?;
        eprintln!("{a_name}, {b_name}: {} since {:?}", pair.now, pair.settled);
        if theory(*a, *b) == "direct" {
            slowest = slowest.max(pair.settled.unwrap_or(Duration::MAX));
        }
    }
    eprintln!("the last pair was direct {slowest:?} after the first packet of all");
    if std::env::var_os("WARREN_REWRITE").is_some() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/network");
        std::fs::write(folder.join(format!("{}.txt", grid.name)), &table)?;
    } else {
        let name = grid.name;
        ensure!(table == grid.table, "the table differs from tests/network/{name}.txt:\n{table}");
    }
    for pair in &pairs {
        let (a, b) = (grid.nodes[pair.ends.0].0, grid.nodes[pair.ends.1].0);
        ensure!(pair.now == theory(a, b), "{a:?}, {b:?}: {}", pair.now);
    }
    ensure!(slowest <= SETTLED, "a pair was direct only after {slowest:?}");
    Ok(())
}

impl Pair {
    fn is_heard(&self) -> bool {
        self.echoes.log().contains("time=")
    }
}

/// Asks all nodes how they reach the others.
fn look(lan: &Lan, grid: &Grid, pairs: &mut [Pair], begin: Instant) -> Result<()> {
    let all = (0..grid.nodes.len()).map(|index| lan.status(index)).collect::<Result<Vec<_>>>()?;
    let way = |from: usize, to: usize| {
        let mut peers = all[from]["peers"].as_array().into_iter().flatten();
        let peer = peers.find(|peer| peer["name"] == grid.nodes[to].1.as_str());
        peer.and_then(|peer| peer["path"]["kind"].as_str()).unwrap_or("none").to_owned()
    };
    let at = begin.elapsed();
    for pair in pairs {
        let (i, j) = pair.ends;
        let (forth, back) = (way(i, j), way(j, i));
        pair.now = if forth == back { forth } else { format!("{forth}/{back}") };
        let is_right = pair.now == theory(grid.nodes[i].0, grid.nodes[j].0);
        pair.settled = if is_right { Some(pair.settled.unwrap_or(at)) } else { None };
    }
    Ok(())
}
