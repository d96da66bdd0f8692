//! `warren up` without a token: it prints a link, somebody opens it on another machine, signs in
//! and lets the node in. The browser is curl: what works for it needs no script.

use std::io::Write as _;

use super::*;

const URL: &str = "https://10.9.0.254:8443";
const PASSWORD: &str = "correct horse battery";

/// A browser on the host of a node: it keeps cookies, and trusts what it is shown.
fn curl(lan: &Lan, index: usize, words: &str) -> Result<String> {
    let jar = lan.folder.path("cookies");
    let fixed = format!("curl -sSk -m 20 -b {jar} -c {jar} -H 'Origin: {URL}'");
    lan.nodes[index].host.sh(&format!("{fixed} {words}"))
}

/// A user with a password, which comes from standard input.
fn user(lan: &Lan, name: &str, role: &str) -> Result<()> {
    let mut command = lan.server.command(&[WARREN]);
    command.args(["user", "create", name, "--role", role, "--password", "--data"]);
    command.arg(lan.folder.path("server")).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn()?;
    child.stdin.take().context("it is piped")?.write_all(format!("{PASSWORD}\n").as_bytes())?;
    ensure!(child.wait()?.success(), "the user is made");
    Ok(())
}

/// Begins `warren up` on node 0 with these words; what it says is in a file.
fn begin_up(lan: &Lan, words: &[&str], env: &[Env], log: &str) -> Result<Running> {
    let Node { name, host, .. } = &lan.nodes[0];
    let socket = lan.folder.path(&format!("{name}.sock"));
    let all = [&["--socket", &socket, "up"], words].concat();
    Running::start_with(host, &all, env, &lan.folder.0.join(log))
}

/// The path of the link that it printed.
fn link(lan: &Lan, log: &str) -> Result<String> {
    let path = lan.folder.0.join(log);
    let find = || {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        text.lines().find_map(|line| line.trim().strip_prefix(URL)).map(str::to_owned)
    };
    let found = eventually("a link", seconds(PATIENCE), || find().is_some());
    found.with_context(|| {
        format!("{log}: {}", std::fs::read_to_string(&path).unwrap_or_default())
    })?;
    find().context("a link")
}

fn hidden(page: &str, name: &str) -> Result<String> {
    let from = format!("name=\"{name}\" value=\"");
    let (_, rest) = page.split_once(&from).with_context(|| format!("no {name} in {page}"))?;
    Ok(rest.split('"').next().unwrap_or_default().to_owned())
}

#[test]
fn co_04_a_link_opened_elsewhere_lets_a_machine_in_after_a_sign_in() -> Result<()> {
    network("signin", 2, |lan| {
        user(lan, "anna", "member")?;
        lan.daemon(0)?;
        // A certificate that nobody vouches for says nothing about a key.
        let why = lan.node(0, &["up", URL]).unwrap_err().to_string();
        ensure!(why.contains("#KEY"), "{why}");
        let serving = std::fs::read_to_string(lan.folder.0.join("serve.log"))?;
        let key = serving.lines().next().and_then(|line| line.rsplit(' ').next());
        let place = format!("{URL}#{}", key.context("a key")?);
        let up = begin_up(lan, &[&place, "--qr", "--hostname", "laptop"], &[], "up.log")?;
        let path = link(lan, "up.log")?;
        let said = std::fs::read_to_string(lan.folder.0.join("up.log"))?;
        ensure!(said.contains('▀') || said.contains('█'), "a QR code: {said}");
        let status = lan.status(0)?;
        ensure!(status["state"] == "needs-sign-in", "{status}");
        let shown = status["self"]["key"].as_str().context("a key")?[..12].to_owned();
        ensure!(said.contains(&shown), "{said}");
        // Somebody opens the link on another machine.
        let page = curl(lan, 1, &format!("{URL}{path}"))?;
        for what in ["laptop", &shown, "10.9.0.1"] {
            ensure!(page.contains(what), "{what} in {page}");
        }
        let form = format!("-d return={path} -d user=anna --data-urlencode 'password={PASSWORD}'");
        let page = curl(lan, 1, &format!("-L {form} {URL}/sign-in"))?;
        ensure!(page.contains("signed in as <b>anna</b>"), "{page}");
        let csrf = hidden(&page, "csrf")?;
        let begin = Instant::now();
        let page = curl(lan, 1, &format!("-d csrf={csrf} -d answer=yes {URL}{path}"))?;
        ensure!(page.contains("laptop is in"), "{page}");
        eventually("it runs", seconds(PATIENCE), || {
            lan.status(0).is_ok_and(|status| status["state"] == "running")
        })?;
        println!("from the last click to a node that runs: {:?}", begin.elapsed());
        drop(up);
        let nodes = lan.admin(&["node", "list", "--json"])?;
        ensure!(nodes.contains("\"user\":\"anna\""), "{nodes}");
        // Up again needs nobody; and when its key is over, a link again, for the same node.
        lan.node(0, &["down"])?;
        lan.node(0, &["up", "--timeout", "20s", "--hostname", "laptop"])?;
        lan.admin(&["node", "expire", "laptop"])?;
        eventually("it is over", seconds(PATIENCE), || {
            lan.status(0).is_ok_and(|status| status["state"] == "refused")
        })?;
        let up = begin_up(lan, &["--hostname", "laptop"], &[], "again.log")?;
        let path = link(lan, "again.log")?;
        let page = curl(lan, 1, &format!("{URL}{path}"))?;
        let csrf = hidden(&page, "csrf")?;
        curl(lan, 1, &format!("-d csrf={csrf} -d answer=yes {URL}{path}"))?;
        eventually("it runs again", seconds(PATIENCE), || {
            lan.status(0).is_ok_and(|status| status["state"] == "running")
        })?;
        drop(up);
        let nodes: Value = serde_json::from_str(&lan.admin(&["node", "list", "--json"])?)?;
        ensure!(nodes["nodes"].as_array().is_some_and(|nodes| nodes.len() == 1), "{nodes}");
        // Where the certificate is trusted the address is enough; and who changes his mind leaves.
        lan.node(0, &["logout"])?;
        let trusted = lan.folder.path("server/tls.crt");
        let env: &[Env] = &[("SSL_CERT_FILE", Box::leak(trusted.into_boxed_str()))];
        let up = begin_up(lan, &[URL, "--hostname", "laptop"], env, "trusted.log")?;
        link(lan, "trusted.log")?;
        lan.node(0, &["logout"])?;
        drop(up);
        let status = lan.status(0)?;
        ensure!(status["state"] == "no-network", "{status}");
        Ok(())
    })
}
