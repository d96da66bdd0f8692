//! `warren demo`: two hosts, a router between them, and the link at work.

use ::demo::Options;
use ::demo::screen::Screen;
use anyhow::{Context, Result};

/// Show the link at work: two hosts behind a router, made for it and removed again.
///
/// Needs root. Shows handshake, ping, a file of 200 MB by curl, iperf3 both ways, and what the
/// router sees of it; prints every command that it runs in a host. Takes less than a minute.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A file of 20 MB, and less of everything
    #[arg(long)]
    quick: bool,
    /// The lab's name, the prefix of its namespaces
    #[arg(long, value_name = "NAME", default_value = "demo")]
    lab: String,
}

/// Shows it.
pub(crate) fn run(args: Args) -> Result<()> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let options = Options { lab: args.lab, program, quick: args.quick };
    ::demo::run(&options, &mut Screen::stdout())
}
