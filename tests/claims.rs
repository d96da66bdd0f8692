//! A figure that the README or a page quotes is one that its run found.
//!
//! `docs/measurements/claims.toml` names, for each sentence that quotes a run, the figure of the
//! run that each of its numbers is ([`Claim`]), and for each load of the tables of
//! docs/benchmarks.md the test that it is ([`Load`]). All of that is looked up in the `run.json`
//! that is committed. What quotes a report that is no run of the ring, or a figure that only the
//! report has, is looked up there, word for word. A number with a unit that stands in neither
//! fails.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;

/// What makes a number a figure.
const UNITS: [&str; 6] = ["Mbit/s", "Gbit/s", "%", "×", "times", "ms"];

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    claim: Vec<Claim>,
    load: Vec<Load>,
}

/// A sentence of a page, and what its numbers are.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Claim {
    page: String,
    /// As the page has it; how its lines are broken does not count.
    says: String,
    run: String,
    /// Numbers of the sentence that no run found, as a setting.
    #[serde(default)]
    given: Vec<String>,
    figures: Vec<Quoted>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Quoted {
    number: String,
    test: String,
    profile: String,
    peer: String,
    figure: String,
}

/// A row of a table: the test that it is, and its figures, which a slash separates.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Load {
    run: String,
    says: String,
    test: String,
    figures: Vec<String>,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    let text = std::fs::read_to_string(root().join(path));
    text.unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn claims() -> File {
    toml::from_str(&read("docs/measurements/claims.toml")).unwrap_or_else(|error| panic!("{error}"))
}

/// What a committed run found.
fn run(name: &str) -> Value {
    serde_json::from_str(&read(&format!("docs/measurements/{name}/run.json"))).expect("JSON")
}

fn median(run: &Value, [test, profile, peer, figure]: [&str; 4]) -> Option<f64> {
    let keys = [test, profile, peer, figure];
    let is_it = |row: &&Value| keys.iter().enumerate().all(|(at, key)| row[at] == *key);
    // Behind them is the median.
    run["figures"].as_array()?.iter().find(is_it)?[keys.len()].as_f64()
}

/// Whether a number as it is written is that value, as far as it is written.
fn is_rounded(written: &str, value: f64) -> bool {
    let decimals = written.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    format!("{value:.decimals$}") == written
}

/// Lines joined, each run of spaces one.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The numbers of a text, each with the word behind it.
fn numbers(text: &str) -> Vec<(String, String)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let bare = |word: &str| {
        let edge = |c: char| !c.is_ascii_digit();
        let unsigned = word.trim_start_matches(['(', '[', '~', '−']);
        let number = unsigned.trim_end_matches(edge);
        let is_number = number.parse::<f64>().is_ok() && number.len() + 3 >= unsigned.len();
        (is_number && unsigned.starts_with(|c: char| c.is_ascii_digit())).then(|| number.to_owned())
    };
    let behind = |i: usize| {
        let next = words.get(i + 1).copied().unwrap_or_default();
        next.trim_end_matches([',', '.', ';', ':', ')', '|']).to_owned()
    };
    words.iter().enumerate().filter_map(|(i, word)| Some((bare(word)?, behind(i)))).collect()
}

/// What is a figure of a measurement: a number with a unit, or one with decimals.
fn figures(text: &str) -> Vec<String> {
    let is_figure =
        |(number, unit): &(String, String)| number.contains('.') || UNITS.contains(&unit.as_str());
    numbers(text).into_iter().filter(is_figure).map(|(number, _)| number).collect()
}

/// What is wrong with a claim, if anything is.
fn fault(claim: &Claim, page: &str, run: &Value) -> Option<String> {
    let says = &claim.says;
    if !flat(page).contains(&flat(says)) {
        return Some(format!("{}: it does not say {says:?} any more", claim.page));
    }
    for quoted in &claim.figures {
        let key = [&*quoted.test, &quoted.profile, &quoted.peer, &quoted.figure];
        let Some(value) = median(run, key) else {
            return Some(format!("{}: {} has no {}", claim.page, claim.run, key.join(", ")));
        };
        if !is_rounded(&quoted.number, value) {
            let number = &quoted.number;
            return Some(format!(
                "{}: {number} in {says:?} is {value} in {}",
                claim.page, claim.run
            ));
        }
    }
    let known = claim.figures.iter().map(|quoted| &quoted.number).chain(&claim.given);
    let known: BTreeSet<&String> = known.collect();
    let all = numbers(says);
    let stranger = all.iter().find(|(number, _)| !known.contains(number));
    stranger.map(|(number, _)| format!("{}: nothing is said of {number} in {says:?}", claim.page))
}

#[test]
fn every_claim_of_a_page_is_what_its_run_found() {
    let file = claims();
    let check = |claim: &Claim| fault(claim, &read(&claim.page), &run(&claim.run));
    let faults: Vec<String> = file.claim.iter().filter_map(check).collect();
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(
        file.claim.iter().any(|claim| claim.page == "README.md"),
        "the README claims something"
    );
}

/// Cell by cell: a column is a profile, a row a peer, and the first cell the load.
#[test]
fn every_cell_of_a_benchmark_is_what_its_run_found() {
    let loads = claims().load;
    let page = read("docs/benchmarks.md");
    let mut found: Option<(String, Value)> = None;
    let mut head: Vec<String> = Vec::new();
    let mut load = String::new();
    let mut count = 0;
    for line in page.lines() {
        if line.starts_with('#') {
            found = None;
        } else if let Some(name) = run_of(line).filter(|_| line.starts_with("Report: ")) {
            found = Some((name.clone(), run(&name)));
        }
        let Some((name, run)) = found.as_ref().filter(|_| line.starts_with('|')) else {
            head.clear();
            continue;
        };
        let cells: Vec<String> =
            line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
        if head.is_empty() {
            head = cells;
            continue;
        }
        if cells[0].starts_with("---") {
            continue;
        }
        let peer = if head[1] == "who" { &cells[1] } else { &cells[0] };
        let said = if head[1] == "who" { &cells[0] } else { &head[0] };
        if !said.is_empty() {
            load.clone_from(said);
        }
        let known = loads.iter().find(|one| (&one.run, &one.says) == (name, &load));
        let known = known.unwrap_or_else(|| panic!("claims.toml says nothing of {load:?}"));
        for (profile, cell) in head.iter().zip(&cells).filter(|(head, _)| is_profile(head)) {
            let written: Vec<&str> = cell.split(" / ").collect();
            assert_eq!(written.len(), known.figures.len(), "{line}");
            for (number, figure) in written.iter().zip(&known.figures) {
                let value = median(run, [&known.test, profile, peer, figure]);
                let value = value.unwrap_or_else(|| panic!("{name} has no {figure} for: {line}"));
                assert!(is_rounded(number, value), "{number} is {value} in {name}: {line}");
                count += 1;
            }
        }
    }
    assert!(count > 50, "{count} cells were looked up");
}

fn is_profile(head: &str) -> bool {
    ["baseline", "low", "medium", "high"].contains(&head)
}

/// The run that a link in this line leads to.
fn run_of(line: &str) -> Option<String> {
    let path = line.split_once("](measurements/")?.1.split_once(')')?.0;
    let name = path.strip_suffix("/report.md")?;
    root().join(format!("docs/measurements/{name}/run.json")).exists().then(|| name.to_owned())
}

/// Paragraphs of a page, tables and code left out, each with the reports that it may quote: those
/// that it links to, and the one that stands at the head of its section.
fn paragraphs(page: &str) -> Vec<(String, Vec<String>)> {
    let mut all = Vec::new();
    let mut report = None;
    let mut in_code = false;
    for part in page.split("\n\n") {
        if part.contains("```") {
            in_code ^= part.matches("```").count() % 2 == 1;
            continue;
        }
        if part.starts_with('#') {
            report = None;
        }
        let links = reports_in(part);
        if part.starts_with("Report: ") {
            report = links.first().cloned();
            continue;
        }
        if in_code || part.starts_with(['|', '#']) || part.starts_with("    ") {
            continue;
        }
        // A list is as many paragraphs as it has items.
        for item in part.split("\n- ") {
            let own = reports_in(item).into_iter().chain(report.clone()).collect();
            all.push((flat(item), own));
        }
    }
    all
}

/// Files below docs/measurements that a text links to.
fn reports_in(text: &str) -> Vec<String> {
    let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let reports =
        links.filter_map(|link| link.trim_start_matches("docs/").strip_prefix("measurements/"));
    let pages = reports.map(|path| path.split('#').next().unwrap_or(path));
    pages.filter(|path| path.ends_with(".md") && *path != "README.md").map(str::to_owned).collect()
}

/// A figure beside a link to a report stands in that report, or is a claim that is looked up.
#[test]
fn a_figure_in_prose_that_its_run_does_not_have_is_found() {
    let file = claims();
    let mut faults = Vec::new();
    let mut count = 0;
    for path in pages() {
        let page = read(&path);
        for (text, reports) in
            paragraphs(&page).into_iter().filter(|(_, reports)| !reports.is_empty())
        {
            let texts: String =
                reports.iter().map(|report| read(&format!("docs/measurements/{report}"))).collect();
            let said = file.claim.iter().filter(|claim| claim.page == path);
            let said: Vec<&Claim> =
                said.filter(|claim| text.contains(&flat(&claim.says))).collect();
            for number in figures(&text) {
                count += 1;
                let is_claimed = said.iter().any(|claim| {
                    let own = claim.figures.iter().map(|quoted| &quoted.number);
                    own.chain(&claim.given).any(|known| *known == number)
                });
                if !is_claimed && !stands_in(&texts, &number) {
                    faults
                        .push(format!("{path}: {number} is not in {}: {text}", reports.join(", ")));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(count > 10, "{count} figures were looked up");
}

/// The README names no report beside its figures, so each is a claim.
#[test]
fn every_figure_of_the_readme_is_a_claim() {
    let page = read("README.md");
    let said: String = claims()
        .claim
        .iter()
        .filter(|claim| claim.page == "README.md")
        .map(|c| flat(&c.says) + " ")
        .collect();
    let known: BTreeSet<String> = figures(&said).into_iter().collect();
    let prose: String = paragraphs(&page).into_iter().map(|(text, _)| text + " ").collect();
    let is_unit = |(_, unit): &(String, String)| UNITS.contains(&unit.as_str());
    for (number, unit) in numbers(&prose).into_iter().filter(is_unit) {
        assert!(known.contains(&number), "README.md: {number} {unit} is no claim of claims.toml");
    }
}

fn stands_in(text: &str, number: &str) -> bool {
    let is_part = |c: char| !c.is_alphanumeric() && c != '.';
    text.split(is_part).any(|word| word.trim_end_matches('.') == number)
}

fn pages() -> Vec<String> {
    let entries = std::fs::read_dir(root().join("docs")).expect("docs");
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut pages: Vec<String> =
        names.filter(|name| name.ends_with(".md")).map(|name| format!("docs/{name}")).collect();
    pages.push("README.md".to_owned());
    pages.sort();
    pages
}

#[test]
fn a_claim_that_its_run_does_not_have_is_told() {
    let figure = r#"["tcp", "low", "Warren", "forward_mbit_s", 846.3, 840.0, 850.0, 3]"#;
    let run: Value = serde_json::from_str(&format!(r#"{{"figures": [{figure}]}}"#)).expect("JSON");
    let claim = |number: &str, profile: &str, says: &str| Claim {
        page: "P".to_owned(),
        says: says.to_owned(),
        run: "R".to_owned(),
        given: vec!["5".to_owned()],
        figures: vec![Quoted {
            number: number.to_owned(),
            test: "tcp".to_owned(),
            profile: profile.to_owned(),
            peer: "Warren".to_owned(),
            figure: "forward_mbit_s".to_owned(),
        }],
    };
    let page = "At 5 % it has\n846 Mbit/s, and 847 elsewhere.";
    let good = "At 5 % it has 846 Mbit/s";
    assert_eq!(fault(&claim("846", "low", good), page, &run), None);
    let told = |claim: &Claim| fault(claim, page, &run).unwrap_or_default();
    assert!(told(&claim("847", "low", "and 847 elsewhere")).contains("is 846.3 in R"));
    assert!(told(&claim("846", "high", good)).contains("has no tcp, high"));
    assert!(told(&claim("846", "low", "it has 900")).contains("does not say"));
    let more = "At 5 % it has 846 Mbit/s, and 847 elsewhere";
    assert!(told(&claim("846", "low", more)).contains("nothing is said of 847"));
}

#[test]
fn figures_are_told_from_other_numbers() {
    let text =
        "At 1 % it has 777 Mbit/s, 7.87 there (0.5 ×), IPv6, 10^6, 0.1.0, 3 hosts, RFC 8289.";
    assert_eq!(figures(text), ["1", "777", "7.87", "0.5"]);
    for (written, value) in
        [("777", 777.4), ("7.87", 7.8651), ("66", 66.02), ("2.6", 2.64), ("0", 0.0)]
    {
        assert!(is_rounded(written, value), "{written} of {value}");
    }
    assert!(!is_rounded("7.87", 7.88) && !is_rounded("777", 778.0));
    assert!(stands_in("| 7.87 (n = 3) |", "7.87") && !stands_in("17.87", "7.87"));
}
