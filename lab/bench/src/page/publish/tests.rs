//! The page, of runs that are committed and of some that are made up.

use super::*;
use crate::ring::sample::tests::{note, sample};
use crate::vpn::{NO_VPN, WIREGUARD_GO};

/// A folder that is new and goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("warren-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("a folder");
        Self(dir)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn committed(names: &[&str]) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/measurements");
    names.iter().map(|name| root.join(name)).collect()
}

/// A run on the disk, with its samples.
fn write(dir: &Path, note: &Note, samples: &[Sample]) {
    fs::create_dir_all(dir).expect("a folder");
    sample::write_note(dir, note).expect("a note");
    let line = |sample: &Sample| serde_json::to_string(sample).expect("JSON") + "\n";
    fs::write(dir.join("samples.jsonl"), samples.iter().map(line).collect::<String>())
        .expect("samples");
}

#[test]
fn a_page_of_committed_runs_fetches_nothing_and_tells_all_that_it_draws() {
    let folder = Folder::new("publish-committed");
    let runs = committed(&["all", "ring", "grid"]);
    let path = publish(&runs, &folder.0).expect("a page");
    let page = fs::read_to_string(&path).expect("written");
    for fetched in ["<script", "<link", "<img", "src=", "@import", "url("] {
        assert!(!page.contains(fetched), "{fetched}");
    }
    let charts: Vec<&str> = page.split("<svg ").skip(1).collect();
    assert!(charts.len() > 40, "{} charts", charts.len());
    for chart in &charts {
        let told = chart.split_once("aria-label='").and_then(|(_, rest)| rest.split_once('\''));
        assert!(told.is_some_and(|(told, _)| told.contains("Warren")), "{chart:.200}");
    }
    assert_eq!(page.matches("<figure>").count(), page.matches("<figcaption>").count());
    assert_eq!(page.matches("<figure>").count(), charts.len());
    for run in ["all", "ring", "grid"] {
        let data = folder.0.join("data").join(run).join("run.json");
        let own = committed(&[run])[0].join("run.json");
        assert_eq!(fs::read(data).expect("copied"), fs::read(own).expect("committed"));
        assert!(page.contains(&format!("href='data/{run}/run.json' download")), "{run}");
    }
}

/// Rows of circuits, carriers and sites stand in the same page, those that do not hold first.
#[test]
fn source_002_1_reports_of_other_benches_have_their_place_in_the_page() {
    let folder = Folder::new("publish-others");
    let mut runs = committed(&["all", "circuits", "carriers/carriers.json"]);
    let page = fs::read_to_string(publish(&runs, &folder.0).expect("a page")).expect("written");
    assert!(page.contains("circuits: circuit") && page.contains("carriers: carriers"), "named");
    let (_, circuits) = page.split_once("circuits: circuit").expect("its table");
    let at = |what: &str| circuits.find(what).expect(what);
    assert!(at("does not hold") < at(">holds<"), "what is lost comes first");
    assert!(at("goodput, 10 Mbit/s, ÷ no VPN") < at("</table>"), "its rows are there");
    for file in ["circuits.json", "carriers.json"] {
        assert!(page.contains(&format!("href='data/{file}' download")), "{file}");
        assert!(folder.0.join("data").join(file).is_file(), "{file}");
    }
    // Two of one name do not take each other's place.
    let twice = committed(&["circuits", "circuits"]);
    publish(&twice, &folder.0).expect("a page");
    assert!(folder.0.join("data/circuits-2.json").is_file());
    // What is no report of a bench is told.
    let wrong = folder.0.join("wrong.json");
    fs::write(&wrong, "{\"kind\": \"circuit\"}").expect("written");
    runs.push(wrong);
    let why = format!("{:#}", publish(&runs, &folder.0).expect_err("no rows"));
    assert!(why.contains("wrong.json is no report of a bench with rows"), "{why}");
}

/// What a caption says is what the run found.
#[test]
fn each_claim_has_the_figures_of_its_run() {
    let folder = Folder::new("publish-claims");
    let runs = committed(&["ring"]);
    let page = fs::read_to_string(publish(&runs, &folder.0).expect("a page")).expect("written");
    let note = sample::read_note(&runs[0]).expect("a run");
    let is_of = |figure: &&Figure| {
        (&*figure.test, &*figure.profile) == ("tcp", "high") && figure.figure == "forward_mbit_s"
    };
    let of = |peer: &str| {
        let figure = note.figures.iter().filter(is_of).find(|figure| figure.peer == peer);
        crate::page::number(figure.expect("measured").median)
    };
    let said = format!("high: Warren has {} Mbit/s", of(WARREN));
    assert!(page.contains(&said), "{said}");
    let said = format!("Without a VPN it is {} Mbit/s.", of(NO_VPN));
    assert!(page.contains(&said), "{said}");
}

#[test]
fn what_is_lost_comes_first_and_the_largest_loss_before_all() {
    let folder = Folder::new("publish-lost");
    let dir = folder.0.join("run <b>");
    let mut note = note(&[WARREN, WIREGUARD_GO, NO_VPN]);
    note.settings.links = 1;
    note.marks = vec![("short".to_owned(), "of one second".to_owned())];
    let mut samples = vec![
        sample(WARREN, "low", "tcp", "a-b", &[("forward_mbit_s", 50.0)]),
        sample(NO_VPN, "low", "tcp", "a-b", &[("forward_mbit_s", 60.0)]),
        sample(WARREN, "low", "ping", "a-b", &[("rtt_median_ms", 9.0)]),
        sample(WIREGUARD_GO, "low", "ping", "a-b", &[("rtt_median_ms", 3.0)]),
        sample(WARREN, "high", "tcp", "a-b", &[("forward_mbit_s", 500.0)]),
        sample(NO_VPN, "high", "tcp", "a-b", &[("forward_mbit_s", 2.0)]),
        sample(WARREN, "high", "ping", "a-b", &[("rtt_median_ms", 9.0)]),
    ];
    samples[6].failed = Some("it broke <i>".to_owned());
    write(&dir, &note, &samples);
    let run = Run::read(&dir, &[]).expect("a run");
    assert_eq!(run.name, "runb", "no name becomes markup or another folder");
    let losses = lost::losses(&run);
    let told: Vec<_> = losses.iter().map(|loss| (&*loss.ours.test, loss.times)).collect();
    assert_eq!(told, [("ping", 3.0), ("tcp", 1.2)]);
    let page = fs::read_to_string(publish(&[dir.clone(), dir], &folder.0).expect("a page"));
    let page = page.expect("written");
    let place = |text: &str| page.find(text).unwrap_or_else(|| panic!("no {text:?}"));
    assert!(place("somebody else is better in 2") < place("<figure>"));
    assert!(place("proves nothing: short") < place("What Warren loses</h2>"));
    assert!(page.contains("1 measurements of Warren failed"), "{page}");
    assert!(page.contains("it broke &lt;i&gt;") && !page.contains("<i>"));
    assert!(page.contains("data/runb-2/samples.jsonl"), "two of one name are told apart");
}

#[test]
fn what_is_no_run_or_has_found_nothing_has_no_page() {
    let folder = Folder::new("publish-nothing");
    let error = publish(std::slice::from_ref(&folder.0), &folder.0).expect_err("no run");
    assert!(format!("{error:#}").contains("no run in"), "{error:#}");
    let mut failed = sample(WARREN, "low", "tcp", "a-b", &[]);
    failed.failed = Some("it broke".to_owned());
    let dir = folder.0.join("run");
    write(&dir, &note(&[WARREN]), &[failed]);
    let error = publish(&[dir], &folder.0).expect_err("nothing was found");
    assert!(format!("{error:#}").contains("no figure of a whole cell"), "{error:#}");
}
