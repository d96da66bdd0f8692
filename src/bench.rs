//! `warren bench`: measurements beside other VPNs and beside none.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use ::bench::link::{self, HONEST_ROUNDS, HONEST_SECONDS, Settings};
use ::bench::scenario::Scenario;
use ::bench::{markdown, vpn};
use anyhow::{Context, Result};
use clap::builder::PossibleValuesParser;
use clap::value_parser;

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
    /// Write link.md and link.json into this folder.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print JSON instead of the table.
    #[arg(long)]
    json: bool,
}

/// Does what the words say.
pub(crate) fn run(args: Args) -> Result<()> {
    match args.command {
        Words::Link(args) => run_link(&args),
    }
}

fn run_link(args: &Link) -> Result<()> {
    if let Some(folder) = &args.out {
        // Minutes later would be a bad moment to learn of it.
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    }
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let wanted = |scenario: &Scenario| {
        args.scenario.is_empty() || args.scenario.iter().any(|name| name == scenario.name())
    };
    let words: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let settings = Settings {
        prefix: "warren-bench".to_owned(),
        seconds: args.seconds,
        rounds: args.rounds,
        scenarios: Scenario::ALL.into_iter().filter(wanted).collect(),
        command: format!("warren {}", words.join(" ")),
    };
    let report = link::run(&settings, &vpn::contestants(&program))?;
    let (page, json) = (markdown::render(&report), report.to_json()?);
    if let Some(folder) = &args.out {
        write(&folder.join("link.md"), &page)?;
        write(&folder.join("link.json"), &json)?;
    }
    let text = if args.json { json } else { page };
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
