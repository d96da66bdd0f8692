//! `warren circuit`: a chain of hops of which none sees both ends.

mod directory;

use std::ffi::OsString;
use std::io::Write;
use std::process::{ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use ::daemon::Client;
use ::daemon::protocol::{CircuitAsk, Request, Wanted};
use anyhow::{Context, Result, bail};
use clap::Subcommand;
use host::linux::room::{Door, Room};
use node::circuit::End;
use serde_json::Value;

use crate::client::{Target, text, texts};

/// How often the daemon is asked how a circuit is.
const LOOK: Duration = Duration::from_millis(20);
const LOOK_LATER: Duration = Duration::from_millis(250);
/// A circuit that does not carry by then is given up: longer than the daemon tries itself.
const OPEN_WITHIN: Duration = Duration::from_secs(60);
/// So many are begun, where hops are not named: the next one leaves out who did not answer.
const OPEN_TRIES: usize = 3;
/// What a command ends with that a signal ended, as shells have it.
const SIGNALLED: i32 = 128;

/// Lead packets through a chain of nodes of which none knows both ends.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: CircuitCommand,
}

// What each does is said by its words: a comment here would take the place of theirs.
#[derive(Debug, Subcommand)]
enum CircuitCommand {
    /// Build a circuit, and print its number when it carries
    Open {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        path: Path,
    },
    /// All circuits of this node
    List {
        #[command(flatten)]
        target: Target,
    },
    /// One circuit: its hops, and what each of them knows
    Show {
        #[command(flatten)]
        target: Target,
        /// Its number
        id: u16,
    },
    /// End a circuit
    Close {
        #[command(flatten)]
        target: Target,
        /// Its number
        id: u16,
    },
    /// Hops of several operators: sign, check and show the file that names them
    #[command(subcommand)]
    Directory(directory::Words),
    /// Run a command whose only way out is a circuit of its own
    Run {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        path: Path,
        /// The command
        #[arg(required = true, last = true, value_name = "COMMAND")]
        command: Vec<OsString>,
    },
}

/// Over which hops.
#[derive(Clone, Debug, clap::Args)]
struct Path {
    /// How many hops [default: 3]
    #[arg(long, value_name = "N")]
    hops: Option<usize>,
    /// These hops, in this order
    #[arg(long, value_name = "A,B,C", value_delimiter = ',')]
    via: Vec<String>,
    /// The last hop
    #[arg(long, value_name = "NAME")]
    exit: Option<String>,
}

impl Path {
    fn wanted(self, again: bool) -> Wanted {
        Wanted { hops: self.hops, via: self.via, exit: self.exit, again }
    }
}

impl Args {
    /// Which daemon, if one is asked.
    pub(crate) fn target(&mut self) -> Option<&mut Target> {
        Some(match &mut self.command {
            CircuitCommand::Directory(_) => return None,
            CircuitCommand::Open { target, .. }
            | CircuitCommand::List { target }
            | CircuitCommand::Show { target, .. }
            | CircuitCommand::Close { target, .. }
            | CircuitCommand::Run { target, .. } => target,
        })
    }
}

/// Does what is asked.
pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let done = match args.command {
        CircuitCommand::Open { target, path } => open(&target, path),
        CircuitCommand::List { target } => {
            let answer = ask(&mut target.connect()?, CircuitAsk::List)?;
            target.print(&answer, |answer| {
                let list = answer["circuits"].as_array().into_iter().flatten();
                list.map(|circuit| line(circuit) + "\n").collect()
            })
        }
        CircuitCommand::Show { target, id } => {
            let answer = ask(&mut target.connect()?, CircuitAsk::Show { id })?;
            target.print(&answer, shown)
        }
        CircuitCommand::Close { target, id } => {
            let answer = ask(&mut target.connect()?, CircuitAsk::Close { id })?;
            target.print(&answer, |_| String::new())
        }
        CircuitCommand::Directory(words) => directory::run(words),
        CircuitCommand::Run { target, path, command } => {
            return inside(&target, path, &command);
        }
    };
    done.map(|()| ExitCode::SUCCESS)
}

fn ask(client: &mut Client, ask: CircuitAsk) -> Result<Value> {
    Ok(client.ask(&Request::Circuit { ask })?)
}

/// Begins a circuit and waits until it carries.
fn begin(client: &mut Client, wanted: Wanted) -> Result<Value> {
    let is_kept = wanted.again;
    let mut left = if wanted.via.is_empty() { OPEN_TRIES } else { 1 };
    let mut id = ask_open(client, &wanted)?;
    let end = Instant::now() + OPEN_WITHIN;
    loop {
        let circuit = ask(client, CircuitAsk::Show { id })?;
        match text(&circuit, "state") {
            "open" => return Ok(circuit),
            // The daemon builds it anew, and what was silent may answer then.
            "closed" if is_kept && is_passing(text(&circuit, "reason")) && Instant::now() < end => {
                std::thread::sleep(LOOK_LATER);
            }
            "closed" => {
                let why = text(&circuit, "why").to_owned();
                let is_passing = is_passing(text(&circuit, "reason"));
                let _ = ask(client, CircuitAsk::Close { id });
                left -= 1;
                if left == 0 || !is_passing {
                    bail!("the circuit was not built: {why}");
                }
                id = ask_open(client, &wanted)?;
            }
            _ if Instant::now() > end => bail!("the circuit was not built in time"),
            _ => std::thread::sleep(LOOK),
        }
    }
}

fn ask_open(client: &mut Client, wanted: &Wanted) -> Result<u16> {
    let answer = ask(client, CircuitAsk::Open(wanted.clone()))?;
    let id = answer["id"].as_u64().and_then(|id| u16::try_from(id).ok());
    id.context("the daemon said no number")
}

/// Whether a circuit that ended for this reason may be built a moment later.
fn is_passing(reason: &str) -> bool {
    [End::Silent, End::Unreachable, End::Busy].iter().any(|end| end.name() == reason)
}

fn open(target: &Target, path: Path) -> Result<()> {
    let circuit = begin(&mut target.connect()?, path.wanted(false))?;
    warn(&circuit)?;
    target.print(&circuit, |circuit| format!("{}\n", circuit["id"]))
}

fn warn(circuit: &Value) -> Result<()> {
    let mut out = std::io::stderr().lock();
    for why in texts(&circuit["warnings"]) {
        writeln!(out, "warren: a circuit does not hide all: {why}")?;
    }
    Ok(())
}

/// Runs a command in a room of its own, and ends as it ended.
fn inside(target: &Target, path: Path, command: &[OsString]) -> Result<ExitCode> {
    let mut client = target.connect()?;
    let circuit = begin(&mut client, path.wanted(true))?;
    warn(&circuit)?;
    let id = circuit["id"].as_u64().and_then(|id| u16::try_from(id).ok());
    let id = id.context("the daemon said no number")?;
    let ended = accompany(target, &mut client, id, &circuit, command);
    let _ = ask(&mut client, CircuitAsk::Close { id });
    let status = ended?;
    let code = status.code().unwrap_or_else(|| SIGNALLED + signal(status));
    Ok(u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from))
}

fn signal(status: ExitStatus) -> i32 {
    std::os::unix::process::ExitStatusExt::signal(&status).unwrap_or(0)
}

fn accompany(
    target: &Target,
    client: &mut Client,
    id: u16,
    circuit: &Value,
    command: &[OsString],
) -> Result<ExitStatus> {
    let room = Room::new(Door {
        id,
        address: text(circuit, "address").parse().context("the circuit has no address")?,
        link: text(circuit, "interface").to_owned(),
        mtu: circuit["mtu"].as_u64().and_then(|mtu| usize::try_from(mtu).ok()).unwrap_or(1280),
        names: node::circuit::NAME_ADDRESS,
        leads_six: circuit["ipv6"].as_bool().unwrap_or(false),
    })
    .map_err(anyhow::Error::msg)?;
    let mut child = room.spawn(command).context("the command cannot be run")?;
    let mut was_open = true;
    let mut built = circuit["built_ms"].clone();
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for the command")? {
            return Ok(status);
        }
        std::thread::sleep(if was_open { LOOK_LATER } else { LOOK });
        // A daemon that is gone carries nothing; the room stays closed.
        let now = ask(client, CircuitAsk::Show { id });
        let is_open = now.as_ref().is_ok_and(|now| text(now, "state") == "open");
        if let Ok(now) = now.as_ref().map(|now| &now["built_ms"])
            && is_open
            && *now != built
        {
            // It may have been dead for less than a look.
            if was_open {
                say(id, "is dead; another carries in its place");
            }
            built = now.clone();
        }
        if is_open != was_open {
            was_open = is_open;
            let why = match &now {
                _ if is_open => "carries again".to_owned(),
                Ok(now) => format!(
                    "is dead ({}); nothing leaves until it is built again",
                    text(now, "why")
                ),
                Err(error) => format!("is dead ({error}); nothing leaves until it is built again"),
            };
            say(id, &why);
        }
        if now.is_err()
            && let Ok(again) = target.connect()
        {
            *client = again;
        }
    }
}

/// Tells whoever runs a command in a circuit what became of it.
fn say(id: u16, what: &str) {
    let _ = writeln!(std::io::stderr(), "warren: circuit {id} {what}");
}

pub(crate) fn line(circuit: &Value) -> String {
    let hops = circuit["hops"].as_array().into_iter().flatten();
    let names: Vec<&str> = hops.map(|hop| hop["name"].as_str().unwrap_or("?")).collect();
    let rtt = circuit["rtt_ms"].as_f64().map(|ms| format!(", {ms:.1} ms")).unwrap_or_default();
    let why = circuit["why"].as_str().map(|why| format!(": {why}")).unwrap_or_default();
    let lost = circuit["loss_percent"].as_f64().filter(|lost| *lost > 0.0);
    let lost = lost.map(|lost| format!(", {lost:.1} % lost")).unwrap_or_default();
    let silent = circuit["silent"].as_str().map(|hop| format!(" ({hop})")).unwrap_or_default();
    let use_of = match text(circuit, "use") {
        "circuit-for" => ", for the machine (--circuit-for)",
        "socks" => ", for a SOCKS user",
        _ => "",
    };
    let state = text(circuit, "state");
    let hops = names.join(" > ");
    format!("{} {hops} {state}{rtt}{lost}{why}{silent}{use_of}", circuit["id"])
}

fn shown(circuit: &Value) -> String {
    let mut text = line(circuit) + "\n";
    for hop in circuit["hops"].as_array().into_iter().flatten() {
        let name = &hop["name"];
        let knows = &hop["knows"];
        let name = name.as_str().unwrap_or("?");
        text += &format!("  {name} knows {}\n", knows.as_str().unwrap_or_default());
    }
    let out = &circuit["packets"]["out"];
    let back = &circuit["packets"]["in"];
    text += &format!("  {out} packets out, {back} in, of {} bytes at most\n", circuit["mtu"]);
    for why in texts(&circuit["warnings"]) {
        text += &format!("  not hidden: {why}\n");
    }
    text
}
