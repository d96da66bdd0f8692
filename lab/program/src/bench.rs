//! `warren-lab bench`: measurements beside other VPNs and beside none.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use ::bench::bandwidth::Traffic;
use ::bench::facts::Origin;
use ::bench::link::{self, HONEST_ROUNDS, HONEST_SECONDS, Settings};
use ::bench::ring::{self, TUNINGS, Test};
use ::bench::scenario::Scenario;
use ::bench::vpn;
use ::bench::{bandwidth, carriers, circuit, nest, network, sites};
use anyhow::{Context, Result};
use clap::builder::PossibleValuesParser;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory as _, value_parser};

use crate::warren;

/// Measure beside other VPNs and beside none.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Words,
}

#[derive(Debug, clap::Subcommand)]
enum Words {
    /// A static link, beside wireguard-go and beside no VPN, in turn.
    ///
    /// Measures throughput, processor time, memory and round trips between two network
    /// namespaces, several rounds of all contestants in turn, and prints the medians of the
    /// ratios beside what is required. Needs root, and iperf3, ping, ethtool, tcpdump and wg.
    Link(Link),
    /// A network with its server: joining, changes, and what the relay carries.
    ///
    /// Each step has a new lab; several rounds of all steps. Beside Headscale's relay, if
    /// headscale, tailscaled and tailscale are here. Needs root.
    Network(Network),
    /// The carriers of a static link: UDP, a raw protocol and ping, beside ptunnel-ng.
    ///
    /// Each measurement has a new lab, without offloads; several rounds in turn. Needs root.
    Carriers(Network),
    /// Source 004's line of 1.5 Mbit/s, its streams and spiders, by a raw protocol and by ping.
    ///
    /// Each measurement has a new lab, and each round takes some minutes. Needs root.
    Nest(Network),
    /// Circuits beside Tor, nested WireGuard and a tunnel over TCP, on a chain of five hosts.
    ///
    /// Each finished step is on the disk at once; an interrupted run is taken up again with
    /// --resume. What is not on this machine is named. Needs root, and iperf3, curl, python3, ss.
    Circuit(Circuit),
    /// Sites: how long they take to be there, a gateway's death, and what an edge costs a hub.
    ///
    /// Three sites of two machines each, in clouds that are played where these are here, and all
    /// of machines that ssh reaches. Each step has a new lab. Needs root, nft, openssl and ssh.
    Sites(Sites),
    /// Available bandwidth: does `warren bandwidth` tell the truth, how soon, at what cost?
    ///
    /// Two nodes, a line between them, and traffic beside theirs that comes evenly and by chance.
    /// Each line has a new lab for each share of that traffic; all of them take an hour. Needs
    /// root, tc and ethtool.
    Bandwidth(Bandwidth),
    /// What can be measured here: peers with their versions or how to get them, profiles, tests.
    List(List),
    /// Three hosts in a ring, impaired, for every peer that is here; results go into a folder.
    ///
    /// Each finished measurement is on the disk at once; an interrupted run is taken up again
    /// with --resume. Peers take turns, and each measurement has a new lab. Needs root.
    Run(Run),
    /// Write report.html and report.md into the folder of a run.
    ///
    /// The medians go into its run.json, which then says what was found without the samples.
    Report(Report),
    /// Draw one TCP stream in each weather, from the medians of runs.
    ///
    /// Each bar is of the first of the runs that has it. Their reports must have been written;
    /// their samples need not be there.
    Chart(Chart),
    /// What is different between two runs, as ratios of medians.
    Compare(Compare),
    /// One page for strangers, out of runs: index.html, and beside it the raw data.
    ///
    /// What Warren loses comes first, then a chart for each claim, heat maps, verdicts, and how it
    /// was measured. The page fetches nothing. A run without its samples needs the medians that
    /// `bench report` writes.
    Publish(Publish),
}

#[derive(Debug, clap::Args)]
struct List {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Run {
    /// Peers, by their words in `bench list`; without it all that are here.
    #[arg(long, value_delimiter = ',')]
    peers: Vec<String>,
    /// Profiles: baseline, low, medium, high, or words as `delay=20ms+loss=1%+rate=50mbit`.
    #[arg(long, value_delimiter = ',', default_value = "baseline,low,medium,high")]
    profiles: Vec<String>,
    /// Tests; without it all.
    #[arg(long, value_delimiter = ',',
          value_parser = PossibleValuesParser::new(Test::ALL.map(Test::word)))]
    tests: Vec<String>,
    /// How often everything is measured.
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// Length of each transfer in seconds; shorter ones than 10 are marked.
    #[arg(long, default_value_t = 30, value_parser = value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// How many of the ring's three links are measured.
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u32).range(1..=3))]
    links: u32,
    /// Decides all chance on the wire.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Measure one TCP stream over delays 1 to 150 ms, losses 0 to 5 % and rates 5 Mbit/s to
    /// 1 Gbit/s, too; 48 transfers a peer.
    #[arg(long)]
    grid: bool,
    /// Nothing but the grid.
    #[arg(long, conflicts_with_all = ["tests", "grid"])]
    grid_only: bool,
    /// Kernel settings of the hosts: those of the machine, tolerance of reordering, or that
    /// and larger buffers, as in the comparison that the profiles come from; or the latest
    /// round trip taken for the shortest, which is another way to bear reordering.
    #[arg(long, default_value = "default", value_parser = PossibleValuesParser::new(TUNINGS))]
    tuning: String,
    /// Download over HTTPS instead of HTTP.
    #[arg(long)]
    https: bool,
    /// Where results go.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Go on with the run in that folder, as it began: words that ask for something else are
    /// refused.
    #[arg(long)]
    resume: bool,
}

#[derive(Debug, clap::Args)]
struct Report {
    /// The folder of a run.
    dir: PathBuf,
}

#[derive(Debug, clap::Args)]
struct Chart {
    /// Folders of runs.
    #[arg(required = true, value_name = "DIR")]
    runs: Vec<PathBuf>,
    /// Where the SVG goes.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

#[derive(Debug, clap::Args)]
struct Publish {
    /// Folders of runs, and reports of other benches: circuits' folder, or a .json file.
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Where the page and its data go.
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
}

#[derive(Debug, clap::Args)]
struct Compare {
    /// The folder of the run that is the measure.
    a: PathBuf,
    /// The folder of the other.
    b: PathBuf,
    /// Every figure, and not only the first of each test: round trips, retransmits, bytes on
    /// the wire, processor time, memory.
    #[arg(long)]
    all: bool,
}

#[derive(Debug, clap::Args)]
struct Link {
    /// Length of each transfer in seconds; shorter ones than 5 are marked.
    #[arg(long, default_value_t = HONEST_SECONDS, value_parser = value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// How often everything is measured; fewer than 5 rounds are marked.
    #[arg(long, default_value_t = HONEST_ROUNDS, value_parser = value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Measure only this; may be given several times.
    #[arg(long, value_parser = PossibleValuesParser::new(Scenario::ALL.map(Scenario::name)))]
    scenario: Vec<String>,
    /// Let Warren speak frames with itself; without it, it speaks plain WireGuard.
    #[arg(long)]
    frames: bool,
    /// Write link.md and link.json into this folder, with --frames link-frames.md and .json.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print JSON instead of the table.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Network {
    /// Length of each transfer in seconds.
    #[arg(long, default_value_t = HONEST_SECONDS, value_parser = value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// How often everything is measured; fewer than 5 rounds are marked.
    #[arg(long, default_value_t = network::HONEST_ROUNDS,
          value_parser = value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Write the report into this folder, as .md and .json.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print JSON instead of the table.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Sites {
    /// How often everything is measured; fewer than 5 rounds are marked.
    #[arg(long, default_value_t = sites::HONEST_ROUNDS,
          value_parser = value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Edges of a hub; may be given several times.
    #[arg(long, default_values_t = [1, 10], value_parser = value_parser!(u32).range(1..=1000))]
    edges: Vec<u32>,
    /// Where moto and sshd are [default: ../tools beside this program]
    #[arg(long, value_name = "DIR")]
    tools: Option<PathBuf>,
    /// Write the report into this folder, as .md and .json.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print JSON instead of the table.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Bandwidth {
    /// How often a path is measured on each line, beside each share; fewer runs than 40 are
    /// marked.
    #[arg(long, default_value_t = bandwidth::HONEST_RUNS,
          value_parser = value_parser!(u32).range(1..=1_000))]
    runs: u32,
    /// A line in Mbit/s; may be given several times.
    #[arg(long, value_name = "MBIT", default_values_t = bandwidth::LINES_MBIT,
          value_parser = value_parser!(u32).range(1..=10_000))]
    line: Vec<u32>,
    /// What others send, in percent of the line; may be given several times.
    #[arg(long, value_name = "PERCENT", default_values_t = bandwidth::BESIDE_PERCENT,
          value_parser = value_parser!(u8).range(0..=90))]
    beside: Vec<u8>,
    /// How that comes; may be given several times.
    #[arg(long, value_name = "KIND", default_values = Traffic::USUAL.map(Traffic::word),
          value_parser = PossibleValuesParser::new(Traffic::ALL.map(Traffic::word)))]
    traffic: Vec<String>,
    /// Write the report into this folder, as .md and .json.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print JSON instead of the table.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Circuit {
    /// Two seconds a step and few of them, to see that it works; proves nothing.
    #[arg(long)]
    quick: bool,
    /// Measure only this; may be given several times.
    #[arg(long, value_parser = PossibleValuesParser::new(circuit::systems()))]
    system: Vec<String>,
    /// Length of each transfer in seconds.
    #[arg(long, value_parser = value_parser!(u32).range(1..=600))]
    seconds: Option<u32>,
    /// How often everything is measured.
    #[arg(long, value_parser = value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// Measure only this line, Mbit/s and percent lost, as in 10:3; 0:0 is none at all. May be
    /// given several times.
    #[arg(long, value_name = "MBIT:LOSS")]
    line: Vec<String>,
    /// Only so many streams of TCP at once; may be given several times.
    #[arg(long, value_parser = value_parser!(u32).range(1..=64))]
    flows: Vec<u32>,
    /// Where results go.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Go on with the run in that folder, as it began.
    #[arg(long)]
    resume: bool,
}

fn run_circuit(args: &Circuit, warren: Option<PathBuf>) -> Result<()> {
    let first = if args.quick { circuit::Settings::quick() } else { circuit::Settings::whole() };
    let settings = circuit::Settings {
        seconds: args.seconds.unwrap_or(first.seconds),
        rounds: args.rounds.unwrap_or(first.rounds),
        systems: args.system.clone(),
        only: args.line.clone(),
        flows: if args.flows.is_empty() { first.flows } else { args.flows.clone() },
        ..first
    };
    let written = circuit::run(&settings, &origin(warren)?, &args.out, args.resume)?;
    print(&format!("{}\n", written.display()))
}

/// Does what the words say.
pub(crate) fn run(args: Args, warren: Option<PathBuf>) -> Result<()> {
    match args.command {
        Words::Link(args) => run_link(&args, warren),
        Words::Network(args) => run_network(&args, warren),
        Words::Carriers(args) => run_carriers(&args, warren),
        Words::Nest(args) => run_nest(&args, warren),
        Words::Circuit(args) => run_circuit(&args, warren),
        Words::Sites(args) => run_sites(&args, warren),
        Words::Bandwidth(args) => run_bandwidth(&args, warren),
        Words::List(args) => list(&args, warren),
        Words::Run(args) => run_ring(&args, warren),
        Words::Report(args) => {
            let written = ::bench::page::write(&args.dir)?;
            print(&format!("{}\n", written.map(|path| path.display().to_string()).join("\n")))?;
            // Whoever reads the paths reads them from standard output.
            let next = format!("now: warren-lab bench compare {} OTHER\n", args.dir.display());
            Ok(std::io::stderr().write_all(next.as_bytes())?)
        }
        Words::Chart(args) => write(&args.out, &::bench::page::chart(&args.runs)?),
        Words::Publish(args) => {
            let page = ::bench::page::publish(&args.runs, &args.out)?;
            print(&format!("{}\n", page.display()))
        }
        Words::Compare(args) => print(&::bench::page::compare(&args.a, &args.b, args.all)?),
    }
}

fn list(args: &List, warren: Option<PathBuf>) -> Result<()> {
    let peers = vpn::all(&warren::find(warren)?);
    print(&if args.json { ::bench::page::list_json(&peers)? } else { ::bench::page::list(&peers) })
}

fn run_ring(args: &Run, warren: Option<PathBuf>) -> Result<()> {
    let origin = origin(warren)?;
    let peers = ring::select(vpn::all(&origin.program), &args.peers)?;
    let prefix = "warren-bench";
    if args.resume {
        let (note, _) = ring::sample::read(&args.out)?;
        note.ensure_asked(&settings(args), &said(&crate::Cli::command().get_matches()))?;
        if !args.peers.is_empty() {
            note.ensure_peers(&peers.iter().map(|vpn| vpn.name()).collect::<Vec<_>>())?;
        }
        ring::resume(&peers, &args.out, prefix, &origin)?;
    } else {
        ring::run(settings(args), &peers, &args.out, prefix, &origin)?;
    }
    let dir = args.out.display();
    print(&format!(
        "\n{}\nnow: warren-lab bench report {dir}   # writes {dir}/report.html, with all of it\n",
        ::bench::page::summary(&args.out)?
    ))
}

/// The words of `bench run` that were said, and not left to their defaults.
fn said(matches: &ArgMatches) -> Vec<String> {
    let run = matches.subcommand_matches("bench").and_then(|it| it.subcommand_matches("run"));
    let words = run.into_iter().flat_map(|run| {
        run.ids().filter(|id| run.value_source(id.as_str()) == Some(ValueSource::CommandLine))
    });
    words.map(|id| id.as_str().to_owned()).collect()
}

fn settings(args: &Run) -> ring::sample::Settings {
    let tests = match (args.grid_only, args.tests.is_empty()) {
        (true, _) => Vec::new(),
        (false, true) => Test::ALL.map(|test| test.word().to_owned()).to_vec(),
        (false, false) => args.tests.clone(),
    };
    ring::sample::Settings {
        profiles: args.profiles.clone(),
        tests,
        rounds: args.repeat,
        seconds: args.seconds,
        links: args.links,
        seed: args.seed,
        grid: args.grid || args.grid_only,
        tuning: args.tuning.clone(),
        https: args.https,
    }
}

fn run_link(args: &Link, warren: Option<PathBuf>) -> Result<()> {
    prepare(args.out.as_deref())?;
    let wanted = |scenario: &Scenario| {
        args.scenario.is_empty() || args.scenario.iter().any(|name| name == scenario.name())
    };
    let origin = origin(warren)?;
    let contestants = vpn::contestants(&origin.program, args.frames);
    let settings = Settings {
        prefix: "warren-bench".to_owned(),
        seconds: args.seconds,
        rounds: args.rounds,
        scenarios: Scenario::ALL.into_iter().filter(wanted).collect(),
        frames: args.frames,
        origin,
    };
    let report = link::run(&settings, &contestants)?;
    let name = if args.frames { "link-frames" } else { "link" };
    let report = Written { page: link::render(&report), json: report.to_json()? };
    report.give(args.out.as_deref(), name, args.json)
}

/// A report in both forms.
struct Written {
    page: String,
    json: String,
}

impl Written {
    /// Writes both into the folder, if there is one, and prints one of them.
    fn give(self, folder: Option<&Path>, name: &str, is_json: bool) -> Result<()> {
        if let Some(folder) = folder {
            write(&folder.join(format!("{name}.md")), &self.page)?;
            write(&folder.join(format!("{name}.json")), &self.json)?;
        }
        print(if is_json { &self.json } else { &self.page })
    }
}

/// Makes the folder for a report now: minutes later would be a bad moment to learn that it cannot
/// be made.
fn prepare(folder: Option<&Path>) -> Result<()> {
    let Some(folder) = folder else { return Ok(()) };
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))
}

fn run_network(args: &Network, warren: Option<PathBuf>) -> Result<()> {
    prepare(args.out.as_deref())?;
    let settings = network::Settings {
        prefix: "warren-bench".to_owned(),
        seconds: args.seconds,
        rounds: args.rounds,
        origin: origin(warren)?,
    };
    let report = network::run(&settings)?;
    let report = Written { page: network::render(&report), json: network::to_json(&report)? };
    report.give(args.out.as_deref(), "network", args.json)
}

fn run_carriers(args: &Network, warren: Option<PathBuf>) -> Result<()> {
    prepare(args.out.as_deref())?;
    let report = carriers::run(&settings_of_carriers(args, warren)?)?;
    let report = Written { page: carriers::render(&report), json: carriers::to_json(&report)? };
    report.give(args.out.as_deref(), "carriers", args.json)
}

fn run_nest(args: &Network, warren: Option<PathBuf>) -> Result<()> {
    prepare(args.out.as_deref())?;
    let report = nest::run(&settings_of_carriers(args, warren)?)?;
    let report = Written { page: nest::render(&report), json: nest::to_json(&report)? };
    report.give(args.out.as_deref(), "nest", args.json)
}

fn run_sites(args: &Sites, warren: Option<PathBuf>) -> Result<()> {
    prepare(args.out.as_deref())?;
    let report = sites::run(&sites::Settings {
        prefix: "warren-bench".to_owned(),
        rounds: args.rounds,
        edges: args.edges.clone(),
        tools: args.tools.clone().unwrap_or_else(warren::tools),
        origin: origin(warren)?,
    })?;
    let report = Written { page: sites::render(&report), json: sites::to_json(&report)? };
    report.give(args.out.as_deref(), "sites", args.json)
}

fn run_bandwidth(args: &Bandwidth, warren: Option<PathBuf>) -> Result<()> {
    prepare(args.out.as_deref())?;
    let report = bandwidth::run(&bandwidth::Settings {
        prefix: "warren-bench".to_owned(),
        runs: args.runs,
        lines_mbit: args.line.clone(),
        beside_percent: args.beside.clone(),
        traffic: args.traffic.iter().filter_map(|word| Traffic::named(word)).collect(),
        origin: origin(warren)?,
    })?;
    let report = Written { page: bandwidth::render(&report), json: bandwidth::to_json(&report)? };
    report.give(args.out.as_deref(), "bandwidth", args.json)
}

fn settings_of_carriers(args: &Network, warren: Option<PathBuf>) -> Result<carriers::Settings> {
    Ok(carriers::Settings {
        prefix: "warren-bench".to_owned(),
        seconds: args.seconds,
        rounds: args.rounds,
        origin: origin(warren)?,
    })
}

/// What was typed, and the program that is measured.
fn origin(warren: Option<PathBuf>) -> Result<Origin> {
    Ok(Origin { command: own_words(), program: warren::find(warren)? })
}

/// The words that were typed.
fn own_words() -> String {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    format!("warren-lab {}", words.collect::<Vec<_>>().join(" "))
}

fn print(text: &str) -> Result<()> {
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    /// What `bench bandwidth` makes of these words behind it, if it takes them.
    fn bandwidth_of(words: &[&str]) -> Option<Bandwidth> {
        let words = ["warren-lab", "bench", "bandwidth"].iter().chain(words);
        let cli = crate::Cli::try_parse_from(words).ok()?;
        match cli.command {
            crate::Command::Bench(Args { command: Words::Bandwidth(args) }) => Some(args),
            _ => None,
        }
    }

    #[test]
    fn lines_and_what_is_beside_them_are_chosen_or_all_are_measured() {
        let all = bandwidth_of(&[]).expect("no word is needed");
        assert_eq!((all.runs, all.line), (40, vec![10, 100, 500, 1_000]));
        assert_eq!((all.beside, all.json), (vec![0, 40, 70], false));
        assert_eq!(all.traffic, ["even", "chance"]);
        let words = ["--line", "10", "--line", "100", "--beside", "40", "--runs", "2"];
        let some = bandwidth_of(&words).expect("all of these are words");
        assert_eq!((some.runs, some.line, some.beside), (2, vec![10, 100], vec![40]));
        let bursts = bandwidth_of(&["--traffic", "bursts", "--traffic", "even"]);
        assert_eq!(bursts.expect("it is a word").traffic, ["bursts", "even"]);
        let wrong_words =
            [["--line", "0"], ["--beside", "95"], ["--runs", "0"], ["--line", "10:3"]];
        for wrong in wrong_words.into_iter().chain([["--traffic", "rain"]]) {
            assert!(bandwidth_of(&wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn what_is_said_is_told_from_what_is_left_to_its_default() {
        let words = "warren-lab bench run --out d --repeat 1 --resume --grid-only";
        let mut said = said(&crate::Cli::command().get_matches_from(words.split(' ')));
        said.sort();
        said.retain(|word| word != "Run");
        assert_eq!(said, ["grid_only", "out", "repeat", "resume"]);
    }
}
