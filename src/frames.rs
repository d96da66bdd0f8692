//! `--frames`: what is spoken between two Warren nodes beside WireGuard.

use clap::ValueEnum;

/// What the option does, in its help.
pub(crate) const HELP: &str = "Whether to repair loss and disorder between Warren nodes; off is \
                               plain WireGuard toward everybody";

/// Whether frames are spoken with peers that know them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Frames {
    /// With peers that know them.
    On,
    /// With nobody.
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
