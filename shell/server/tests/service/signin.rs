//! A machine without a token, and the browser of somebody who lets it in.

use control::client::Settings;
use control::{Event, HostInfo};
use dial::SystemRandom;
use dial::proxy::Proxies;
use noise::PrivateKey;
use serde_json::{Value, json};
use server::store::Enrolment;

use crate::browser::{Browser, Page};
use crate::people::person;
use crate::stage::{Node, Stage};

const FORM: &str = "application/x-www-form-urlencoded";

fn waiting(stage: &Stage, hostname: &str) -> Settings {
    let [machine, node] = [(); 2].map(|()| PrivateKey::generate(&mut SystemRandom));
    Settings {
        urls: vec![stage.url()],
        server: stage.server.as_ref().unwrap().public_key(),
        machine,
        node_key: node.public(),
        next_key: None,
        join: None,
        signs_in: true,
        verifying: None,
        host: HostInfo {
            hostname: hostname.to_owned(),
            os: "Debian <b>12</b>".to_owned(),
            ..HostInfo::default()
        },
    }
}

/// The path of the link that a machine was told.
fn link(node: &mut Node) -> String {
    let mut found = None;
    let begin = std::time::Instant::now();
    while found.is_none() && begin.elapsed() < crate::stage::PATIENCE {
        if let Some(news) = node.membership.wait(std::time::Duration::from_millis(50))
            && let Event::SignIn(link) = news.event
        {
            found = Some(link.url);
        }
    }
    let url = found.expect("a link");
    url.strip_prefix("https://127.0.0.1:1").expect("at this server").to_owned()
}

fn open(stage: &Stage, browser: &mut Browser, path: &str) -> Page {
    browser.ask(stage, ("GET", path), ("", ""))
}

fn post(stage: &Stage, browser: &mut Browser, path: &str, form: &str) -> Page {
    browser.ask(stage, ("POST", path), (FORM, form))
}

/// What the form of a page has in a hidden field.
fn hidden(page: &Page, name: &str) -> String {
    let from = format!("name=\"{name}\" value=\"");
    let (_, rest) = page.body.split_once(&from).unwrap_or_else(|| panic!("{}", page.body));
    rest.split('"').next().unwrap().to_owned()
}

#[test]
fn co_04_whoever_signs_in_lets_a_machine_in_and_it_is_theirs() {
    let stage = Stage::new();
    let mut owner = person(&stage, "owner", "owner");
    person(&stage, "anna", "member");
    let settings = waiting(&stage, "Laptop & \"co\"");
    let key = settings.node_key.to_string();
    let mut node = Node::start(settings, Proxies::default());
    let path = link(&mut node);
    assert_eq!(path.len(), "/a/".len() + 22, "128 bits: {path}");
    // Looking at it, as programs do too, uses nothing up, and says which machine asks.
    let mut browser = Browser::default();
    for _ in 0..3 {
        let page = open(&stage, &mut browser, &path);
        assert_eq!(page.status, 200);
        for what in ["Laptop &amp; &quot;co&quot;", "&lt;b&gt;12", &key[..12], "127.0.0.1"] {
            assert!(page.body.contains(what), "{what}: {}", page.body);
        }
        let policy = &page.fields["content-security-policy"];
        assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"));
        assert!(!policy.contains("script") && page.fields["x-frame-options"] == "DENY");
        assert!(!page.body.contains("<script") && !page.body.contains("style="));
    }
    // A password that is wrong is told beside the machine.
    let sign_in = format!("return={path}&user=anna&password=wrong+wrong+wrong");
    let page = post(&stage, &mut browser, "/sign-in", &sign_in);
    assert_eq!(page.status, 401);
    assert!(page.body.contains("password is wrong") && page.body.contains("Laptop"));
    // Nobody answers without a session, from elsewhere, or without its word.
    assert!(post(&stage, &mut browser, &path, "answer=yes").body.contains("password"));
    let sign_in = format!("return={path}&user=anna&password=correct+horse+battery");
    let mut evil = Browser { origin: Some("https://evil.example".into()), ..browser.clone() };
    assert_eq!(post(&stage, &mut evil, "/sign-in", &sign_in).status, 403);
    let page = post(&stage, &mut browser, "/sign-in", &sign_in);
    assert_eq!((page.status, &page.fields["location"]), (303, &path));
    let page = open(&stage, &mut browser, &path);
    assert!(page.body.contains("signed in as <b>anna</b>"), "{}", page.body);
    let csrf = hidden(&page, "csrf");
    let yes = format!("csrf={csrf}&answer=yes");
    let mut evil = Browser { origin: Some("https://evil.example".into()), ..browser.clone() };
    assert_eq!(post(&stage, &mut evil, &path, &yes).status, 403);
    assert_eq!(post(&stage, &mut browser, &path, "csrf=x&answer=yes").status, 403);
    assert_eq!(post(&stage, &mut owner, &path, &yes).status, 403, "another session's word");
    assert_eq!(stage.call("GET", "/api/v1/nodes", &Value::Null, 200)["nodes"], json!([]));
    // Now it is in, at once, and the link is used up.
    let page = post(&stage, &mut browser, &path, &yes);
    assert_eq!(page.status, 200, "{}", page.body);
    node.until("a map", |_, map| map.is_some());
    let nodes = stage.call("GET", "/api/v1/nodes", &Value::Null, 200);
    assert_eq!(nodes["nodes"][0]["user"], "anna");
    assert_eq!(nodes["nodes"][0]["key"], key.as_str());
    assert_eq!(post(&stage, &mut browser, &path, &yes).status, 404);
    for browser in [&mut browser, &mut owner] {
        assert_eq!(open(&stage, browser, &path).status, 404);
    }
    let log = stage.call("GET", "/api/v1/audit", &Value::Null, 200).to_string();
    assert!(log.contains("node.enrol") && log.contains("\"actor\":\"user:"), "who did is told");
}

/// Somebody lets a machine in.
fn let_in(stage: &Stage, browser: &mut Browser, path: &str) -> Page {
    let page = open(stage, browser, path);
    let yes = format!("csrf={}&answer=yes", hidden(&page, "csrf"));
    post(stage, browser, path, &yes)
}

#[test]
fn co_03_co_04_a_machine_that_comes_back_is_the_same_node_as_whoever_lets_it_in() {
    let stage = Stage::new();
    let mut owner = person(&stage, "owner", "owner");
    let mut anna = person(&stage, "anna", "member");
    let settings = waiting(&stage, "laptop");
    let mut node = Node::start(settings.clone(), Proxies::default());
    let path = link(&mut node);
    assert_eq!(let_in(&stage, &mut anna, &path).status, 200);
    node.until("a map", |_, map| map.is_some());
    let nodes = stage.call("GET", "/api/v1/nodes", &Value::Null, 200);
    let id = nodes["nodes"][0]["id"].clone();
    // While its key is good it needs nobody.
    drop(node);
    let mut node = Node::start(settings.clone(), Proxies::default());
    node.until_enrolled();
    stage.call("POST", &format!("/api/v1/nodes/{id}/expire"), &Value::Null, 200);
    node.until("its end", |event, _| matches!(event, Event::Ended(_)));
    let mut node = Node::start(settings, Proxies::default());
    let path = link(&mut node);
    assert_eq!(let_in(&stage, &mut owner, &path).status, 200);
    node.until("a map", |_, map| map.is_some());
    let nodes = stage.call("GET", "/api/v1/nodes", &Value::Null, 200);
    assert_eq!((&nodes["nodes"][0]["id"], &nodes["nodes"][0]["user"]), (&id, &json!("owner")));
    assert_eq!(nodes["nodes"].as_array().unwrap().len(), 1);
}

#[test]
fn co_04_a_machine_that_is_refused_is_told_and_gone() {
    let stage = Stage::new();
    let mut anna = person(&stage, "anna", "member");
    let mut node = Node::start(waiting(&stage, "laptop"), Proxies::default());
    let path = link(&mut node);
    let page = open(&stage, &mut anna, &path);
    let no = format!("csrf={}&answer=no", hidden(&page, "csrf"));
    assert_eq!(post(&stage, &mut anna, &path, &no).status, 200);
    node.until(
        "a refusal",
        |event, _| matches!(event, Event::Ended(refusal) if refusal.detail.contains("refused")),
    );
    assert_eq!(open(&stage, &mut anna, &path).status, 404);
    assert_eq!(stage.call("GET", "/api/v1/nodes", &Value::Null, 200)["nodes"], json!([]));
}

#[test]
fn co_04_where_nodes_wait_for_an_administrator_these_do_too_and_links_end_with_the_server() {
    let mut stage = Stage::with(Enrolment { needs_approval: true, lifetime_s: None });
    let mut anna = person(&stage, "anna", "member");
    let mut node = Node::start(waiting(&stage, "laptop"), Proxies::default());
    let before = link(&mut node);
    drop(node);
    stage.restart();
    assert_eq!(open(&stage, &mut anna, &before).status, 404, "a new start has new links");
    let settings = waiting(&stage, "laptop");
    let mut node = Node::start(settings, Proxies::default());
    let path = link(&mut node);
    let page = open(&stage, &mut anna, &path);
    let yes = format!("csrf={}&answer=yes", hidden(&page, "csrf"));
    let page = post(&stage, &mut anna, &path, &yes);
    // The second start has the usual terms.
    assert!(page.body.contains("laptop"), "{}", page.body);
    node.until("a map", |_, map| map.is_some());
}

#[test]
fn wb_13_wb_12_no_page_leads_elsewhere_and_no_guess_finds_a_machine() {
    let stage = Stage::new();
    person(&stage, "anna", "member");
    for place in ["//evil.example", "https://evil.example", "/\\evil.example", "%2F%2Fevil"] {
        let mut browser = Browser::default();
        let form = format!("return={place}&user=anna&password=correct+horse+battery");
        let page = post(&stage, &mut browser, "/sign-in", &form);
        assert_eq!((page.status, page.fields["location"].as_str()), (303, "/"), "{place}");
        let page = open(&stage, &mut browser, &format!("/sign-in?return={place}"));
        assert_eq!((page.status, page.fields["location"].as_str()), (303, "/"), "{place}");
    }
    let mut browser = Browser::default();
    for path in ["/a/", "/a/AAAAAAAAAAAAAAAAAAAAAA", "/a/../x", "/a/%00", "/a/<script>"] {
        let page = open(&stage, &mut browser, path);
        assert!([400, 404].contains(&page.status), "{path}: {}", page.status);
        assert!(!page.body.contains("<script>"), "{path}");
    }
    let long = "x".repeat(20_000);
    assert_eq!(post(&stage, &mut browser, "/sign-in", &format!("user={long}")).status, 413);
    let page = browser.ask(&stage, ("POST", "/sign-in"), ("application/json", "{}"));
    assert_eq!(page.status, 415);
    let page = browser.ask(&stage, ("PUT", "/sign-in"), ("", ""));
    assert_eq!(page.status, 405);
    let page = open(&stage, &mut browser, "/sign-in");
    assert!(page.body.contains("name=\"password\""), "{}", page.body);
    let style = open(&stage, &mut browser, "/sign-in.css");
    assert_eq!(style.fields["content-type"], "text/css");
}
