//! Signing in by a provider that others wrote and certified (oidc-provider), with curl as the
//! browser. `npm ci` gets it; where that cannot be, the tests say so and are skipped.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "all of it is tests")]

#[path = "oidc/scene.rs"]
mod scene;

use serde_json::json;

use scene::{Scene, installed};

fn signs_in(algorithm: &'static str) {
    let Some(tools) = installed() else { return };
    let scene = Scene::new(algorithm, tools);
    let page = scene.sign_in("anna.jar", "anna");
    assert!(page.contains("color-scheme"), "the place that was wanted: {page}");
    let me = scene.who("anna.jar");
    assert_eq!((&me["user"], &me["role"]), (&json!("anna"), &json!("member")), "{me}");
    let anna = scene.anna();
    assert_eq!(anna["groups"], json!(["uni-robotics"]), "{anna}");
    assert_eq!(anna["email"], "anna@uni.example");
    // Once more, and it is the same person.
    scene.sign_in("again.jar", "anna");
    assert_eq!(scene.who("again.jar")["id"], me["id"]);
}

#[test]
fn co_08_a_certified_provider_signs_people_in_with_rs256() {
    signs_in("RS256");
}

#[test]
fn co_08_a_certified_provider_signs_people_in_with_es256() {
    signs_in("ES256");
}

#[test]
fn co_08_a_certified_provider_signs_people_in_with_eddsa() {
    signs_in("EdDSA");
}

#[test]
#[ignore = "waits two minutes for the timer by which groups are asked for again"]
fn co_08_who_leaves_a_group_or_the_provider_is_out_within_minutes() {
    let Some(tools) = installed() else { return };
    let mut scene = Scene::new("RS256", tools);
    scene.sign_in("anna.jar", "anna");
    assert_eq!(scene.anna()["groups"], json!(["uni-robotics"]));
    // A provider that is away has said nothing.
    scene.groups(&json!({ "anna": ["/uni/Physics"] }));
    scene.until("her other group", |scene| scene.anna()["groups"] == json!(["uni-physics"]));
    assert_eq!(scene.who("anna.jar")["user"], "anna");
    scene.groups(&json!({}));
    scene.until("nothing any more", |scene| scene.anna()["groups"] == json!([]));
    assert_eq!(scene.who("anna.jar")["status"], 401, "and her sessions have ended");
    scene.provider = None;
}
