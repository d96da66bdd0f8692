//! `--frames`: what is spoken between two Warren nodes beside WireGuard.

use clap::ValueEnum;

/// What the option does, in its help.
pub(crate) const HELP: &str = "Whether to repair loss and disorder between Warren nodes; off is \
                               plain WireGuard toward everybody";

/// What `--compress` does, in its help.
pub(crate) const COMPRESS: &str = "Whether to compress what goes to Warren nodes; lengths then \
                                   tell of contents, so it is off unless asked for";

/// On or off. Of frames: whether they are spoken with peers that know them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Frames {
    /// It is done.
    On,
    /// It is not.
    Off,
}

impl Frames {
    /// The word for it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}
