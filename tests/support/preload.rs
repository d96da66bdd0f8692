//! Libraries that stand before the C library's own functions, compiled by the tests that use them.
//! Statically linked programs do not notice them.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

/// The kernel's and a card's refusals: see its source.
pub const REFUSING: &str = "tests/support/refusing.rs";

/// Compiles `source`, a path in the repository, into `dir`; returns what `LD_PRELOAD` is to say.
pub fn library(source: &str, dir: &Path) -> Result<String> {
    let stem = Path::new(source).file_stem().unwrap_or_default().to_string_lossy();
    let library = dir.join(format!("lib{stem}.so"));
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let status = Command::new(rustc)
        .args(["--crate-type", "cdylib", "--edition", "2024", "-O", "-C", "panic=abort", "-o"])
        .arg(&library)
        .arg(source)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()?;
    ensure!(status.success(), "the preloaded library does not compile");
    Ok(library.to_string_lossy().into_owned())
}
