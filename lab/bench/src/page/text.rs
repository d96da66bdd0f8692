//! The report as Markdown: everything but the charts and what is folded away.

use std::fmt::Write as _;

use super::sections::{Section, Table};

/// The page.
pub(crate) fn render(title: &str, sections: &[Section]) -> String {
    let mut page = format!("# {title}\n");
    for section in sections {
        let _ = write!(page, "\n## {}\n", section.title);
        for text in &section.paragraphs {
            let _ = match text {
                text if text.starts_with("Proves nothing") => write!(page, "\n> **{text}**\n"),
                text if text.starts_with("warren ") => write!(page, "\n    {text}\n"),
                text => write!(page, "\n{text}\n"),
            };
        }
        for part in section.tables.iter().filter(|table| !table.is_folded) {
            table(&mut page, part);
        }
        for (heading, log) in &section.logs {
            let _ = write!(page, "\n**{}**\n\n", inline(heading));
            for line in log.lines() {
                let _ = writeln!(page, "    {line}");
            }
        }
    }
    page
}

fn table(page: &mut String, table: &Table) {
    if !table.title.is_empty() {
        let _ = write!(page, "\n### {}\n", table.title);
    }
    let head: Vec<String> = table.head.iter().map(|text| inline(text)).collect();
    let _ = write!(page, "\n| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
    for row in &table.rows {
        let cells: Vec<String> = row
            .iter()
            .map(|cell| match cell.bad {
                true => format!("**{}**", inline(&cell.text)),
                false => inline(&cell.text),
            })
            .collect();
        let _ = writeln!(page, "| {} |", cells.join(" | "));
    }
}

/// Text that cannot break out of its place: one line, no bar.
fn inline(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}
