//! A host of a measurement, as a contestant finds it.

use std::path::PathBuf;

use lab::netns::Host;

/// One of the hosts that are to be joined.
#[derive(Debug, Clone)]
pub struct End {
    /// The host.
    pub host: Host,
    /// Its address on the ground, without a mask.
    pub outer: String,
    /// A folder that all hosts of the lab see.
    pub shared: PathBuf,
}
