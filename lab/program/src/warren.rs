//! Where `warren` is, the program that is measured and shown.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

/// The program that was named, or the one beside this, or the first one on PATH.
pub(crate) fn find(named: Option<PathBuf>) -> Result<PathBuf> {
    if let Some(named) = named {
        ensure!(named.is_file(), "--warren {}: there is no such program", named.display());
        // Commands are run in other folders than this one.
        return std::path::absolute(&named).context("cannot tell where this folder is");
    }
    let beside = own()?.with_file_name("warren");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).map(|folder| folder.join("warren"));
    std::iter::once(beside).chain(places).find(|place| place.is_file()).context(
        "cannot find the program `warren`, neither beside this one nor on PATH: \
         build it with `make build`, or say --warren PATH",
    )
}

/// This program's own file.
pub(crate) fn own() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find this program's own file")
}

/// Where `make` puts tools, beside the folder of this program: moto, sshd.
pub(crate) fn tools() -> PathBuf {
    let own = own().unwrap_or_default();
    own.parent().and_then(std::path::Path::parent).unwrap_or(&own).join("tools")
}
