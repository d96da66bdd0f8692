//! A site at Azure and one by `ssh`, joined: `arm.py` is the Resource Manager with a memory, and
//! what it believes is made into namespaces and `nft`, so that real packets decide. What was said
//! is held against Microsoft's specifications by Microsoft's validator, where both are here.

use std::path::{Path, PathBuf};
use std::process::Command;

use lab::process::Process;
use lab::sites::boots;
use serde_json::{Value, json};

use crate::aws::{
    booting, fabric, forget_connections, moto, nothing_else_is_open, readdress, second, start,
};
use crate::proofs::applies_again;
use crate::ssh::{self, World, said};
use crate::support::*;

const ARM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/lab/lab/sites/arm.py");
const VALIDATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sites/validate.cjs");
const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sites/client.py");
const API: &str = "198.51.100.254";
const PUBLIC: &str = "198.51.100.79";
/// The same later, in a test that changes it.
const LATER: &str = "198.51.100.89";
pub(crate) const SUBSCRIPTION: &str = "00000000-0000-0000-0000-000000000001";
/// What the world calls a pair's second gateway.
const SECOND: &str = "198.51.100.81";
/// Where machines of a pair ask who they are; what plays Azure answers at another place.
const METADATA: [&str; 2] = ["169.254.169.254", "198.51.100.254:9601"];
pub(crate) const MACHINE: &str = "10.2.0.10";
const REMOTE: &str = "10.4.0.1";

pub(crate) struct Azure<'w> {
    world: &'w World,
    /// A Python that reads YAML, as cloud-init does.
    python: String,
    serving: Process,
    pub(crate) fabric: Host,
    pub(crate) gateway: Host,
    pub(crate) machine: Host,
    /// The second gateway's machine, if the site has a pair.
    pub(crate) second: Option<Host>,
    secret: &'static str,
    /// What the world calls the gateway.
    public: &'static str,
}

/// A tool that `make setup` puts beside what is built.
fn tool(name: &str) -> PathBuf {
    target().join("tools").join(name)
}

impl<'w> Azure<'w> {
    fn open(scene: &Scene, world: &'w World, python: &Path) -> Result<Self> {
        Self::open_with(scene, world, python, "")
    }

    /// The same; `more` is what the file says of its site beside.
    pub(crate) fn open_with(
        scene: &Scene,
        world: &'w World,
        python: &Path,
        more: &str,
    ) -> Result<Self> {
        world.server.sh("ip link set lo up")?;
        write_file(world, more)?;
        let mut rights = world.server.command(&[env!("CARGO_BIN_EXE_warren"), "sites", "export"]);
        let role = said(rights.arg("--rights").arg(world.path("sites.toml")))?;
        std::fs::write(world.path("role.json"), role)?;
        let folder = world.path("").display().to_string();
        let role = world.path("role.json").display().to_string();
        let serving =
            world.server.spawn(&["python3", ARM, "serve", &folder, API, "9600", &role])?;
        serving.wait_for_within(seconds(30), |log| log.contains("azure is open"))?;
        let [fabric, gateway, machine] = fabric(scene, world, "10.2.0", PUBLIC)?;
        let is_pair = more.contains("gateways = 2");
        let second = is_pair.then(|| second(scene, &fabric, "10.2.0", SECOND)).transpose()?;
        let [asked, told] = METADATA;
        for machine in [&gateway].into_iter().chain(&second).filter(|_| is_pair) {
            machine.sh(&format!(
                "nft -f - <<'RULES'
table ip metadata {{
chain out {{ type nat hook output priority -100; ip daddr {asked} tcp dport 80 dnat to {told}; }}
}}
RULES"
            ))?;
        }
        let python = python.display().to_string();
        let secret = "a&secret";
        let public = PUBLIC;
        Ok(Self { world, python, serving, fabric, gateway, machine, second, secret, public })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.world.command(words);
        command
            .env("AZURE_TENANT_ID", "a-tenant")
            .env("AZURE_CLIENT_ID", "a-client")
            .env("AZURE_CLIENT_SECRET", self.secret)
            .env("AZURE_SUBSCRIPTION_ID", SUBSCRIPTION)
            .env("AZURE_AUTHORITY_HOST", format!("https://{API}:9600"))
            .env("REQUESTS_CA_BUNDLE", self.world.path("arm-ca.pem"));
        command
    }

    pub(crate) fn sites(&self, words: &[&str]) -> Result<String> {
        said(&mut self.command(words)).with_context(|| last_calls(&self.serving))
    }

    fn refused(&self, words: &[&str]) -> Result<String> {
        let refused = said(&mut self.command(words)).err();
        Ok(refused.context("it should have been refused")?.to_string())
    }

    pub(crate) fn asked(&self, words: &[&str]) -> Result<String> {
        let folder = self.world.path("").display().to_string();
        self.world.server.run(&[&["python3", ARM, "ask", &folder], words].concat())
    }

    pub(crate) fn census(&self) -> Result<Value> {
        Ok(serde_json::from_str(&self.asked(&["census"])?)?)
    }

    fn faults(&self, faults: &Value) -> Result<()> {
        Ok(std::fs::write(self.world.path("faults.json"), faults.to_string())?)
    }

    pub(crate) fn booting(&self, words: &[&str]) -> Result<String> {
        let boot = || {
            for boot in boots(&self.world.path(""))? {
                self.materialise()?;
                let is_second = std::fs::read_to_string(&boot)?.contains("-gw2 ");
                let second = self.second.as_ref().filter(|_| is_second);
                start(&self.python, second.unwrap_or(&self.gateway), &boot)?;
            }
            Ok(())
        };
        let told = booting(self.world, self.command(words), &boot);
        told.with_context(|| last_calls(&self.serving))
    }

    fn materialise(&self) -> Result<()> {
        let mut words = vec!["fabric", self.public];
        words.extend(self.second.iter().map(|_| SECOND));
        let script = self.asked(&words)?;
        self.fabric.sh(&script).map(drop)
    }

    pub(crate) fn joined(&self) -> Result<()> {
        self.materialise()?;
        let pings = |host: &Host, to: &str| host.sh(&format!("ping -c 1 -W 0.5 {to}")).is_ok();
        let there = || pings(&self.machine, REMOTE) && pings(&self.world.apps[0], MACHINE);
        eventually("both reach each other", seconds(30), there).map(drop)
    }

    /// Holds everything that was said against the specifications.
    pub(crate) fn is_as_specified(&self) -> Result<()> {
        let named = std::env::var_os("WARREN_AZURE_SPECS").map(PathBuf::from);
        let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/azure-specs");
        let specifications = named.unwrap_or(beside);
        let modules = tool("oav/node_modules");
        if !specifications.join("specification").exists() || !modules.join("oav").exists() {
            eprintln!(
                "\n*** SKIPPED: what was said to Azure is not held against its specifications: {} \
                 or {} is not there ***\n",
                specifications.display(),
                modules.join("oav").display()
            );
            return Ok(());
        }
        let mut node = Command::new("node");
        node.arg(VALIDATE).arg(specifications).arg(self.world.path("exchanges.jsonl"));
        let told = said(node.env("NODE_PATH", modules))?;
        eprintln!("specifications: {}", told.trim());
        let last: Value = serde_json::from_str(told.lines().last().unwrap_or_default())?;
        ensure!(last["held"].as_u64() > Some(50), "{told}");
        ensure!(last["wrong"] == 0, "{told}");
        Ok(())
    }
}

/// What the server was asked last.
fn last_calls(serving: &Process) -> String {
    let log = serving.log();
    let lines: Vec<&str> = log.lines().rev().take(30).collect();
    lines.into_iter().rev().collect::<Vec<&str>>().join("\n")
}

fn write_file(world: &World, more: &str) -> Result<()> {
    let text = format!(
        "network = \"acme\"\nssh_config = \"ssh_config\"\n\
         program = \"/run/warren-bin/warren\"\nstate = \"/run/warren-state\"\n\
         [[site]]\nname = \"paris\"\nprovider = \"ssh\"\n\
         hosts = [\"root@gw-paris\", \"root@app-paris:22\"]\n\
         [[site]]\nname = \"azure\"\nprovider = \"azure\"\nregion = \"westeurope\"\n\
         endpoint = \"https://{API}:9600\"\n{more}"
    );
    Ok(std::fs::write(world.path("sites.toml"), text)?)
}

#[test]
fn source_001_1_001_4_001_5_a_site_at_azure_is_made_joined_mended_and_taken_away() -> Result<()> {
    let (Some(sshd), Some(python)) = (ssh::sshd(), moto()) else { return Ok(()) };
    scene("sites24", |scene| {
        let world = World::new(scene, "sites24", &sshd)?;
        let mut azure = Azure::open(scene, &world, &python)?;
        let before = azure.census()?;
        let plan: Value = serde_json::from_str(&azure.sites(&["plan", "--json"])?)?;
        ensure!(plan["unable"] == json!([]), "{plan}");
        ensure!(azure.census()? == before, "a plan changes nothing");

        let begin = std::time::Instant::now();
        let told = azure.booting(&["apply", "--yes"])?;
        println!("apply: {:?}: {}", begin.elapsed(), told.trim());
        ensure!(begin.elapsed() < seconds(60), "{:?}", begin.elapsed());
        azure.joined()?;
        applies_again(|| azure.sites(&["apply", "--yes"]))?;
        nothing_else_is_open(&world, PUBLIC)?;

        // Forwarding, a port, the table of routes and a route, changed by hand.
        azure.asked(&["spoil"])?;
        azure.materialise()?;
        let reaches = |to: &str| azure.machine.sh(&format!("ping -c 1 -W 0.5 {to}")).is_ok();
        ensure!(!reaches(REMOTE), "the control: the fabric does what Azure says");
        let told: Value = serde_json::from_str(&azure.sites(&["apply", "--yes", "--json"])?)?;
        ensure!(told["done"] == 4, "{told}");
        azure.joined()?;

        // A machine that somebody stopped is started; one that is gone is made anew.
        azure.asked(&["stop"])?;
        let told: Value = serde_json::from_str(&azure.sites(&["apply", "--yes", "--json"])?)?;
        ensure!(told["done"] == 1 && told["steps"][0]["kind"] == "machine", "{told}");
        azure.asked(&["terminate"])?;
        azure.booting(&["apply", "--yes"])?;
        azure.joined()?;

        // Its public address was deleted by hand: it gets another one, and is found there.
        azure.asked(&["release"])?;
        readdress(&azure.fabric, PUBLIC, LATER)?;
        azure.public = LATER;
        azure.materialise()?;
        forget_connections(&azure.fabric)?;
        ensure!(!reaches(REMOTE), "the control: nobody knows where it is");
        let told: Value = serde_json::from_str(&azure.sites(&["apply", "--yes", "--json"])?)?;
        ensure!(told["done"] == 1 && told["steps"][0]["kind"] == "public-address", "{told}");
        azure.materialise()?;
        forget_connections(&azure.fabric)?;
        azure.joined()?;

        // What others put into the site's group keeps the group, and is named.
        azure.asked(&["foreign", "here"])?;
        azure.asked(&["lock", "0"])?;
        let whole = azure.refused(&["destroy", "--yes"]);
        ensure!(whole?.contains("publicIPAddresses/mine is in it"), "it is named");
        azure.asked(&["foreign", "away"])?;
        azure.sites(&["destroy", "--yes"])?;
        ensure!(azure.census()? == before, "what is left: {}", azure.census()?);
        ensure!(azure.sites(&["destroy", "--yes"])?.contains("nothing is to be done"));
        azure.is_as_specified()
    })
}

#[test]
fn si_07_azure_that_throttles_ends_tokens_and_loses_answers_gets_each_thing_once() -> Result<()> {
    let (Some(sshd), Some(python)) = (ssh::sshd(), moto()) else { return Ok(()) };
    scene("sites25", |scene| {
        let world = World::new(scene, "sites25", &sshd)?;
        let mut azure = Azure::open(scene, &world, &python)?;
        let before = azure.census()?;
        azure.secret = "wrong";
        let why = azure.refused(&["apply", "--yes"])?;
        ensure!(why.contains("tenant, client or secret is wrong"), "{why}");
        azure.secret = "a&secret";
        ensure!(azure.census()? == before, "nothing was made");

        // A right that the printed role has and the operator has not.
        azure.asked(&["forbid", "Microsoft.Network/routeTables/write"])?;
        let why = azure.refused(&["apply", "--yes", "--only", "azure"])?;
        ensure!(why.contains("action 'microsoft.network/routetables/write'"), "{why}");
        azure.asked(&["allow"])?;
        azure.sites(&["destroy", "--yes", "--only", "azure"])?;
        ensure!(azure.census()? == before, "half of it is taken away: {}", azure.census()?);

        // A region that is none.
        let text = std::fs::read_to_string(world.path("sites.toml"))?;
        std::fs::write(world.path("sites.toml"), text.replace("westeurope", "westatlantis"))?;
        let why = azure.refused(&["apply", "--yes", "--only", "azure"])?;
        ensure!(why.contains("'westatlantis'") && why.contains("francecentral"), "{why}");
        std::fs::write(world.path("sites.toml"), text)?;

        let kinds = ["virtualnetworks", "networkinterfaces", "virtualmachines", "routes"];
        let lost = kinds.map(|kind| format!("PUT {kind}"));
        azure.faults(&json!({ "throttle": 40, "lost": lost, "expire": 30,
            "down": { "PUT routetables": 8 },
            "broken": ["GET resourcegroups", "PUT subnets", "PUT publicipaddresses"] }))?;
        azure.booting(&["apply", "--yes"])?;
        let log = azure.serving.log();
        for word in [" 429", " None", " 401", " 500"] {
            ensure!(log.contains(word), "{word} did not happen");
        }
        azure.faults(&json!({}))?;
        azure.joined()?;
        let now = azure.census()?;
        for kind in ["virtualnetworks", "networkinterfaces", "publicipaddresses", "routetables"] {
            ensure!(now[format!("microsoft.network/{kind}")] == 1, "{kind}: {now}");
        }
        ensure!(azure.sites(&["apply", "--yes"])?.contains("nothing is to be done"));

        // Two operators: the lock is another's, and one whose time is over is taken over.
        azure.asked(&["spoil"])?;
        azure.asked(&["lock", "600"])?;
        let why = azure.refused(&["apply", "--yes"])?;
        ensure!(why.contains("somebody@elsewhere is changing azure now"), "{why}");
        azure.asked(&["lock", "-5"])?;
        azure.sites(&["apply", "--yes"])?;
        azure.sites(&["destroy", "--yes"])?;
        ensure!(azure.census()? == before, "what is left: {}", azure.census()?);
        azure.is_as_specified()
    })
}

/// Microsoft's own client takes the server for Azure: its operations, its answers, its refusals.
#[test]
fn microsofts_own_client_accepts_the_server_that_plays_azure() -> Result<()> {
    let python = tool("azure/bin/python3");
    if !python.exists() {
        eprintln!("\n*** SKIPPED: there is no client of Azure; `make setup` gets it ***\n");
        return Ok(());
    }
    scene("sites26", |scene| {
        scene.net.borrow_mut().give_own_run();
        let folder = std::env::temp_dir().join(format!("warren-arm-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let host = scene.host("azure")?;
        host.sh("ip link set lo up")?;
        let mut rights = Command::new(env!("CARGO_BIN_EXE_warren"));
        let file = folder.join("sites.toml");
        let text =
            "network = \"n\"\n[[site]]\nname = \"a\"\nprovider = \"azure\"\nregion = \"r\"\n";
        std::fs::write(&file, text)?;
        let role = said(rights.args(["sites", "export", "--rights"]).arg(&file))?;
        std::fs::write(folder.join("role.json"), role)?;
        let at = folder.display().to_string();
        let role = folder.join("role.json").display().to_string();
        let serving = host.spawn(&["python3", ARM, "serve", &at, "127.0.0.1", "9600", &role])?;
        serving.wait_for_within(seconds(30), |log| log.contains("azure is open"))?;
        let python = python.display().to_string();
        let told = host.run(&[&python, CLIENT, &at, "https://127.0.0.1:9600"]);
        let told = told.with_context(|| last_calls(&serving))?;
        ensure!(told.contains("everything is as it should be"), "{told}");
        std::fs::remove_dir_all(&folder)?;
        Ok(())
    })
}
