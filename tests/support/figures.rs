//! Figures that `make home` asks for. Each test keeps its own in the folder `WARREN_FIGURES`.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde_json::Value;

fn folder() -> Option<PathBuf> {
    std::env::var_os("WARREN_FIGURES").map(PathBuf::from)
}

/// Whether somebody asks: then a measurement takes its time.
pub fn are_wanted() -> bool {
    folder().is_some()
}

/// Keeps the figures of this name, where somebody asks.
pub fn keep(name: &str, figures: &Value) -> Result<()> {
    let Some(folder) = folder() else { return Ok(()) };
    std::fs::create_dir_all(&folder)?;
    let file = folder.join(format!("{name}.json"));
    std::fs::write(&file, format!("{figures:#}\n")).with_context(|| file.display().to_string())
}

/// The machine's load, averaged over a minute.
pub fn load() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/loadavg")?;
    Ok(text.split(' ').next().context("no load")?.parse()?)
}

/// With two digits behind the point.
pub fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
