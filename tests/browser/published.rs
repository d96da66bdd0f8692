//! The page of the bench, in a browser without a network.

use std::path::Path;

use serde_json::Value;

use crate::drive;

/// Out of runs that are committed.
#[test]
#[ignore = "needs Chromium, 700 MB: make test-ui"]
fn a_published_page_is_read_without_a_network_on_a_phone_and_on_a_desk() {
    let name = format!("warren-published-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/measurements");
    let runs = ["ring", "all", "grid"].map(|run| root.join(run));
    let page = bench::page::publish(&runs, &folder).unwrap();
    let figures = drive("published", &[&format!("file://{}", page.display())], |what, _| {
        panic!("the script asks for {what}")
    });
    assert_ne!(figures, Value::Null);
    std::fs::remove_dir_all(&folder).unwrap();
}
