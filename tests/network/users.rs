//! Who may ask the daemon for what, and what is in the answers: another user of the machine may
//! look, and changes nothing; a bundle for others to read has no secret in it.

use super::*;

/// A command of node 0 as a user who is nobody.
fn as_nobody(lan: &Lan, words: &[&str]) -> Result<std::process::Output> {
    let Node { name, host, .. } = &lan.nodes[0];
    let drop = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", WARREN];
    let mut command = host.command(&drop);
    command.args(["--socket", &lan.folder.path(&format!("{name}.sock"))]).args(words);
    Ok(command.output()?)
}

#[test]
fn another_user_may_look_and_changes_nothing() -> Result<()> {
    network("users", 1, |lan| {
        let token = lan.token(&[])?;
        lan.up(0, &token, &[])?;
        for words in [&["status"][..], &["status", "--json"], &["ip"], &["why", "100.64.0.9"]] {
            let output = as_nobody(lan, words)?;
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(!why.contains("only root"), "{words:?}: {why}");
        }
        let changes: [&[&str]; 6] = [
            &["down"],
            &["logout"],
            &["up"],
            &["up", &token, "--timeout", "5s"],
            &["set", "--accept-routes"],
            &["set", "--exit-node", "b"],
        ];
        for words in changes {
            let output = as_nobody(lan, words)?;
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(output.status.code() == Some(1), "{words:?}");
            ensure!(why.contains("only root may do this"), "{words:?}: {why}");
        }
        let status = lan.status(0)?;
        ensure!(status["self"]["name"] == "a" && status["self"]["online"] == true, "{status}");
        Ok(())
    })
}

#[test]
fn ho_06_an_operator_is_up_and_down_and_sets_and_no_more() -> Result<()> {
    network("operator", 1, |lan| {
        let token = lan.token(&[])?;
        lan.up(0, &token, &[])?;
        lan.node(0, &["set", "--operator", "nobody"])?;
        for words in [&["down"][..], &["up"], &["set", "--accept-routes"], &["up"]] {
            let output = as_nobody(lan, words)?;
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(output.status.success(), "{words:?}: {why}");
        }
        for words in [&["logout"][..], &["debug", "bundle"], &["set", "--operator", "root"]] {
            let output = as_nobody(lan, words)?;
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(
                why.contains("the operator may say up, down, set and bandwidth"),
                "{words:?}: {why}"
            );
        }
        ensure!(lan.status(0)?["settings"]["accept_routes"] == true);
        let unknown = lan.node(0, &["set", "--operator", "nobody-has-this"]);
        ensure!(unknown.is_err_and(|why| why.to_string().contains("no user")));
        lan.node(0, &["set", "--operator", ""])?;
        let output = as_nobody(lan, &["down"])?;
        ensure!(String::from_utf8_lossy(&output.stderr).contains("only root may do this"));
        Ok(())
    })
}

#[test]
fn a_bundle_for_others_to_read_has_no_secret_in_it() -> Result<()> {
    network("bundle", 2, |lan| {
        let token = lan.token(&["--reusable"])?;
        lan.all_up(&token)?;
        lan.reaches(0, "100.64.0.2")?;
        let state = std::fs::read_to_string(lan.folder.0.join("a/node.json"))?;
        let kept: Value = serde_json::from_str(&state)?;
        let mut hidden = vec![token.clone(), token[token.len() - 12..].to_owned()];
        for name in ["machine", "node"] {
            hidden.push(kept[name].as_str().context("a private key")?.to_owned());
        }
        let bundle = lan.node(0, &["debug", "bundle"])?;
        ensure!(bundle.contains("100.64.0.2") && bundle.contains("\"b\""), "it tells something");
        for (file, part) in [
            ("README.txt", "keys, tokens and"),
            ("counters.json", "\"handshakes_in\": "),
            ("routes.txt", "dev warren0"),
            ("rules.txt", "lookup"),
            ("nft.txt", "$ nft list ruleset"),
            ("resolver.txt", "== /etc/resolv.conf"),
            ("kernel.txt", "Linux"),
            ("log.txt", "INFO"),
        ] {
            let whole = format!("warren-bundle/{file}");
            ensure!(bundle.contains(&whole) && bundle.contains(part), "{file} with {part}");
        }
        let told: Value = serde_json::from_str(&lan.node(0, &["debug", "bundle", "--json"])?)?;
        ensure!(told["counters"]["packets_out"].is_u64(), "{}", told["counters"]);
        for secret in hidden {
            ensure!(!bundle.contains(&secret), "a secret of {} bytes is in it", secret.len());
        }
        Ok(())
    })
}
