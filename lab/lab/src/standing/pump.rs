//! The pump's process: it holds a lab's wires and answers at a socket.
//!
//! A request is one line, an answer one line: `ready`, `wires` (JSON), `wire LINK`, `impair LINK
//! forth|back|both WORDS`, `stop`. What cannot be done is answered with the reason.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use sim::impair::Impairment;
use sim::profile;

use super::status::WireStatus;
use super::{is_gone, plan_of};
use crate::netns::state_dir;
use crate::topology::{Plan, start_wire, start_wires};
use crate::wire::{Direction, Wire};

/// Longest request and answer, bytes.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often the socket is looked at.
const TURN: Duration = Duration::from_millis(10);

type Wires = Vec<(String, Wire)>;

/// Runs the wires of lab `name` until told to stop, or until the lab's records are gone.
///
/// # Errors
/// Returns what could not be made.
pub fn pump(name: &str) -> Result<()> {
    let plan = plan_of(name)?;
    let mut wires = start_wires(&plan)?;
    let path = socket_path(name);
    let listener = UnixListener::bind(&path)
        .with_context(|| format!("cannot serve the socket {}", path.display()))?;
    listener.set_nonblocking(true)?;
    while path.exists() {
        match listener.accept() {
            Ok((stream, _)) => {
                // Whoever asked and went away needs no answer.
                if serve(stream, &plan, &mut wires).unwrap_or(false) {
                    break;
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(TURN),
            Err(error) => return Err(error).context("the pump's socket failed"),
        }
    }
    // It is gone if the lab was removed.
    let _ = fs::remove_file(&path);
    Ok(())
}

/// Whether `lab` has a pump.
pub(super) fn is_there(lab: &str) -> bool {
    socket_path(lab).exists()
}

/// Asks the pump of `lab`.
pub(super) fn ask(lab: &str, request: &str) -> Result<String> {
    let stream = UnixStream::connect(socket_path(lab)).map_err(|error| {
        let gone = is_gone(&error);
        let error = anyhow::Error::from(error);
        if gone { error.context(format!("no wires run in the lab {lab}")) } else { error }
    })?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    (&stream).write_all(format!("{request}\n").as_bytes())?;
    line(&stream).context("the pump of the wires does not answer")
}

/// Answers one request; true if it was to stop.
fn serve(stream: UnixStream, plan: &Plan, wires: &mut Wires) -> Result<bool> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = line(&stream)?;
    let mut words = request.split_whitespace();
    let answer = match words.next() {
        Some("ready" | "stop") => "ok".to_owned(),
        Some("wires") => serde_json::to_string(&WireStatus::of_all(wires))?,
        Some("wire") => said(make(plan, wires, words.next().unwrap_or_default())),
        Some("impair") => said(impair(wires, &words.collect::<Vec<_>>())),
        _ => format!("unknown request {request:?}"),
    };
    (&stream).write_all(format!("{answer}\n").as_bytes())?;
    Ok(request == "stop")
}

fn said(done: Result<()>) -> String {
    done.map_or_else(|error| format!("{error:#}"), |()| "ok".to_owned())
}

/// Makes a wire of a link that was none, and has no devices now.
fn make(plan: &Plan, wires: &mut Wires, name: &str) -> Result<()> {
    let link = plan.links.iter().find(|link| link.name == name);
    let link = link.with_context(|| format!("no link {name}"))?;
    wires.push((name.to_owned(), start_wire(plan, link, [Impairment::LINE; 2])?));
    Ok(())
}

fn impair(wires: &Wires, words: &[&str]) -> Result<()> {
    let [link, direction, words @ ..] = words else {
        anyhow::bail!("write impair LINK forth|back|both WORDS");
    };
    let found = wires.iter().find(|(name, _)| name == link);
    let (_, wire) = found.with_context(|| {
        let known = wires.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
        format!("no wire {link}: there are {known}")
    })?;
    let directions = match *direction {
        "forth" => &[Direction::Forth][..],
        "back" => &[Direction::Back],
        "both" => &Direction::BOTH,
        other => anyhow::bail!("unknown direction {other}: use forth, back or both"),
    };
    let mut changes = Vec::new();
    for direction in directions {
        let mut impairment = wire.impairment(*direction);
        for word in words {
            profile::apply(&mut impairment, word)?;
        }
        changes.push((*direction, impairment));
    }
    changes.into_iter().try_for_each(|(direction, impairment)| wire.impair(direction, impairment))
}

fn line(stream: &UnixStream) -> Result<String> {
    let mut text = String::new();
    BufReader::new(stream.take(LINE_BYTES_MAX)).read_line(&mut text)?;
    anyhow::ensure!(text.ends_with('\n'), "the line was cut short");
    text.truncate(text.trim_end().len());
    Ok(text)
}

fn socket_path(lab: &str) -> PathBuf {
    state_dir(lab).join("pump.sock")
}
