//! Signing in by a provider: an honest one, and one that is not (threats CO-08, WB-06, WB-07).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use server::{Config, Provider, Server};

use crate::browser::{Browser, Page};
use crate::hostile::Hostile;
use crate::stage::{Folder, PATIENCE, Stage, config};

/// Seconds by which the clock is ahead at [`stage_ahead`]: only ever more, for all that use it.
static AHEAD_S: AtomicU64 = AtomicU64::new(0);

fn ahead() -> u64 {
    server::unix_s() + AHEAD_S.load(Ordering::Relaxed)
}

/// A server that sends people to this provider.
fn stage(provider: &Hostile, more: &str) -> Stage {
    stage_by(server::unix_s, provider, more)
}

/// The same, whose clock is set ahead by the tests that use it; none of them minds the others.
fn stage_ahead(provider: &Hostile, more: &str) -> Stage {
    stage_by(ahead, provider, more)
}

fn stage_by(clock: fn() -> u64, provider: &Hostile, more: &str) -> Stage {
    let folder = Folder::new();
    std::fs::create_dir_all(&folder.0).unwrap();
    let file = folder.0.join("oidc.toml");
    let text = format!(
        "name = \"The University\"\nissuer = \"{}\"\nclient_id = \"warren\"\n\
         ca_file = {:?}\n{more}",
        provider.issuer(),
        provider.ca
    );
    std::fs::write(&file, text).unwrap();
    let oidc = Some(Provider::read(&file).unwrap());
    let store = crate::store(folder.1);
    let config = Config { oidc, clock, store: store.clone(), ..config(&folder.0, 0) };
    let server = Server::start(config).unwrap();
    let address = server.address();
    Stage { server: Some(server), address, folder, store }
}

fn get(stage: &Stage, browser: &mut Browser, path: &str) -> Page {
    browser.ask(stage, ("GET", path), ("", ""))
}

fn word(url: &str, name: &str) -> String {
    let from = format!("{name}=");
    let pairs = url.split(['?', '&']);
    let found = pairs.filter_map(|pair| pair.strip_prefix(&from)).next();
    found.unwrap_or_else(|| panic!("no {name} in {url}")).to_owned()
}

/// Goes to the provider: the state with which it would send the browser back.
fn go(stage: &Stage, provider: &Hostile, browser: &mut Browser, back: &str) -> String {
    let page = get(stage, browser, &format!("/sign-in/oidc?return={back}"));
    assert_eq!(page.status, 303, "{}", page.body);
    let to = page.fields["location"].clone();
    assert!(to.starts_with(&format!("{}/authorize?", provider.issuer())), "{to}");
    for what in ["response_type=code", "code_challenge_method=S256", "client_id=warren"] {
        assert!(to.contains(what), "{what}: {to}");
    }
    assert_eq!(word(&to, "code_challenge").len(), 43);
    provider.with(|script| script.nonce = word(&to, "nonce"));
    word(&to, "state")
}

fn come(stage: &Stage, browser: &mut Browser, state: &str) -> Page {
    get(stage, browser, &format!("/sign-in/oidc/callback?code=c0de&state={state}"))
}

fn sign_in(stage: &Stage, provider: &Hostile, browser: &mut Browser) -> Page {
    let state = go(stage, provider, browser, "/a/x");
    come(stage, browser, &state)
}

fn who(stage: &Stage, browser: &mut Browser) -> Page {
    browser.call(stage, "GET", "/api/v1/session", &Value::Null)
}

#[test]
fn co_08_a_provider_says_who_somebody_is_by_issuer_and_subject() {
    let provider = Hostile::new();
    let stage = stage(&provider, "");
    stage.call("POST", "/api/v1/users", &json!({ "name": "anna" }), 201);
    let mut browser = Browser::default();
    let ways = who(&stage, &mut browser).json();
    assert_eq!(ways["sign_in"]["oidc"][0]["name"], "The University");
    assert_eq!(ways["sign_in"]["oidc"][0]["url"], "/sign-in/oidc");
    assert!(get(&stage, &mut browser, "/sign-in").body.contains("The University"));
    assert_eq!(provider.times("/.well-known/openid-configuration"), 0, "nobody asked yet");
    let page = sign_in(&stage, &provider, &mut browser);
    assert_eq!((page.status, page.fields["location"].as_str()), (303, "/a/x"), "{}", page.body);
    let me = who(&stage, &mut browser).json();
    assert_eq!((&me["user"], &me["role"]), (&json!("anna-2"), &json!("member")), "anna is another");
    // Another name and another address are the same person; another subject is another one.
    provider.with(|script| {
        script.claims = json!({ "preferred_username": "owner", "email": "anna@x.example",
                                "email_verified": true, "groups": ["/Staff/Ops"] });
    });
    sign_in(&stage, &provider, &mut browser);
    assert_eq!(who(&stage, &mut browser).json()["user"], "anna-2");
    provider.with(|script| {
        script.claims = json!({ "sub": "u2", "email": "anna@x.example", "email_verified": true });
    });
    let mut other = Browser::default();
    sign_in(&stage, &provider, &mut other);
    assert_eq!(who(&stage, &mut other).json()["user"], "anna-3");
    let users = stage.call("GET", "/api/v1/users", &Value::Null, 200);
    let anna = users["users"].as_array().unwrap().iter().find(|u| u["name"] == "anna-2").unwrap();
    assert_eq!(anna["groups"], json!(["staff-ops"]));
    assert_eq!((&anna["email"], &anna["password"]), (&json!("anna@x.example"), &json!(false)));
    // The provider is asked once for what it is, and once for its keys.
    assert_eq!(provider.times("/.well-known/openid-configuration"), 1);
    assert_eq!(provider.times("/keys"), 1);
    let form =
        provider.script.lock().unwrap().asked.iter().rev().find(|a| a.0 == "/token").cloned();
    let form = form.unwrap().1;
    assert!(
        form.contains("code_verifier=") && form.contains("redirect_uri=https%3A%2F%2F"),
        "{form}"
    );
    let mut nobody = Browser::default();
    assert_eq!(nobody.sign_in(&stage, "anna-2", "").status, 401, "without a password");
}

#[test]
fn wb_07_a_state_is_good_once_and_in_one_browser() {
    let provider = Hostile::new();
    let stage = stage(&provider, "");
    let mut victim = Browser::default();
    let state = go(&stage, &provider, &mut victim, "/");
    // The attacker's own sign-in, given to somebody else, signs nobody in.
    let mut other = Browser::default();
    let page = come(&stage, &mut other, &state);
    assert!(page.status == 403 && other.cookie().is_none(), "{}", page.body);
    let page = come(&stage, &mut victim, &state);
    assert_eq!(page.status, 403, "it was used up");
    let begun = go(&stage, &provider, &mut victim, "/");
    go(&stage, &provider, &mut other, "/");
    provider.with(|script| script.nonce = "another".to_owned());
    assert_eq!(come(&stage, &mut other, &begun).status, 403);
    for state in ["", "x", "AAAAAAAAAAAAAAAAAAAAAA", "%00"] {
        assert_eq!(come(&stage, &mut victim, state).status, 403, "{state}");
    }
    // Another issuer than was asked, and an error, are told.
    let state = go(&stage, &provider, &mut victim, "/");
    let path = format!("/sign-in/oidc/callback?code=c&state={state}&iss=https%3A%2F%2Fevil");
    assert_eq!(get(&stage, &mut victim, &path).status, 403);
    let path = "/sign-in/oidc/callback?error=%3Cscript%3E&state=x";
    let page = get(&stage, &mut victim, path);
    assert!(page.status == 403 && !page.body.contains("<script"), "{}", page.body);
    assert_eq!(victim.cookie(), None);
    // No place elsewhere is gone on to.
    for back in ["//evil.example", "https://evil.example", "/%5Cevil.example"] {
        let mut browser = Browser::default();
        let state = go(&stage, &provider, &mut browser, back);
        let page = come(&stage, &mut browser, &state);
        assert_eq!((page.status, page.fields["location"].as_str()), (303, "/"), "{back}");
    }
}

#[test]
fn wb_07_what_a_hostile_provider_says_signs_nobody_in() {
    let provider = Hostile::new();
    let stage = stage(&provider, "");
    let now = server::unix_s();
    for (claims, head) in [
        (json!({ "iss": "https://evil.example" }), None),
        (json!({ "aud": "other" }), None),
        (json!({ "aud": ["warren", "other"] }), None),
        (json!({ "exp": now - 100 }), None),
        (json!({ "iat": now + 1000 }), None),
        (json!({ "nonce": "of another sign-in" }), None),
        (json!({ "sub": null }), None),
        (json!({}), Some(json!({ "alg": "none" }))),
        (json!({}), Some(json!({ "alg": "HS256", "kid": "one" }))),
        (json!({}), Some(json!({ "alg": "RS256", "kid": "one" }))),
        (json!({}), Some(json!({ "alg": "EdDSA", "crit": ["x"] }))),
    ] {
        provider.with(|script| (script.claims, script.head) = (claims.clone(), head.clone()));
        let mut browser = Browser::default();
        let page = sign_in(&stage, &provider, &mut browser);
        assert_eq!(page.status, 403, "{claims} {head:?}: {}", page.body);
        assert_eq!(browser.cookie(), None);
    }
    provider.with(|script| {
        (script.claims, script.head) = (Value::Null, None);
        script.signs_with_another = true;
    });
    let mut browser = Browser::default();
    assert_eq!(sign_in(&stage, &provider, &mut browser).status, 403, "a key that it never showed");
    // However many tokens have an unknown key, the keys are asked for once a minute.
    provider.with(|script| script.head = Some(json!({ "alg": "EdDSA", "kid": "unknown" })));
    for _ in 0..5 {
        assert_eq!(sign_in(&stage, &provider, &mut browser).status, 403);
    }
    assert!(provider.times("/keys") <= 2, "{}", provider.times("/keys"));
    provider.with(|script| (script.head, script.signs_with_another) = (None, false));
    assert_eq!(sign_in(&stage, &provider, &mut browser).status, 303, "and an honest word does");
    let users = stage.call("GET", "/api/v1/users", &Value::Null, 200);
    assert_eq!(users["users"].as_array().unwrap().len(), 1);
}

#[test]
fn wb_07_a_provider_changes_its_key_and_the_old_one_is_believed_no_longer() {
    // The new key may have a name of its own, the old one's, or none.
    for id in [json!("two"), json!("one"), Value::Null] {
        let provider = Hostile::new();
        let stage = stage(&provider, "");
        let mut browser = Browser::default();
        assert_eq!(sign_in(&stage, &provider, &mut browser).status, 303, "with the first key");
        provider.with(|script| script.rotated = Some(id.clone()));
        assert_eq!(sign_in(&stage, &provider, &mut browser).status, 303, "with the next, {id}");
        assert_eq!(provider.times("/keys"), 2);
        provider.with(|script| script.signs_with_another = true);
        for _ in 0..3 {
            assert_eq!(sign_in(&stage, &provider, &mut browser).status, 403, "with the old, {id}");
        }
        assert_eq!(provider.times("/keys"), 2, "and nobody has keys fetched again and again");
    }
}

#[test]
fn wb_06_what_is_too_large_leads_elsewhere_or_is_none_is_not_taken() {
    let large = vec![b' '; 10 * 1024 * 1024];
    let discovery = |issuer: &str, more: &Value| {
        let mut value = json!({ "issuer": issuer,
            "authorization_endpoint": format!("{issuer}/authorize"),
            "token_endpoint": format!("{issuer}/token"), "jwks_uri": format!("{issuer}/keys") });
        for (name, place) in more.as_object().unwrap() {
            value[name] = place.clone();
        }
        value.to_string().into_bytes()
    };
    const AT: &str = "/.well-known/openid-configuration";
    for (path, status, body) in [
        (AT, 200, large.clone()),
        (AT, 302, Vec::new()),
        (AT, 500, Vec::new()),
        (AT, 200, b"{}".to_vec()),
        (AT, 200, b"<html>".to_vec()),
        (AT, 200, discovery("https://evil.example", &json!({}))),
        (AT, 200, discovery("ISSUER", &json!({ "jwks_uri": "http://127.0.0.1/keys" }))),
        (AT, 200, discovery("ISSUER", &json!({ "token_endpoint": "https://169.254.169.254/" }))),
        (AT, 200, discovery("ISSUER", &json!({ "jwks_uri": "file:///etc/passwd" }))),
        ("/keys", 200, large.clone()),
        ("/keys", 200, b"{\"keys\": 7}".to_vec()),
        ("/keys", 302, Vec::new()),
        ("/token", 200, large),
        ("/token", 200, b"{}".to_vec()),
        ("/token", 400, b"{\"error\":\"invalid_grant\"}".to_vec()),
        ("/token", 302, Vec::new()),
    ] {
        let provider = Hostile::new();
        let stage = stage(&provider, "");
        let body = String::from_utf8(body).unwrap().replace("ISSUER", &provider.issuer());
        let shown: String = body.chars().take(60).collect();
        provider.with(|script| drop(script.instead.insert(path, (status, body.into_bytes()))));
        let mut browser = Browser::default();
        let page = get(&stage, &mut browser, "/sign-in/oidc?return=/");
        let page = match page.status {
            303 => {
                assert_ne!(path, AT, "{shown}");
                let to = page.fields["location"].clone();
                provider.with(|script| script.nonce = word(&to, "nonce"));
                come(&stage, &mut browser, &word(&to, "state"))
            }
            _ => page,
        };
        assert!([403, 502].contains(&page.status), "{path} {shown}: {}", page.status);
        assert!(page.body.contains("name=\"password\""), "there is the other way in");
        assert_eq!(browser.cookie(), None);
    }
}

#[test]
fn co_08_a_provider_that_is_gone_blocks_new_sign_ins_alone_and_comes_back() {
    let provider = Hostile::new();
    let down = |is: bool| {
        provider.with(|script| {
            for path in ["/.well-known/openid-configuration", "/token", "/keys"] {
                match is {
                    true => drop(script.instead.insert(path, (503, Vec::new()))),
                    false => drop(script.instead.remove(path)),
                }
            }
        });
    };
    // It is down at the start: the server starts, and people with passwords sign in.
    down(true);
    let stage = stage(&provider, "");
    let mut owner = crate::people::person(&stage, "owner", "owner");
    let mut browser = Browser::default();
    let page = get(&stage, &mut browser, "/sign-in/oidc?return=/");
    assert_eq!(page.status, 502, "{}", page.body);
    let health = owner.call(&stage, "GET", "/api/v1/health", &Value::Null).json();
    assert!(health["provider"]["trouble"].is_string(), "{health}");
    down(false);
    let begin = Instant::now();
    while get(&stage, &mut browser, "/sign-in/oidc?return=/").status != 303 {
        assert!(begin.elapsed() < PATIENCE, "it is asked again after a moment");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(sign_in(&stage, &provider, &mut browser).status, 303);
    down(true);
    assert_eq!(who(&stage, &mut browser).status, 200, "who is signed in stays so");
}

#[test]
fn co_08_only_who_is_in_a_group_that_may_comes_in() {
    let provider = Hostile::new();
    let stage = stage(&provider, "allow_groups = [\"staff\"]\ngroups_prefix = \"uni-\"\n");
    let mut browser = Browser::default();
    let page = sign_in(&stage, &provider, &mut browser);
    assert_eq!(page.status, 403);
    assert!(page.body.contains("none of the groups"), "{}", page.body);
    provider.with(|script| script.claims = json!({ "groups": ["staff", "x"] }));
    assert_eq!(sign_in(&stage, &provider, &mut browser).status, 303);
    let users = stage.call("GET", "/api/v1/users", &Value::Null, 200);
    assert_eq!(users["users"][0]["groups"], json!(["uni-staff", "uni-x"]));
}

#[test]
fn co_08_who_leaves_is_out_and_signed_out() {
    let provider = Hostile::new();
    let stage = stage_ahead(&provider, "");
    let mut browser = Browser::default();
    assert_eq!(sign_in(&stage, &provider, &mut browser).status, 303);
    let groups = || {
        let users = stage.call("GET", "/api/v1/users", &Value::Null, 200);
        users["users"][0]["groups"].clone()
    };
    let until = |wanted: Value| {
        let begin = Instant::now();
        while groups() != wanted {
            assert!(begin.elapsed() < PATIENCE, "{} is not {wanted}", groups());
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    assert_eq!(groups(), json!(["ops"]));
    provider.with(|script| script.claims = json!({ "groups": ["net"] }));
    AHEAD_S.fetch_add(301, Ordering::Relaxed);
    until(json!(["net"]));
    assert_eq!(who(&stage, &mut browser).status, 200, "another group ends no session");
    let refused = (400, b"{\"error\":\"invalid_grant\"}".to_vec());
    provider.with(|script| drop(script.instead.insert("/token", refused)));
    AHEAD_S.fetch_add(301, Ordering::Relaxed);
    until(json!([]));
    assert_eq!(who(&stage, &mut browser).status, 401);
    let log = stage.call("GET", "/api/v1/audit", &Value::Null, 200).to_string();
    assert!(log.contains("user.groups") && log.contains("user.lost"), "{log}");
}

#[test]
fn co_09_a_group_gives_a_role_and_who_leaves_it_loses_it_within_minutes() {
    let provider = Hostile::new();
    let roles = "[roles]\n\"/net/ops\" = \"operator\"\nroot = \"owner\"\n";
    let stage = stage_ahead(&provider, roles);
    let claims =
        |groups: Value| provider.with(|script| script.claims = json!({ "groups": groups }));
    let role = || {
        let users = stage.call("GET", "/api/v1/users", &Value::Null, 200);
        users["users"][0]["role"].as_str().unwrap().to_owned()
    };
    let until = |wanted: &str| {
        let begin = Instant::now();
        while role() != wanted {
            assert!(begin.elapsed() < PATIENCE, "{} is not {wanted}", role());
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    claims(json!(["/net/ops"]));
    let mut browser = Browser::default();
    assert_eq!(sign_in(&stage, &provider, &mut browser).status, 303);
    assert_eq!(who(&stage, &mut browser).json()["role"], "operator");
    assert_eq!(browser.call(&stage, "GET", "/api/v1/keys", &Value::Null).status, 200);
    claims(json!(["/net"]));
    AHEAD_S.fetch_add(301, Ordering::Relaxed);
    until("member");
    assert_eq!(who(&stage, &mut browser).status, 401, "a session of another role is over");
    // The last owner stays one, whatever the provider says; beside another one it does not.
    claims(json!(["root"]));
    assert_eq!(sign_in(&stage, &provider, &mut browser).status, 303);
    assert_eq!(who(&stage, &mut browser).json()["role"], "owner");
    claims(json!([]));
    assert_eq!(sign_in(&stage, &provider, &mut browser).status, 303);
    assert_eq!(role(), "owner");
    crate::people::person(&stage, "zoe", "owner");
    assert_eq!(sign_in(&stage, &provider, &mut browser).status, 303);
    assert_eq!(role(), "member");
    let log = stage.call("GET", "/api/v1/audit", &Value::Null, 200).to_string();
    assert!(log.contains("\"user.role\"") && log.contains("\"provider\""), "{log}");
}

#[test]
fn co_08_a_provider_that_refuses_this_server_says_nothing_of_people() {
    let provider = Hostile::new();
    let stage = stage_ahead(&provider, "");
    let mut browser = Browser::default();
    assert_eq!(sign_in(&stage, &provider, &mut browser).status, 303);
    // Another secret at the provider, a gateway in front of it, a token that is not to be believed.
    for (path, status, body) in [
        ("/token", 401, "{\"error\":\"invalid_client\"}"),
        ("/token", 403, "<html>"),
        ("/token", 400, "{\"error\":\"unauthorized_client\"}"),
        ("/token", 200, "{\"id_token\":\"a.b.c\"}"),
    ] {
        let asked = provider.times(path);
        provider.with(|script| drop(script.instead.insert(path, (status, body.into()))));
        AHEAD_S.fetch_add(301, Ordering::Relaxed);
        let begin = Instant::now();
        while provider.times(path) == asked {
            assert!(begin.elapsed() < PATIENCE, "it is asked again");
            std::thread::sleep(Duration::from_millis(100));
        }
        std::thread::sleep(Duration::from_millis(500));
        let users = stage.call("GET", "/api/v1/users", &Value::Null, 200);
        assert_eq!(users["users"][0]["groups"], json!(["ops"]), "{status} {body}");
        assert_eq!(who(&stage, &mut browser).status, 200, "{status} {body}");
    }
}
