//! A server whose books were put back to how they once were (threat CO-17): what nodes take from
//! it, what comes back, and that what is revoked again stays so.

use control::{Code, Event, Map};
use dial::proxy::Proxies;
use dial::{Membership, Notify, Start};
use serde_json::{Value, json};
use server::Server;

use crate::stage::{Folder, PATIENCE, Stage, config};

/// Later than another map, whatever both say.
fn is_later(map: &Map, than: &Map) -> bool {
    than.is_older_than(map.epoch, map.sequence)
}

#[test]
fn co_17_a_restored_server_is_later_than_all_that_was_and_what_is_revoked_again_stays_out() {
    let mut stage = Stage::new();
    let token = stage.token(&json!({ "reusable": true }));
    let (mut stays, mut goes) = (stage.node(&token, "stays"), stage.node(&token, "goes"));
    stays.until_peers(&["goes"]);
    goes.until_peers(&["stays"]);
    let copy = stage.folder.0.join("copy.db");
    server::backup(&stage.folder.0, &copy).unwrap();

    // After the copy: one is removed, one comes, and the server begins some epochs more.
    let id = goes.map.as_ref().unwrap().me.id.0;
    stage.call("DELETE", &format!("/api/v1/nodes/{id}"), &Value::Null, 204);
    goes.until("its removal", |event, _| matches!(event, Event::Ended(_)));
    let mut late = stage.node(&token, "late");
    late.until_peers(&["stays"]);
    for _ in 0..3 {
        let before = stays.map.clone().unwrap();
        stage.restart();
        stays.until("a later epoch", |_, map| map.is_some_and(|map| map.epoch > before.epoch));
    }
    stays.until_peers(&["late"]);
    let before = stays.map.clone().unwrap();
    let (verifying, cached) = stays.last.as_ref().unwrap().store.clone().unwrap();

    // The books of the copy are put back.
    let Stage { server, address, folder, store } = stage;
    drop(server);
    let fresh = Folder::new();
    std::fs::create_dir_all(&fresh.0).unwrap();
    std::fs::rename(&copy, fresh.0.join("warren.db")).unwrap();
    drop(folder);
    let server = Some(Server::start(config(&fresh.0, address.port())).unwrap());
    let mut stage = Stage { server, address, folder: fresh, store };
    stays.until("the copy's map", |_, map| map.is_some_and(|map| is_later(map, &before)));
    // Who was removed after the copy is in the books again, as docs/operations.md says; who came
    // after it is not, and is told.
    stays.until_peers(&["goes"]);
    late.until(
        "its word",
        |event, _| matches!(event, Event::Ended(why) if why.code == Code::NotEnrolled),
    );
    // Removed again, it is out for good: for those who are there, and who start from their cache.
    stage.call("DELETE", &format!("/api/v1/nodes/{id}"), &Value::Null, 204);
    stays.until_peers(&[]);
    let after = stays.map.clone().unwrap();
    stage.restart();
    stays.until("a later epoch", |_, map| map.is_some_and(|map| is_later(map, &after)));
    stays.until_peers(&[]);

    // A node that slept through all of it starts with the map of before, and ends at the new one.
    let mut settings = stays.settings.clone();
    (settings.join, settings.verifying) = (None, Some(verifying));
    drop(stays);
    let start = Start { settings, cached, proxies: Proxies::default(), notify: Notify::default() };
    let again = Membership::start(start).unwrap();
    let mut known = again.wait(PATIENCE).unwrap().map.unwrap();
    assert!(!is_later(&known, &before) && known.peers.len() == 1, "from its cache");
    let begin = std::time::Instant::now();
    while !known.peers.is_empty() {
        assert!(begin.elapsed() < PATIENCE, "{known:?}");
        let Some(news) = again.wait(PATIENCE) else { continue };
        if let Some(map) = news.map {
            assert!(!is_later(&known, &map), "a node never goes back");
            known = map;
        }
    }
    assert!(is_later(&known, &after));
}
