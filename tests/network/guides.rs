//! The guides of docs/coming-from.md. What a guide tells a newcomer to type is typed here, in its
//! order, on a network that has only just begun. The guide has to say it, so neither changes alone.

use super::*;

/// One chapter of the page, its lines joined.
struct Guide(String);

impl Guide {
    fn from(whom: &str) -> Result<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/coming-from.md");
        let page = std::fs::read_to_string(path)?;
        let begin = page.find("# Coming from").context("a title")?;
        let introduction = page[begin..].split("\n## ").next().context("an introduction")?;
        let own = page.split("\n## ").find(|chapter| chapter.starts_with(whom));
        let text = format!("{introduction} {}", own.context("a chapter")?);
        Ok(Self(text.split_whitespace().collect::<Vec<_>>().join(" ")))
    }

    /// Fails unless the guide says so.
    fn says(&self, words: &str) -> Result<()> {
        ensure!(self.0.contains(words), "the guide does not say {words:?}");
        Ok(())
    }
}

/// All that a command of the administrator printed, warnings too.
fn told(lan: &Lan, words: &[&str]) -> Result<String> {
    let out = lan.server.command(&[WARREN]).args(words).output()?;
    let all = [&out.stdout[..], &out.stderr].concat();
    let all = String::from_utf8_lossy(&all).into_owned();
    ensure!(out.status.success(), "{words:?}: {all}");
    Ok(all)
}

/// Whether TCP connects to a port of another node.
fn connects(lan: &Lan, from: usize, to: &str, port: &str) -> bool {
    let test = format!("timeout 1 bash -c '</dev/tcp/{to}/{port}'");
    lan.nodes[from].host.sh(&test).is_ok()
}

fn listen(lan: &Lan, index: usize, port: &str) -> Result<Running> {
    let words = ["python3", "-m", "http.server", port];
    let mut command = lan.nodes[index].host.command(&words);
    Ok(Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?))
}

const POLICY: &str = r#"{
  // Out of the admin console.
  "groups": {"group:lab": ["ann@example.com"]},
  "tagOwners": {"tag:server": ["group:lab"]},
  "acls": [{"action": "accept", "src": ["group:lab"], "dst": ["tag:server:8080"]}],
  "ssh": [{"action": "accept", "src": ["group:lab"], "dst": ["tag:server"], "users": ["root"]}],
}"#;

#[test]
fn the_guide_from_tailscale_leads_to_a_network_with_the_old_policy() -> Result<()> {
    let guide = Guide::from("From Tailscale")?;
    network("gt", 2, |lan| {
        guide.says("Copy the policy out of the admin console into `policy.hujson`")?;
        let file = lan.folder.path("policy.hujson");
        std::fs::write(&file, POLICY)?;
        guide.says("`warren policy check policy.hujson` names each thing that Warren does not")?;
        let said = told(lan, &["policy", "check", &file])?;
        ensure!(said.contains("6:3") && said.contains("ssh"), "{said}");
        guide.says("`warren user create NAME` for each user that the policy names")?;
        lan.admin(&["user", "create", "ann@example.com"])?;
        guide.says("`warren policy set policy.hujson`")?;
        lan.admin(&["policy", "set", &file])?;
        guide.says("`warren key create --user NAME`, or `--tag tag:server`")?;
        let of_ann = lan.token(&["--user", "ann@example.com"])?;
        let of_server = lan.token(&["--tag", "tag:server"])?;

        guide.says("`warren up TOKEN`; `--authkey TOKEN` is the same")?;
        lan.daemon(0)?;
        lan.node(0, &["up", "--authkey", &of_ann, "--timeout", "20s", "--hostname", "laptop"])?;
        lan.daemon(1)?;
        let flags = ["--hostname", "db", "--advertise-routes", "10.7.0.0/16", "--accept-dns=false"];
        guide.says("`--accept-dns=false`, `--hostname`")?;
        lan.node(1, &[&["up", &of_server, "--timeout", "20s"][..], &flags].concat())?;
        guide.says("`warren route approve NODE PREFIX`")?;
        lan.admin(&["route", "approve", "db", "10.7.0.0/16"])?;

        guide
            .says("`tailscale status`, `ping`, `netcheck`, `whois`, `exit-node list`, `version`")?;
        ensure!(lan.node(0, &["status"])?.contains("db"));
        ensure!(lan.node(0, &["ping", "db", "-c", "1"])?.contains("db"));
        ensure!(lan.node(0, &["whois", "100.64.0.2"])?.contains("db"));
        for words in [&["netcheck"][..], &["exit-node", "list"], &["version"]] {
            lan.node(0, words)?;
        }
        // The old policy holds: its port is open and no other one.
        let open = listen(lan, 1, "8080")?;
        let shut = listen(lan, 1, "8081")?;
        eventually("its port", seconds(PATIENCE), || connects(lan, 0, "100.64.0.2", "8080"))?;
        ensure!(!connects(lan, 0, "100.64.0.2", "8081"), "a port that no rule allows");
        drop((open, shut));
        Ok(())
    })
}

const TABLES: &str = include_str!("../serve/headscale.sql");
/// What a small network of Headscale keeps in them.
const HEADSCALE: &str = r#"
INSERT INTO users (name) VALUES ('ann');
INSERT INTO nodes (machine_key, node_key, ipv4, hostname, given_name, user_id, tags,
  approved_routes) VALUES
  ('mkey:00', 'nodekey:00', '100.64.0.77', 'Lab PC', 'lab-pc', 1, '[]', '["10.7.0.0/16"]'),
  ('mkey:01', 'nodekey:01', '100.64.0.9', 'robot', 'robot', NULL, '["tag:robot"]', NULL);
INSERT INTO policies (data) VALUES
  ('{"tagOwners": {"tag:robot": ["ann@"]},
     "acls": [{"action": "accept", "src": ["ann@"], "dst": ["tag:robot:*"]}]}');
"#;

#[test]
fn the_guide_from_headscale_keeps_names_addresses_and_policy() -> Result<()> {
    let guide = Guide::from("From Headscale")?;
    network("gh", 2, |lan| {
        let file = lan.folder.path("db.sqlite");
        let make = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript(sys.argv[2])";
        let sql = format!("{TABLES}{HEADSCALE}");
        said(Command::new("python3").args(["-c", make, &file, &sql]))?;
        guide
            .says("`warren import headscale db.sqlite --dry-run` shows what would be taken over")?;
        let plan = lan.admin(&["import", "headscale", &file, "--dry-run"])?;
        ensure!(plan.contains("lab-pc") && plan.contains("10.7.0.0/16"), "{plan}");
        guide.says("`warren import headscale db.sqlite` makes the users and the join keys")?;
        let done = lan.admin(&["import", "headscale", &file])?;
        let token = |name: &str| {
            let mut lines = done.lines().filter(|line| line.contains(name));
            let token = lines.find_map(|line| line.split(' ').find(|w| w.starts_with("warren-")));
            token.map(str::to_owned).with_context(|| format!("a token for {name}: {done}"))
        };
        guide.says("On each machine `warren up TOKEN` with its token")?;
        for (index, name, address) in [(0, "lab-pc", "100.64.0.77"), (1, "robot", "100.64.0.9")] {
            lan.daemon(index)?;
            lan.node(index, &["up", &token(name)?, "--timeout", "20s"])?;
            guide.says("It has its old name and IPv4 address")?;
            let status = lan.status(index)?;
            ensure!(status["self"]["name"] == name, "{}", status["self"]);
            ensure!(lan.node(index, &["ip", "-4"])?.trim() == address);
        }
        lan.reaches(0, "100.64.0.9")?;
        ensure!(lan.admin(&["policy", "get"])?.contains("tag:robot:*"));
        guide.says("`warren route approve NODE PREFIX` for routes, which the dry run lists")?;
        lan.node(0, &["set", "--advertise-routes", "10.7.0.0/16"])?;
        lan.admin(&["route", "approve", "lab-pc", "10.7.0.0/16"]).map(drop)
    })
}

#[test]
fn the_guide_from_netbird_makes_groups_tags_and_policies_rules() -> Result<()> {
    let guide = Guide::from("From NetBird")?;
    network("gn", 2, |lan| {
        guide.says(r#"{"action": "accept", "src": ["tag:robot"], "dst": ["tag:db:5432"]}"#)?;
        let file = lan.folder.path("policy.hujson");
        let policy = r#"{"tagOwners": {"tag:robot": [], "tag:db": []}, "acls": [
            {"action": "accept", "src": ["tag:robot"], "dst": ["tag:db:5432"]}]}"#;
        std::fs::write(&file, policy)?;
        guide
            .says("`warren policy check`, `warren policy set`, then join the machines with keys")?;
        told(lan, &["policy", "check", &file])?;
        lan.admin(&["policy", "set", &file])?;
        guide.says("`warren key create --tag robot`")?;
        let robot = lan.token(&["--tag", "robot"])?;
        let db = lan.token(&["--tag", "db"])?;
        lan.up(0, &robot, &[])?;
        lan.up(1, &db, &[])?;
        guide.says("`warren dns set`")?;
        lan.admin(&["dns", "set", "--upstream", SERVER])?;
        guide.says("What no rule allows does not pass")?;
        let open = listen(lan, 1, "5432")?;
        let shut = listen(lan, 1, "5433")?;
        eventually("its port", seconds(PATIENCE), || connects(lan, 0, "100.64.0.2", "5432"))?;
        ensure!(!connects(lan, 0, "100.64.0.2", "5433"), "a port that no rule allows");
        drop((open, shut));
        Ok(())
    })
}

/// A file of wg-quick at each end goes on as it is; a network comes beside it.
#[test]
fn the_guide_from_wireguard_keeps_the_old_link_while_the_network_comes_up() -> Result<()> {
    let guide = Guide::from("From WireGuard")?;
    network("gw", 2, |lan| {
        guide.says("`warren link up wg0.conf` runs a wg-quick file as it is")?;
        let keys = [0, 1].map(|_| said(Command::new("wg").arg("genkey")));
        let keys = keys.into_iter().collect::<Result<Vec<_>>>()?;
        let public = |key: &str| -> Result<String> {
            let script = format!("printf %s '{}' | wg pubkey", key.trim());
            Ok(said(Command::new("sh").args(["-c", &script]))?.trim().to_owned())
        };
        let mut links = Vec::new();
        for own in [0, 1] {
            let other = 1 - own;
            let text = format!(
                "[Interface]\nPrivateKey = {}\nListenPort = 51820\nAddress = 10.90.0.{}/24\n\
                 [Peer]\nPublicKey = {}\nAllowedIPs = 10.90.0.{}/32\nEndpoint = 10.9.0.{}:51820\n",
                keys[own].trim(),
                own + 1,
                public(&keys[other])?,
                other + 1,
                other + 1
            );
            let folder = lan.folder.0.join(format!("wg{own}"));
            std::fs::create_dir_all(&folder)?;
            let file = folder.join(format!("wg{own}.conf"));
            std::fs::write(&file, text)?;
            let log = lan.folder.0.join(format!("link{own}.log"));
            let words = ["link", "up", &file.display().to_string()];
            links.push(Running::start(&lan.nodes[own].host, &words, &log)?);
        }
        lan.reaches(0, "10.90.0.2")?;
        guide.says("Bring the network up beside the old one")?;
        let token = lan.token(&["--reusable"])?;
        lan.all_up(&token)?;
        lan.reaches(0, "100.64.0.2")?;
        lan.reaches(0, "10.90.0.2")?;
        guide.says("get a file of `warren peer add NAME --gateway NODE`")?;
        let phone = lan.admin(&["peer", "add", "phone", "--gateway", "a"])?;
        ensure!(phone.contains("[Interface]") && phone.contains("Endpoint"), "{phone}");
        links.iter_mut().try_for_each(Running::end)?;
        lan.reaches(0, "100.64.0.2").map(drop)
    })
}
