//! What systemd is told by those whom it started so that it wants to know (sd_notify(3)): that we
//! are ready, and from then on that we live. One datagram a word, to the address that it gave us.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

/// Tells systemd, if it started us so that it wants to know (sd_notify(3)), that we are ready.
pub fn notify_ready() {
    if let Err(error) = notify(b"READY=1") {
        tracing::warn!("cannot tell systemd that we are ready: {error}");
    }
}

/// Sends a line to whoever started us, if it gave an address for that.
fn notify(line: &[u8]) -> io::Result<()> {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let socket = UnixDatagram::unbound()?;
    // An abstract name begins with @ in the variable and with a zero byte on the wire.
    match path.as_encoded_bytes().strip_prefix(b"@") {
        Some(name) => {
            use std::os::linux::net::SocketAddrExt;
            let name = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
            socket.send_to_addr(line, &name).map(drop)
        }
        None => socket.send_to(line, &path).map(drop),
    }
}

/// What systemd wants to hear from a service with `WatchdogSec=`: that it lives. One that is silent
/// for so long is killed and started anew.
#[derive(Debug)]
pub struct Watchdog {
    every: Duration,
    told: Option<Instant>,
}

impl Watchdog {
    /// The one that systemd asks for, if it asks this process.
    #[must_use]
    pub fn from_environment() -> Option<Self> {
        let said = |name| std::env::var(name).ok();
        let every = interval(said("WATCHDOG_USEC"), said("WATCHDOG_PID"), std::process::id())?;
        Some(Self { every, told: None })
    }

    /// How often it wants to be told.
    #[must_use]
    pub const fn every(&self) -> Duration {
        self.every
    }

    /// Whether it is to be told now.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.told.is_none_or(|told| told.elapsed() >= self.every)
    }

    /// Tells it that we live. What fails will be tried again.
    pub fn tell(&mut self) {
        match notify(b"WATCHDOG=1") {
            Ok(()) => self.told = Some(Instant::now()),
            Err(error) => tracing::debug!("cannot tell systemd that we live: {error}"),
        }
    }
}

/// A third of the time after which this process would be taken for dead.
fn interval(usec: Option<String>, pid: Option<String>, own: u32) -> Option<Duration> {
    let is_ours = pid.is_none_or(|pid| pid.parse() == Ok(own));
    let usec: u64 = usec?.parse().ok()?;
    (is_ours && usec > 0).then(|| Duration::from_micros(usec / 3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rl_13_a_watchdog_is_told_three_times_before_it_would_bite_and_only_by_whom_it_asks() {
        let text = |text: &str| Some(text.to_owned());
        let second = Some(Duration::from_secs(1));
        assert_eq!(interval(text("3000000"), None, 7), second);
        assert_eq!(interval(text("3000000"), text("7"), 7), second);
        assert_eq!(interval(text("3000000"), text("8"), 7), None, "another process");
        for none in [None, text("0"), text("soon"), text("-1")] {
            assert_eq!(interval(none, None, 7), None);
        }
    }
}
