//! The test of a video over RIST.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use lab::sys;

use super::{Scene, beside, p99};
use crate::load;
use crate::ring::rist::{self, Compared, Recorder};

/// How long the sender may take beyond its clip, to begin and to end.
const PATIENCE: Duration = Duration::from_secs(30);
/// After the last packet: what is missing is asked for as long as the buffer holds, twice over.
const REST: Duration = Duration::from_millis(3 * rist::BUFFER_MS as u64);
/// The receiver tells whole milliseconds; less than one counts as one.
const RTT_LEAST_MS: f64 = 1.0;

impl Scene<'_> {
    pub(super) fn video(&mut self) -> Result<()> {
        let to = self.host(self.turn.to);
        let at = rist::in_url(self.vpn.address(self.turn.to));
        let clip = rist::make_clip(self.dir, self.seconds)?;
        let sent_frames = rist::frames(&clip)?;
        let before = self.before()?;
        let sent = before.sent;
        let recorder = Recorder::start(to, self.ground.ends[0].shared.join("came.ts"))?;
        let buffer = rist::BUFFER_MS;
        let listen = format!("rist://@{at}:{}?buffer={buffer}", rist::PORT);
        let words = ["-S", "1000", "-p", "1", "-v", "6"];
        let argv = ["ristreceiver", "-i", &listen, "-o", "udp://127.0.0.1:1234"];
        let hint = "cannot run `ristreceiver`: install the package rist-tools";
        let receiver = to.spawn(&[&argv[..], &words].concat()).context(hint)?;
        receiver.wait_for(|log| log.contains("receiver protocol loop"))?;
        let clip = clip.to_str().context("the path of the clip is not UTF-8")?;
        let url = format!("rist://{at}:{}", rist::PORT);
        let words = ["-nostdin", "-hide_banner", "-re", "-i", clip, "-c", "copy"];
        let argv = [&["ffmpeg"], &words[..], &["-f", "mpegts", &url]].concat();
        let hint = "cannot run `ffmpeg`: install the package ffmpeg";
        let sender = self.host(self.turn.from).spawn(&argv).context(hint)?;
        let ping = beside::Ping::start(self, self.turn.from, self.turn.to)?;
        let said = load::finish(&sender, Duration::from_secs(self.seconds.into()) + PATIENCE)
            .context("the sender")?;
        let told = ping.finish(self.seconds)?;
        std::thread::sleep(REST);
        sys::check_interrupted()?;
        receiver.stop()?;
        let (bytes, came) = recorder.finish()?;
        let log = receiver.log();
        let seconds = rist::seconds(&log);
        ensure!(!seconds.is_empty() && bytes > 0, "no picture came; the receiver said:\n{log}");
        let count = rist::frames_sent(&said);
        let all = Some(sent_frames.len());
        ensure!(count == all, "the sender ended after {count:?} of {all:?} frames:\n{said}");
        self.after(before, bytes as f64)?;
        if let Some((old, new)) = sent.zip(self.ground.sent_bytes(self.turn.from)) {
            self.put("wire_bytes_per_byte", (new - old) as f64 / bytes as f64);
        }
        told.put(self);
        self.put_seconds(&seconds);
        self.put_frames(Compared::of(&sent_frames, &rist::frames(&came)?));
        Ok(())
    }

    fn put_seconds(&mut self, seconds: &[rist::Second]) {
        let mean = |of: fn(&rist::Second) -> f64| {
            seconds.iter().map(of).sum::<f64>() / seconds.len() as f64
        };
        // In the first second the receiver counts what came before the packet that it took for the
        // first as 2^16 packets less, without a VPN as well.
        let sum = |of: fn(&rist::Second) -> f64| seconds.iter().skip(1).map(of).sum::<f64>();
        self.put("video_quality_percent", mean(|second| second.quality));
        self.put("video_lost_packets", sum(|second| second.lost));
        self.put("video_recovered_packets", sum(|second| second.recovered));
        self.put("session_rtt_mean_ms", mean(|second| second.rtt_mean_ms).max(RTT_LEAST_MS));
        let rtts: Vec<f64> = seconds.iter().map(|second| second.rtt_ms).collect();
        self.put("session_rtt_p99_ms", p99(&rtts).max(RTT_LEAST_MS));
        let quality = seconds.iter().map(|second| second.quality).collect();
        self.outcome.series.insert("video_quality_percent".to_owned(), quality);
        self.outcome.series.insert("session_rtt_ms".to_owned(), rtts);
    }

    fn put_frames(&mut self, frames: Compared) {
        let percent = |count: usize| count as f64 / frames.sent.max(1) as f64 * 100.0;
        self.put("frames_missing_percent", percent(frames.missing));
        self.put("frames_damaged_percent", percent(frames.damaged));
    }
}
