//! `warren-lab demo`: a server and six nodes, or a link between two hosts, at work.

use std::path::PathBuf;

use ::demo::screen::Screen;
use ::demo::{Options, Play};
use anyhow::Result;

use crate::warren;

/// Show a network at work: a server and six nodes, made for it and removed again.
///
/// Needs root. The nodes are on the Internet, behind two kinds of NAT, on a campus that lets out
/// only HTTPS, and behind a proxy that opens TLS. Shows who reaches whom and how, a file over the
/// worst pair, and a transfer that goes on when UDP is blocked. With --link: two hosts and a router
/// between them, a file, iperf3 both ways, and what the router sees. Prints every command that it
/// runs in a host. Takes less than a minute.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Show a link between two hosts, without a server
    #[arg(long)]
    link: bool,
    /// Smaller files, and less of everything
    #[arg(long)]
    quick: bool,
    /// The lab's name, the prefix of its namespaces
    #[arg(long, value_name = "NAME", default_value = "demo")]
    lab: String,
}

/// Shows it.
pub(crate) fn run(args: Args, program: Option<PathBuf>) -> Result<()> {
    let program = warren::find(program)?;
    let laboratory = warren::own()?;
    let play = if args.link { Play::Link } else { Play::Network };
    let options = Options { lab: args.lab, program, laboratory, quick: args.quick, play };
    ::demo::run(&options, &mut Screen::stdout())
}
