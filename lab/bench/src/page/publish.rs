//! One page for strangers, out of runs: `index.html` and beside it the raw data that it is made of.
//!
//! What we lose comes first. Then a chart stands for each claim, and the claim is the sentence
//! below it, made out of the same figures. A run without its samples has the medians that its
//! report wrote; then nothing is known of what failed, and the page says so. Nothing is fetched,
//! and nothing runs.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::cells::Cells;
use super::sections::{self, Section};
use super::svg::escape;
use super::{all_figures, html};
use crate::ring::sample::{self, Figure, Note, Sample};
use crate::vpn::WARREN;

mod found;
mod judged;
mod lost;

use judged::Judged;

const TITLE: &str = "Warren beside other VPNs";
const FOLDER: &str = "data";
const NOTE: &str = "run.json";
/// What of a run's folder can be downloaded.
const FILES: [&str; 3] = [NOTE, "samples.jsonl", "report.md"];

/// A run as it is published.
struct Run {
    name: String,
    note: Note,
    samples: Vec<Sample>,
    has_samples: bool,
    figures: Vec<Figure>,
    /// Each with its length in bytes.
    files: Vec<(&'static str, u64)>,
}

/// Writes the page of these runs into a folder; returns where it is. A run is a folder, or the file
/// of another bench's report.
///
/// # Errors
/// Returns an error when a folder holds no run, or one without figures, when a file is no report,
/// and when the page or the data cannot be written.
pub fn publish(runs: &[PathBuf], out: &Path) -> Result<PathBuf> {
    let mut all: Vec<Run> = Vec::new();
    let mut others: Vec<Judged> = Vec::new();
    for dir in runs {
        if let Some(other) = Judged::at(dir, &others)? {
            other.copy(out)?;
            others.push(other);
            continue;
        }
        let run = Run::read(dir, &all)?;
        run.copy(dir, &out.join(FOLDER).join(&run.name))?;
        all.push(run);
    }
    let page = out.join("index.html");
    fs::write(&page, render(&all, &others))
        .with_context(|| format!("cannot write {}", page.display()))?;
    Ok(page)
}

impl Run {
    fn read(dir: &Path, others: &[Self]) -> Result<Self> {
        let has_samples = dir.join("samples.jsonl").exists();
        let (note, samples) = match has_samples {
            true => sample::read(dir)?,
            false => (sample::read_note(dir)?, Vec::new()),
        };
        let figures = match has_samples {
            true => all_figures(&Cells::new(&note, &samples)),
            false => note.figures.clone(),
        };
        let place = dir.display();
        ensure!(
            !figures.is_empty(),
            "{place} has no figure of a whole cell: there is no page of it"
        );
        let name = free_name(dir.file_name(), others.iter().map(|other| &*other.name));
        let length = |file: &str| Some(fs::metadata(dir.join(file)).ok()?.len());
        let files = FILES.into_iter().filter_map(|file| Some((file, length(file)?))).collect();
        Ok(Self { name, note, samples, has_samples, figures, files })
    }

    fn copy(&self, from: &Path, to: &Path) -> Result<()> {
        fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
        for (file, _) in &self.files {
            let to = to.join(file);
            fs::copy(from.join(file), &to)
                .with_context(|| format!("cannot write {}", to.display()))?;
        }
        Ok(())
    }

    fn cells(&self) -> Cells<'_> {
        Cells::new(&self.note, &self.samples)
    }
}

/// A name that can stand in an address, from that of a file, and that nothing else has.
fn free_name<'n>(name: Option<&OsStr>, taken: impl Iterator<Item = &'n str> + Clone) -> String {
    let named = name.unwrap_or_default().to_string_lossy().into_owned();
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || *c == '-' || *c == '_';
    let plain: String = named.chars().filter(is_plain).collect();
    let mut name = if plain.is_empty() { "run".to_owned() } else { plain };
    while taken.clone().any(|other| other == name) {
        name += "-2";
    }
    name
}

fn render(runs: &[Run], others: &[Judged]) -> String {
    let heads = [
        "What Warren loses",
        "What was found",
        "Everything",
        "What is required",
        "Circuits, carriers and sites",
        "How it was measured",
        "Raw data",
    ];
    let mut page = html::open(TITLE, &heads);
    page += "<p>Each figure is the median of measurements made in turn, in one run on one machine. \
             All hosts share its processors: ratios say more than absolute figures. Repeat what \
             you doubt; the command of each run stands below.</p>\n";
    for run in runs {
        for (word, why) in &run.note.marks {
            let _ = writeln!(
                page,
                "<p class='warn'>The run {} proves nothing: {}. {}. Not to be used for a \
                 claim.</p>",
                escape(&run.name),
                escape(word),
                escape(why)
            );
        }
    }
    html::head(&mut page, 0, heads[0]);
    for run in runs {
        html::body(&mut page, &lost::section(run, runs.len() > 1), WARREN);
    }
    html::head(&mut page, 1, heads[1]);
    for run in runs {
        found::claims(&mut page, run, runs.len() > 1);
    }
    html::head(&mut page, 2, heads[2]);
    for run in runs {
        html::body(&mut page, &found::heat_maps(run, runs.len() > 1), WARREN);
    }
    html::head(&mut page, 3, heads[3]);
    for run in runs {
        subhead(&mut page, run, runs.len() > 1);
        html::body(&mut page, &required(run), WARREN);
    }
    html::head(&mut page, 4, heads[4]);
    if others.is_empty() {
        page += "<p>None of their reports was named.</p>\n";
    }
    for other in others {
        html::body(&mut page, &other.section(), WARREN);
    }
    html::head(&mut page, 5, heads[5]);
    for run in runs {
        subhead(&mut page, run, runs.len() > 1);
        html::body(&mut page, &sections::facts(&run.cells()), WARREN);
    }
    html::body(&mut page, &sections::reading(), WARREN);
    html::head(&mut page, 6, heads[6]);
    data(&mut page, runs, others);
    page + html::CLOSE
}

/// The name of the run, where there are several.
fn subhead(page: &mut String, run: &Run, is_named: bool) {
    if is_named {
        let _ = writeln!(page, "<h3>Run {}</h3>", escape(&run.name));
    }
}

/// Verdicts; failures, where they are known.
fn required(run: &Run) -> Section {
    if run.has_samples {
        let cells = run.cells();
        let mut section = sections::required(&cells);
        let failed = sections::failures(&cells);
        section.paragraphs.extend(failed.paragraphs);
        section.logs = failed.logs;
        return section;
    }
    let text = "The samples of this run are not here. So there are no verdicts, and what failed is \
                known only from the figures that are missing.";
    Section { paragraphs: vec![text.to_owned()], ..Section::default() }
}

/// Links to what lies beside the page.
fn data(page: &mut String, runs: &[Run], others: &[Judged]) {
    *page += "<ul>\n";
    for run in runs {
        for (file, bytes) in &run.files {
            let path = format!("{FOLDER}/{}/{file}", run.name);
            let _ = writeln!(page, "<li><a href='{path}' download>{path}</a>, {bytes} bytes</li>");
        }
    }
    for other in others {
        let path = other.path();
        let _ =
            writeln!(page, "<li><a href='{path}' download>{path}</a>, {} bytes</li>", other.bytes);
    }
    *page += "</ul>\n<p>run.json has the machine, the versions, the settings and the seed. \
              samples.jsonl has one line for each measurement, with every figure and series.</p>\n";
}

#[cfg(test)]
mod tests;
