//! What is logged, and where: lines on standard error, coloured on terminals only.

use std::io::{self, IsTerminal};

use clap::ValueEnum;
use tracing_subscriber::filter::LevelFilter;

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
    let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .with_ansi(colour)
        .with_writer(io::stderr)
        .init();
}
