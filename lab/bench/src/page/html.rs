//! The report as one file of HTML: nothing is fetched, nothing runs, light and dark.

use std::fmt::Write as _;

use super::sections::{Cell, Section, Table};
use super::svg::escape;

const STYLE: &str = "
:root{color-scheme:light dark;--fg:#1c1e21;--bg:#fff;--soft:#f3f4f6;--line:#d5d8dd;--note:#5b6068;
--mark:#0b6bcb;--plain:#7a828e;--bad:#b42318}
@media(prefers-color-scheme:dark){:root{--fg:#e6e8eb;--bg:#15171a;--soft:#1f2226;--line:#3a3f46;
--note:#a2a8b1;--mark:#6cb2ff;--plain:#8b939f;--bad:#ff8a7a}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--fg);background:var(--bg);max-width:1200px;
margin:0 auto;padding:24px}
h1{font-size:1.7em}h2{margin-top:2.2em;border-bottom:1px solid var(--line)}
p{max-width:75ch}p.warn{border-left:4px solid var(--bad);padding-left:10px;color:var(--bad)}
p.code{font-family:ui-monospace,monospace;background:var(--soft);padding:6px 10px;max-width:none;
overflow-wrap:anywhere}
.narrow{display:flex;flex-wrap:wrap;gap:0 28px}.narrow caption{max-width:22em}
.wide{overflow-x:auto;margin:1em 0 1.6em}
table{border-collapse:collapse;font-size:.88em}
caption{text-align:left;font-weight:600;padding:4px 0}
th,td{border:1px solid var(--line);padding:3px 8px;text-align:left;vertical-align:top}
th{background:var(--soft);font-weight:600}
td.num{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
tr.mark td:first-child{color:var(--mark);font-weight:600}
td.bad{color:var(--bad);font-weight:600}td:last-child{min-width:6.5em}
.narrow td:last-child{min-width:0}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(520px,100%),1fr));gap:0 24px}
svg{width:100%;max-width:720px;height:auto;display:block;margin:.6em 0}
svg text{font:12px system-ui,sans-serif;fill:var(--fg)}
svg text.title{font-weight:600;font-size:13px}svg text.note{fill:var(--note);font-size:11px}
svg text.mark{fill:var(--mark);font-weight:600}
svg .grid{stroke:var(--line);stroke-width:1}
svg g.plain{stroke:var(--plain);fill:var(--plain)}svg g.mark{stroke:var(--mark);fill:var(--mark)}
svg rect{fill-opacity:.35}svg .median{stroke-width:2.5}svg circle{fill-opacity:.75}
pre{background:var(--soft);padding:10px;overflow-x:auto;white-space:pre-wrap;font-size:.85em}
nav a{margin-right:1em}a{color:var(--mark)}
figure{margin:.6em 0}figcaption{max-width:60ch;font-size:.92em}svg.bars{max-width:340px}
.claims{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(340px,100%),1fr));
gap:8px 32px}
li{overflow-wrap:anywhere}
";

/// The page.
pub(crate) fn render(title: &str, sections: &[Section], ours: &str) -> String {
    let heads: Vec<&str> = sections.iter().map(|section| &*section.title).collect();
    let mut page = open(title, &heads);
    for (i, section) in sections.iter().enumerate() {
        head(&mut page, i, &section.title);
        body(&mut page, section, ours);
    }
    page + CLOSE
}

/// Ends a page.
pub(crate) const CLOSE: &str = "</main></body></html>\n";

/// A page up to its first section, with links to all of them.
pub(crate) fn open(title: &str, heads: &[&str]) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>\
         <meta name='viewport' content='width=device-width,initial-scale=1'>\
         <title>{0}</title><style>{STYLE}</style></head><body>\n<main><h1>{0}</h1>\n\
         <nav aria-label='Sections'>",
        escape(title)
    );
    for (i, head) in heads.iter().enumerate() {
        let _ = write!(page, "<a href='#s{i}'>{}</a> ", escape(head));
    }
    page + "</nav>\n"
}

/// The heading of a section, by its place.
pub(crate) fn head(page: &mut String, i: usize, title: &str) {
    let _ = writeln!(page, "<h2 id='s{i}'>{}</h2>", escape(title));
}

/// All of a section but its heading.
pub(crate) fn body(page: &mut String, section: &Section, ours: &str) {
    for text in &section.paragraphs {
        let class = match text {
            text if text.starts_with("Proves nothing") => " class='warn'",
            text if text.starts_with("warren-lab ") => " class='code'",
            _ => "",
        };
        let _ = writeln!(page, "<p{class}>{}</p>", escape(text));
    }
    *page += if section.narrow { "<div class='narrow'>" } else { "<div>" };
    for part in &section.tables {
        table(page, part, ours);
    }
    *page += "</div>\n<div class='charts'>";
    for chart in &section.charts {
        let _ = writeln!(page, "{chart}");
    }
    *page += "</div>\n";
    for (heading, log) in &section.logs {
        let heading = escape(heading);
        let log = escape(log);
        let _ =
            writeln!(page, "<details open><summary>{heading}</summary><pre>{log}</pre></details>");
    }
}

pub(crate) fn table(page: &mut String, table: &Table, ours: &str) {
    if table.rows.is_empty() {
        return;
    }
    if table.is_folded {
        let title = escape(&table.title);
        let _ = write!(page, "<details><summary>{title}: {} rows</summary>", table.rows.len());
    }
    *page += "<div class='wide' tabindex='0'><table>";
    if !table.title.is_empty() && !table.is_folded {
        let _ = write!(page, "<caption>{}</caption>", escape(&table.title));
    }
    *page += "<thead><tr>";
    for head in &table.head {
        let _ = write!(page, "<th>{}</th>", escape(head));
    }
    *page += "</tr></thead>\n<tbody>";
    for row in &table.rows {
        let is_ours = row.first().is_some_and(|cell| cell.text == ours);
        *page += if is_ours { "<tr class='mark'>" } else { "<tr>" };
        for one in row {
            cell(page, one);
        }
        *page += "</tr>\n";
    }
    *page += "</tbody></table></div>\n";
    if table.is_folded {
        *page += "</details>\n";
    }
}

fn cell(page: &mut String, cell: &Cell) {
    let is_number = cell.text.starts_with(|c: char| c.is_ascii_digit() || c == '−' || c == '–');
    // A number alone: one with words beside it is read as they are, from the left.
    let is_number = is_number && !cell.text.contains(' ');
    let class = match (cell.bad, is_number) {
        (true, _) => " class='bad'",
        (false, true) => " class='num'",
        (false, false) => "",
    };
    // Orange to blue, which most eyes tell apart; half transparent, so that text stays legible
    // on light and on dark.
    let style = cell.heat.map_or(String::new(), |heat| {
        let mix = |bad: f64, good: f64| (bad + (good - bad) * heat.clamp(0.0, 1.0)).round();
        let r = mix(230.0, 30.0);
        let g = mix(120.0, 130.0);
        let b = mix(20.0, 230.0);
        format!(" style='background:rgba({r},{g},{b},.34)'")
    });
    let _ = write!(page, "<td{class}{style}>{}</td>", escape(&cell.text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_print_stays_text_and_nothing_is_fetched() {
        let evil = "</pre><script src=x></script><img onerror=x>";
        let section = Section {
            title: evil.to_owned(),
            paragraphs: vec![evil.to_owned()],
            tables: vec![Table {
                title: evil.to_owned(),
                head: vec![evil.to_owned()],
                rows: vec![vec![Cell { text: evil.to_owned(), heat: Some(2.0), bad: false }]],
                is_folded: false,
            }],
            logs: vec![(evil.to_owned(), evil.to_owned())],
            ..Section::default()
        };
        let page = render(evil, &[section], "Warren");
        for fetched in ["<script", "<img", "<link", "http://", "https://", "url(", "@import"] {
            assert!(!page.contains(fetched), "{fetched}");
        }
        assert!(page.contains("rgba(30,130,230,.34)"), "heat is bounded");
    }
}
