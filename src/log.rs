//! What is logged, and where: lines on standard error, coloured on terminals only. A line that
//! cannot be written is lost, and nothing else is: the terminal may be closed, the disk full.

use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;

/// What `--help` says of it where errors are logged if nobody asks for anything else.
pub(crate) const HELP_ERROR: &str = "How much to log [env: LOG_LEVEL] [default: error]";
/// The same where it is told what was done.
pub(crate) const HELP_INFO: &str = "How much to log [env: LOG_LEVEL] [default: info]";

/// How much is logged. `verbose` is another word for `debug`, as wireguard-go has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    /// Nothing.
    Silent,
    /// What went wrong.
    Error,
    /// And what is odd.
    Warn,
    /// And what was done.
    Info,
    /// And why.
    #[value(alias = "verbose")]
    Debug,
    /// Everything.
    Trace,
}

impl Level {
    /// What `LOG_LEVEL` says. Other programs read that, too: a word that is none of ours is not
    /// meant for us, and keeps nobody from starting, as with wireguard-go.
    pub(crate) fn from_environment() -> Option<Self> {
        Self::from_str(&std::env::var("LOG_LEVEL").ok()?, true).ok()
    }

    /// The word for it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// Begins logging.
pub(crate) fn start(level: Level) {
    let level = match level {
        Level::Silent => LevelFilter::OFF,
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    };
    // The library of QUIC warns with addresses, which are for who debugs.
    let library = if level == LevelFilter::OFF || level >= LevelFilter::DEBUG {
        level
    } else {
        LevelFilter::ERROR
    };
    let filter = Targets::new()
        .with_default(level)
        .with_targets(["quinn", "quinn_proto", "quinn_udp"].map(|name| (name, library)));
    let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let lines = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .with_ansi(colour)
        .with_writer(io::stderr)
        // It would be told on standard error, by a call that panics where that cannot be written.
        .log_internal_errors(false)
        .finish();
    tracing::subscriber::set_global_default(lines.with(filter)).expect("logging begins once");
}

/// Has the process end when one of a node's threads panics: with the rest of them it would neither
/// work nor be started anew. A panic of the first thread ends it anyhow, and tidies up on its way.
pub(crate) fn end_on_panic() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        tell(info);
        if std::thread::current().name() != Some("main") {
            let text = "warren: the program ends, for one of its threads panicked; report this";
            let _ = writeln!(io::stderr(), "{text}");
            #[expect(clippy::disallowed_methods, reason = "no loop is left that could tidy up")]
            std::process::abort();
        }
    }));
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Set for the process that is to panic.
    const PANICS: &str = "WARREN_TEST_PANICS";

    #[test]
    fn rl_13_a_thread_that_panics_ends_the_process_with_a_line() {
        if std::env::var_os(PANICS).is_some() {
            end_on_panic();
            let _ = std::thread::spawn(|| panic!("on purpose")).join();
            // Not reached: a process that lives on would end with success.
            return;
        }
        let name = "log::tests::rl_13_a_thread_that_panics_ends_the_process_with_a_line";
        let output = Command::new(std::env::current_exe().expect("it runs"))
            .args([name, "--exact", "--nocapture"])
            .env(PANICS, "1")
            .output()
            .expect("it can be run again");
        assert_eq!(output.status.code(), None, "a signal ended it: {output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("on purpose") && said.contains("threads panicked"), "{said}");
    }
}
