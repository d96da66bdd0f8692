//! `warren-lab demo`: a server and six nodes, a link between two hosts, or three sites, at work.

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
/// between them, a file, iperf3 both ways, and what the router sees. With --sites: three sites of
/// two machines each, at AWS and Azure, which are played here, and behind ssh; they are brought
/// up, a gateway dies, and all is taken away. Prints every command that it runs in a host. Takes
/// less than a minute, and with --sites about two.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Show a link between two hosts, without a server
    #[arg(long, conflicts_with = "sites")]
    link: bool,
    /// Show three sites that are joined; `make demo-sites` installs what it needs
    #[arg(long)]
    sites: bool,
    /// Where moto and sshd are, for --sites [default: ../tools beside this program]
    #[arg(long, value_name = "FOLDER", requires = "sites")]
    tools: Option<PathBuf>,
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
    let play = match args {
        Args { sites: true, .. } => Play::Sites,
        Args { link: true, .. } => Play::Link,
        _ => Play::Network,
    };
    let tools = args.tools.unwrap_or_else(warren::tools);
    let options = Options { lab: args.lab, program, laboratory, tools, quick: args.quick, play };
    ::demo::run(&options, &mut Screen::stdout())
}
