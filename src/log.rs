//! What is logged, and where: lines on standard error, coloured on terminals only.

use std::io::{self, IsTerminal};

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
        .finish();
    tracing::subscriber::set_global_default(lines.with(filter)).expect("logging begins once");
}
