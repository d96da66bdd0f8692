//! The topology that docs/lab.md explains key by key is one, with every key that there is.

use std::path::PathBuf;

use lab::topology::{Plan, Topology};

#[test]
fn the_topology_of_the_page_can_be_built() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/lab.md");
    let page = std::fs::read_to_string(&path).expect("the page");
    let block = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
    let text = block.expect("a topology");
    let topology = Topology::parse(text, &path).expect("no mistake");
    let plan = Plan::new(&topology).expect("a plan");
    assert_eq!((plan.name.as_str(), plan.nodes.len(), plan.links.len()), ("example", 4, 3));
    assert_eq!(plan.links.iter().filter(|link| link.is_wire()).count(), 1);
    let keys = ["blocked", "nat", "outside", "addresses", "shape", "impair", "impair-back", "seed"];
    for key in keys.into_iter().chain(["name", "between", "mtu"]) {
        let is_key = |line: &str| line.trim_start_matches("# ").starts_with(&format!("{key} = "));
        assert!(text.lines().any(is_key), "{key} is not explained");
    }
}
