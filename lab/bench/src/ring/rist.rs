//! A video over RIST, as source 002 has it: its picture and sound, its receiver and its counts.
//!
//! The source encodes 3840 × 2160 at 30 frames a second while it sends. Two processors that all
//! hosts share could not, so here the same clip is encoded once for a run ([`make_clip`]) and then
//! sent as it is, in its own time, by ffmpeg. It comes to some 3 Mbit/s. At the other end is
//! `ristreceiver` with a buffer of 400 ms, whose count of each second is read ([`seconds`]). What
//! it hands on is kept ([`Recorder`]) and taken apart again into frames ([`frames`]), which are
//! compared with those that were sent ([`Compared`]).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use lab::Process;
use lab::netns::Host;
use lab::sys;
use serde_json::Value;

use crate::load;

/// The receiver's port, and what it waits for what is sent again.
pub(super) const PORT: u16 = 40_052;
pub(super) const BUFFER_MS: u32 = 400;
/// Where the receiver hands on what came, within its host.
const OUT: &str = "127.0.0.1:1234";
/// A recorder keeps no more than this: more than ten minutes at the clip's cap of 25 Mbit/s.
const RECORD_BYTES_MAX: u64 = 2 << 30;
/// Packets have numbers of 16 bits, of which those of a stream begin at 0: at its end a receiver
/// often takes the rest of them for lost. More than half of all are none.
const LOST_MAX: f64 = 32_768.0;
/// What may wait to be recorded.
const RECORD_BUFFER_BYTES: i32 = 8 << 20;
/// What one encoded second may take; a processor that is shared needs two.
const ENCODE_MAX: Duration = Duration::from_secs(20);
const HINT: &str = "install the packages ffmpeg and rist-tools";

/// Fails where a program is missing, or ffmpeg was built without RIST.
pub(super) fn ensure_programs() -> Result<()> {
    let said = |program: &str, words: &[&str]| -> Result<String> {
        let output = Command::new(program).args(words).stdin(Stdio::null()).output();
        let output = output.with_context(|| format!("cannot run `{program}`: {HINT}"))?;
        Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let protocols = said("ffmpeg", &["-hide_banner", "-protocols"])?;
    let has_rist = protocols.lines().any(|line| line.trim() == "rist");
    ensure!(has_rist, "this ffmpeg cannot send RIST: use one with librist, as Debian's is");
    said("ristreceiver", &["--help"]).map(drop)
}

/// Makes the clip of so many seconds in this folder, where it is not there already.
///
/// # Errors
/// Returns an error when ffmpeg fails, and when a signal asks this process to end.
pub(super) fn make_clip(dir: &Path, length_s: u32) -> Result<PathBuf> {
    let clip = clip_path(dir, length_s);
    if clip.exists() {
        return Ok(clip);
    }
    let new = clip.with_extension("new");
    let picture = format!("testsrc=size=3840x2160:rate=30:duration={length_s}");
    let sound = format!("sine=frequency=1000:duration={length_s}");
    let mut command = Command::new("ffmpeg");
    command
        .args(["-nostdin", "-hide_banner", "-loglevel", "error", "-y"])
        .args(["-f", "lavfi", "-i", &picture, "-f", "lavfi", "-i", &sound])
        .args(["-c:v", "libx264", "-preset", "ultrafast", "-tune", "zerolatency"])
        .args(["-b:v", "25M", "-maxrate", "25M", "-bufsize", "2M", "-g", "50"])
        .args(["-pix_fmt", "yuv420p", "-c:a", "aac", "-b:a", "128k", "-f", "mpegts"])
        .arg(&new);
    let log = dir.join("clip.log");
    let encoding = Process::start(command, &log).context(HINT)?;
    let said = load::finish(&encoding, ENCODE_MAX * length_s).context("the clip to be sent")?;
    let status = encoding.wait(Duration::from_secs(1))?;
    ensure!(status.success(), "ffmpeg did not make the clip to be sent: {}", said.trim());
    fs::rename(&new, &clip).with_context(|| format!("cannot write {}", clip.display()))?;
    let _ = fs::remove_file(log);
    Ok(clip)
}

/// Where it lies, until the run is done.
pub(super) fn clip_path(dir: &Path, length_s: u32) -> PathBuf {
    dir.join(format!("clip-{length_s}s.ts"))
}

/// The digests of all frames of the picture in a file, in order.
///
/// # Errors
/// Returns an error when ffmpeg cannot be run. A file that holds no picture has no frames.
pub(super) fn frames(file: &Path) -> Result<Vec<String>> {
    let output = Command::new("ffmpeg")
        .args(["-nostdin", "-hide_banner", "-loglevel", "error", "-f", "mpegts", "-i"])
        .arg(file)
        .args(["-map", "0:v:0", "-c", "copy", "-f", "framemd5", "-"])
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run `ffmpeg`: {HINT}"))?;
    Ok(digests(&String::from_utf8_lossy(&output.stdout)))
}

/// The digest in each line of framemd5: stream, two times, duration, size, digest.
fn digests(text: &str) -> Vec<String> {
    let digest = |line: &str| Some(line.split(',').nth(5)?.trim().to_owned());
    text.lines().filter(|line| !line.starts_with('#')).filter_map(digest).collect()
}

/// Frames that were sent, beside those that came, from the first that did: a receiver takes nothing
/// before its session stands, and without a VPN as well the first frames find none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Compared {
    pub(super) sent: usize,
    /// Sent, and not among those that came.
    pub(super) missing: usize,
    /// Came, and not as one of those that were sent.
    pub(super) damaged: usize,
}

impl Compared {
    pub(super) fn of(sent: &[String], came: &[String]) -> Self {
        let set = |frames: &[String]| frames.iter().cloned().collect::<BTreeSet<String>>();
        let there = set(came);
        let known = set(sent);
        let begin = sent.iter().position(|frame| there.contains(frame)).unwrap_or(0);
        let sent = &sent[begin..];
        Self {
            sent: sent.len(),
            missing: sent.iter().filter(|frame| !there.contains(*frame)).count(),
            damaged: came.iter().filter(|frame| !known.contains(*frame)).count(),
        }
    }
}

/// What the receiver counted in one second.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Second {
    /// 0 to 100, without what follows the point, as source 002 reads it.
    pub(super) quality: f64,
    pub(super) received: f64,
    /// For good.
    pub(super) lost: f64,
    pub(super) recovered: f64,
    /// The last round trip of the session, in whole milliseconds.
    pub(super) rtt_ms: f64,
    /// The receiver's own mean of them, which source 002 reads.
    pub(super) rtt_mean_ms: f64,
}

/// The seconds in which something came, or should have, out of what `ristreceiver` printed.
/// Source 002 takes the silent ones before and behind the stream, too, and each of those has a
/// quality of 100.
pub(super) fn seconds(log: &str) -> Vec<Second> {
    let all = log.lines().filter_map(|line| {
        let told: Value = serde_json::from_str(&line[line.find('{')?..]).ok()?;
        let flow = &told["receiver-stats"]["flowinstant"];
        let stats = &flow["stats"];
        let count = |name: &str| stats[name].as_f64().filter(|n| n.is_finite() && *n >= 0.0);
        let peer = flow["peers"].as_array().and_then(|peers| peers.first()).map(|p| &p["stats"]);
        let of_peer = |name: &str| peer.and_then(|peer| peer[name].as_f64()).unwrap_or(0.0);
        Some(Second {
            quality: count("quality")?.trunc(),
            received: count("received")?,
            lost: count("lost").map(|lost| if lost < LOST_MAX { lost } else { 0.0 })?,
            recovered: count("recovered_total")?,
            rtt_ms: of_peer("rtt"),
            rtt_mean_ms: of_peer("avg_rtt"),
        })
    });
    all.filter(|second| second.received + second.lost + second.recovered > 0.0).collect()
}

/// Keeps what the receiver hands on, until it is told to stop.
#[derive(Debug)]
pub(super) struct Recorder {
    file: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<u64>>>,
}

impl Recorder {
    /// Begins in this host; `file` is its own.
    ///
    /// # Errors
    /// The port is taken, or the file cannot be made.
    pub(super) fn start(host: &Host, file: PathBuf) -> Result<Self> {
        let socket = sys::in_netns(&host.path(), || UdpSocket::bind(OUT))?
            .with_context(|| format!("cannot listen at {OUT}"))?;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        // A clip begins with a burst of more than 92 datagrams, which is all that others have.
        sys::widen_receive_buffer(&socket, RECORD_BUFFER_BYTES).context("no room for bursts")?;
        let mut out =
            File::create(&file).with_context(|| format!("cannot write {}", file.display()))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let thread = std::thread::spawn(move || record(&socket, &mut out, &stopping));
        Ok(Self { file, stop, thread: Some(thread) })
    }

    /// Ends it: how many bytes came, and where they are.
    ///
    /// # Errors
    /// The disk is full, or more came than was sent.
    pub(super) fn finish(mut self) -> Result<(u64, PathBuf)> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("it has ended already")?;
        let bytes = thread.join().unwrap_or_else(|_| bail!("the recorder panicked"))?;
        Ok((bytes, self.file.clone()))
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn record(socket: &UdpSocket, out: &mut File, stop: &AtomicBool) -> Result<u64> {
    let mut datagram = vec![0; 65_536];
    let mut bytes = 0;
    loop {
        match socket.recv(&mut datagram) {
            Ok(length) => {
                bytes += length as u64;
                ensure!(bytes <= RECORD_BYTES_MAX, "the receiver hands on more than was sent");
                out.write_all(&datagram[..length]).context("cannot keep what came")?;
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                // What is there already is kept.
                if stop.load(Ordering::Relaxed) {
                    return Ok(bytes);
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("the receiver's output"),
        }
    }
}

/// The number behind the last `frame=` of what ffmpeg printed.
pub(super) fn frames_sent(log: &str) -> Option<usize> {
    let last = log.rsplit("frame=").next().filter(|_| log.contains("frame="))?;
    last.split_whitespace().next()?.parse().ok()
}

/// An address as it stands in a URL.
pub(super) fn in_url(address: &str) -> String {
    if address.contains(':') { format!("[{address}]") } else { address.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second as the receiver prints it.
    fn line(stats: &str, peer: &str) -> String {
        format!(
            r#"1795945319.01|0.0|[INFO] {{"receiver-stats":{{"flowinstant":{{"flow_id":1,
            "stats":{{{stats}}},"peers":[{peer}]}}}}}}"#
        )
        .replace('\n', "")
    }

    fn log() -> String {
        [
            "1795945317.75|0.0|[INFO] Starting ristreceiver version: 0.2.7".to_owned(),
            line(
                r#""quality":100,"received":0,"lost":0,"recovered_total":0"#,
                r#"{"id":2,"stats":{"rtt":6,"avg_rtt":44}}"#,
            ),
            line(
                r#""quality":99.93,"received":295,"lost":2,"recovered_total":7"#,
                r#"{"id":2,"stats":{"rtt":10,"avg_rtt":19}}"#,
            ),
            line(r#""quality":0,"received":0,"lost":9,"recovered_total":0"#, ""),
            line(r#""quality":100,"received":1,"lost":55821,"recovered_total":0"#, ""),
            r#"1795945322.01|0.0|[INFO] {"receiver-stats":{"flowinstant":{"#.to_owned(),
        ]
        .join("\n")
    }

    #[test]
    fn the_receivers_seconds_are_read_as_the_source_reads_them() {
        let read = seconds(&log());
        let first = Second {
            quality: 99.0,
            received: 295.0,
            lost: 2.0,
            recovered: 7.0,
            rtt_ms: 10.0,
            rtt_mean_ms: 19.0,
        };
        let none = Second::default();
        let last = Second { quality: 100.0, received: 1.0, ..none };
        assert_eq!(read, [first, Second { lost: 9.0, ..none }, last]);
        for nonsense in ["", "{", "{}", r#"{"receiver-stats":{}}"#, "x{\"receiver-stats\":7}"] {
            assert_eq!(seconds(nonsense), [], "{nonsense:?}");
        }
    }

    #[test]
    fn frames_that_are_missing_and_frames_that_are_damaged_are_told_apart() {
        let frames = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let sent = frames("a b c d");
        let of = |came: &str| {
            let compared = Compared::of(&sent, &frames(came));
            (compared.missing, compared.damaged)
        };
        assert_eq!(of("a b c d"), (0, 0));
        assert_eq!(of("a b d"), (1, 0));
        assert_eq!(of("a B c d"), (1, 1));
        assert_eq!(of("x"), (4, 1));
        assert_eq!(of("b d"), (1, 0), "a is of before the session");
    }

    #[test]
    fn what_ffmpeg_prints_is_read() {
        let text = "#format: frame checksums\n\
                    0,          0,          0,     3000,    63725, ac6a, S=1,  1, ec2d\n\
                    0,       3000,       3000,     3000,    20043, f6b7\n";
        assert_eq!(digests(text), ["ac6a", "f6b7"]);
        let progress = "frame=    1 fps=0.0 q=-1.0\rframe=  300 fps= 30 q=-1.0 size= 3822kB\n";
        assert_eq!(frames_sent(progress), Some(300));
        assert_eq!((frames_sent(""), frames_sent("frame=x")), (None, None));
        assert_eq!(
            (in_url("10.0.0.1"), in_url("fd00::1")),
            ("10.0.0.1".into(), "[fd00::1]".into())
        );
    }
}
