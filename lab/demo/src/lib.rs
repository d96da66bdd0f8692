//! # demo: the network and the link at work, to be watched
//!
//! The life of one demonstration. [`run`] is asked by `warren-lab demo`: it makes sure that it is
//! root and that the programs are there with which anybody would try a network (curl, ping,
//! iperf3, tcpdump, wg), and builds a network in a [`lab`]. From then on it does what a user would
//! do, with the commands that a user would type, and shows each with the host in which it runs.
//! In `six-nodes.toml`: a server, a token, six daemons behind NATs and proxies, who reaches whom
//! by which path, a file over the worst pair, and UDP that is blocked in the middle of another.
//! In `two-hosts.toml`, with `--link`, alice and bob with a router between them: keys, two files,
//! `warren link up` on both sides, the first ping (and with it the handshake), a large file by
//! curl with its SHA-256 sums, iperf3 both ways, and a capture on the router while a marker
//! passes. The same marker outside of the link is the control: there the capture shows it.
//! With `--sites`, three sites of two machines each, in clouds that [`lab::sites`] plays: a file,
//! `warren sites apply`, who reaches whom, the map of quality, a gateway that dies, and everything
//! taken away again.
//!
//! In the end, and also after a failed step, SIGINT, SIGTERM or a closed output, everything is
//! removed, and [`traces`] looks whether that is true: namespaces, processes, files and
//! interfaces. What a killed demonstration left is removed by the next one under the same name.
//!
//! What it is not: it is no benchmark (numbers are of one run of a second or two; `make bench`
//! measures), no test (tests run it), and it knows nothing of the protocol: the program that it
//! shows is started as a user would start it, and only its output is read.
//!
//! In order of use: [`screen`] is what is printed, `stage` is hosts with commands running in
//! them, `network`, `link` and `sites` are what is shown, `report` reads numbers from what programs
//! print, `pcap` counts in a capture.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use lab::sys;

mod link;
mod network;
mod pcap;
mod report;
pub mod screen;
mod sites;
mod stage;
pub mod traces;

use screen::Screen;
use stage::Stage;
use traces::Traces;

/// What the demonstration runs, and the Debian package that has it.
const PROGRAMS: [(&str, &str); 7] = [
    ("busybox", "busybox-static"),
    ("curl", "curl"),
    ("ip", "iproute2"),
    ("iperf3", "iperf3"),
    ("ping", "iputils-ping"),
    ("tcpdump", "tcpdump"),
    ("wg", "wireguard-tools"),
];
/// What sites need beside these.
const FOR_SITES: [(&str, &str); 4] = [
    ("nft", "nftables"),
    ("openssl", "openssl"),
    ("python3", "python3"),
    ("ssh", "openssh-client"),
];

/// How to go about it.
#[derive(Debug, Clone)]
pub struct Options {
    /// The lab's name, the prefix of its namespaces.
    pub lab: String,
    /// The program to show: `warren` itself.
    pub program: PathBuf,
    /// The laboratory's program, which the demonstration's proxy is.
    pub laboratory: PathBuf,
    /// Where `make demo-sites` puts what plays clouds.
    pub tools: PathBuf,
    /// Smaller amounts, for tests.
    pub quick: bool,
    /// What is shown.
    pub play: Play,
}

/// What can be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Play {
    /// A server and six nodes.
    Network,
    /// Two hosts and a router between them.
    Link,
    /// Three sites of two machines each, in clouds that are played.
    Sites,
}

impl Play {
    /// Its hosts, and the name of their file. `warren-lab up` can build those of a file, too.
    fn topology(self, tools: &Path) -> Result<(Cow<'static, str>, &'static str)> {
        Ok(match self {
            Self::Network => {
                (include_str!("../../lab/topologies/six-nodes.toml").into(), "six-nodes.toml")
            }
            Self::Link => {
                (include_str!("../../lab/topologies/two-hosts.toml").into(), "two-hosts.toml")
            }
            Self::Sites => (sites::topology(tools)?.into(), "sites.toml"),
        })
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Network => "A server and six machines, in places as bad as places are",
            Self::Link => "A network: alice and bob, and a router between them",
            Self::Sites => "Three sites of two machines each, which know nothing of each other",
        }
    }
}

/// Shows the link at work, and removes everything again.
///
/// # Errors
/// Returns the first thing that failed, or what could not be removed. SIGINT and SIGTERM, once
/// this is called, are such an error.
pub fn run(options: &Options, screen: &mut Screen) -> Result<()> {
    ensure!(
        sys::is_root(),
        "the demo needs root, because its hosts are network namespaces: run `sudo warren-lab demo`"
    );
    check_programs(&PROGRAMS)?;
    if options.play == Play::Sites {
        check_programs(&FOR_SITES)?;
    }
    sys::catch_interrupts();
    let begin = Instant::now();
    let mut traces = Traces::before(&options.lab);
    let mut shown = act(options, screen, &mut traces);
    if let Err(error) = &shown
        && sys::check_interrupted().is_err()
    {
        // Whatever failed, failed because of this.
        let what = error.chain().next_back().map(ToString::to_string).unwrap_or_default();
        shown = Err(anyhow::anyhow!("{what}")).context("the demo was not shown to its end");
    }
    let left = traces.left();
    if left.is_empty() {
        let what = "nothing is left: no namespace, process, file or interface";
        let told = screen.done(what, None);
        let summary = shown?;
        told?;
        return Ok(screen.end(options.play, &summary, begin.elapsed())?);
    }
    let left = left.join(", ");
    match shown {
        Ok(_) => bail!("left behind: {left}"),
        Err(error) => Err(error.context(format!("left behind: {left}"))),
    }
}

/// The demonstration from the first host to the last being gone.
fn act(
    options: &Options,
    screen: &mut Screen,
    traces: &mut Traces,
) -> Result<Vec<(String, String)>> {
    let (topology, file) = options.play.topology(&options.tools)?;
    screen.heading(options.play.title())?;
    let mut stage = Stage::build(options, &topology, file, screen)?;
    traces.watch(&stage);
    let shown = match options.play {
        Play::Network => network::all(&mut stage, options.quick),
        Play::Link => link::all(&mut stage, options.quick),
        Play::Sites => sites::all(&mut stage, options),
    };
    if let Err(error) = &shown {
        // Who cannot be told anything is not told why, either.
        let _ = stage.tell(error);
    }
    let removed = stage.strike();
    let summary = shown?;
    removed?;
    Ok(summary)
}

fn check_programs(needed: &[(&str, &str)]) -> Result<()> {
    let missing: Vec<_> = needed.iter().filter(|(program, _)| !is_on_path(program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = missing.iter().map(|(program, _)| *program).collect();
    let packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    bail!(
        "the demo needs {}, not found here: run `make setup`, or `apt-get install {}`",
        names.join(", "),
        packages.join(" ")
    )
}

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = std::env::split_paths(&path);
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    own.chain(system).any(|dir: PathBuf| Path::join(&dir, program).is_file())
}
