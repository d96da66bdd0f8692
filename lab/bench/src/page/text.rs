//! The report as Markdown: everything but the charts and what is folded away.

use super::sections::{Cell, Section, Table};
use crate::sheet::{Sheet, inline};

/// So many lines of what a failed measurement said are here: the first, which says why, and the
/// last. Where a peer fails again for the same reason that alone is told. The page has all of it.
const LOG_LINES_MAX: usize = 8;

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
        let mut told = Vec::new();
        for (heading, log) in &section.logs {
            page.paragraph(&format!("**{}**", inline(heading)));
            let reason = (heading.split(':').next(), log.lines().next());
            let is_new = !told.contains(&reason);
            page.code(&shortened(log, if is_new { LOG_LINES_MAX } else { 1 }));
            told.push(reason);
        }
    }
    page.text()
}

/// The first of its lines and the last, no more than `lines_max`.
fn shortened(log: &str, lines_max: usize) -> String {
    let lines: Vec<&str> = log.lines().collect();
    if lines.len() <= lines_max {
        return log.to_owned();
    }
    let last = &lines[lines.len() + 1 - lines_max..];
    let left_out = format!("… {} lines more in the page …", lines.len() - 1 - last.len());
    [&[lines[0], &left_out][..], last].concat().join("\n")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_log_the_first_line_and_the_last_are_told() {
        let short = "it failed\nsince\nso";
        assert_eq!(shortened(short, 3), short);
        let long: Vec<String> = (1..=20).map(|line| format!("line {line}")).collect();
        let told = shortened(&long.join("\n"), LOG_LINES_MAX);
        assert!(told.starts_with("line 1\n… 12 lines more in the page …\nline 14\n"), "{told}");
        assert!(told.ends_with("\nline 20"), "{told}");
        assert_eq!(shortened(short, 1), "it failed\n… 2 lines more in the page …");
    }
}
