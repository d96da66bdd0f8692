//! `warren lab`: networks to test on, made of namespaces.

use anyhow::{Result, bail};

/// Make networks to test on, out of namespaces.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Does what the words say.
pub(crate) fn run(_: Args) -> Result<()> {
    bail!("the lab is not part of this build; build it with src/lab.rs of its own")
}
