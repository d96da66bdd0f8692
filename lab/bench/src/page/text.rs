//! The report as Markdown: everything but the charts and what is folded away.

use super::sections::{Cell, Section, Table};
use crate::sheet::{Sheet, inline};

/// The page.
pub(crate) fn render(title: &str, sections: &[Section]) -> String {
    let mut page = Sheet::new(title);
    for section in sections {
        page.heading(&section.title);
        for text in &section.paragraphs {
            match text {
                text if text.starts_with("Proves nothing") => {
                    page.paragraph(&format!("> **{text}**"));
                }
                text if text.starts_with("warren-lab ") => page.code(text),
                text => page.paragraph(text),
            }
        }
        for part in section.tables.iter().filter(|table| !table.is_folded) {
            table(&mut page, part);
        }
        for (heading, log) in &section.logs {
            page.paragraph(&format!("**{}**", inline(heading)));
            page.code(log);
        }
    }
    page.text()
}

fn table(page: &mut Sheet, table: &Table) {
    if !table.title.is_empty() {
        page.subheading(&table.title);
    }
    let head: Vec<&str> = table.head.iter().map(String::as_str).collect();
    let cell = |cell: &Cell| match cell.bad {
        true => format!("**{}**", cell.text),
        false => cell.text.clone(),
    };
    let rows = table.rows.iter().map(|row| row.iter().map(cell).collect());
    page.table(&head, 0..0, &rows.collect::<Vec<Vec<String>>>());
}
