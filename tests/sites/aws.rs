//! A site at AWS and one by `ssh`, joined: `cloud.py` is the cloud's API (moto, with its checks of
//! signatures and rights), and what the cloud believes is made into namespaces and `nft`, so that
//! real packets decide.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use lab::process::Process;
use lab::sites::{Port, Tools, boots};
use serde_json::{Value, json};

use crate::proofs::applies_again;
use crate::ssh::{self, World, said};
use crate::support::*;

const CLOUD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/lab/lab/sites/cloud.py");
/// What the cloud does on its own side, as its administrator or as its fabric.
const ASKED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/lab/lab/sites/asked.py");
const API: &str = "198.51.100.254";
const API_PORT: &str = "9443";
/// What the world calls the cloud's public address; moto gives some of 127.0.0.0/8.
pub(crate) const PUBLIC: &str = "198.51.100.77";
/// The same later, in a test that changes it.
const LATER: &str = "198.51.100.87";
const GATEWAY: &str = "10.1.0.254";
/// The same of a pair's second gateway.
const SECOND: [&str; 2] = ["198.51.100.80", "10.1.0.253"];
pub(crate) const MACHINE: &str = "10.1.0.10";
pub(crate) const REMOTE: &str = "10.4.0.1";

/// The Python that has moto: installed, or put there by `make setup`; says so if there is none.
pub(crate) fn moto() -> Option<PathBuf> {
    let python = Tools::find(&target().join("tools")).moto;
    if python.is_none() {
        eprintln!("\n*** SKIPPED: there is no moto, which plays AWS; `make setup` gets it ***\n");
    }
    python
}

/// A cloud and its fabric, beside the world of `ssh`.
pub(crate) struct Cloud<'w> {
    world: &'w World,
    python: String,
    serving: Process,
    /// The cloud's network: its router, the gateway's machine, and a machine of the site's own.
    pub(crate) fabric: Host,
    pub(crate) gateway: Host,
    pub(crate) machine: Host,
    /// The second gateway's machine, if the site has a pair.
    pub(crate) second: Option<Host>,
    operator: [String; 2],
    /// What the world calls the gateway.
    public: &'static str,
}

impl<'w> Cloud<'w> {
    pub(crate) fn open(scene: &Scene, world: &'w World, python: &Path) -> Result<Self> {
        Self::open_with(scene, world, python, "")
    }

    /// The same; `more` is what the file says of its site beside.
    pub(crate) fn open_with(
        scene: &Scene,
        world: &'w World,
        python: &Path,
        more: &str,
    ) -> Result<Self> {
        let python = python.display().to_string();
        world.server.sh("ip link set lo up")?;
        // The site file names an image that only the open cloud knows; rights need none.
        write_file(world, "ami-1", more)?;
        let rights = said(&mut rights(world))?;
        std::fs::write(world.path("policy.json"), rights)?;
        let folder = world.path("").display().to_string();
        let policy = world.path("policy.json").display().to_string();
        let serving = world.server.spawn(&[&python, CLOUD, &folder, API, API_PORT, &policy])?;
        serving.wait_for_within(seconds(60), |log| log.contains("the cloud is open"))?;
        let keys: Value = serde_json::from_slice(&std::fs::read(world.path("keys.json"))?)?;
        let key = |at: usize| keys["operator"][at].as_str().unwrap_or_default().to_owned();
        let image = keys["image"].as_str().unwrap_or_default();
        write_file(world, image, more)?;
        let [fabric, gateway, machine] = fabric(scene, world, "10.1.0", PUBLIC)?;
        let is_pair = more.contains("gateways = 2");
        let second = is_pair.then(|| second(scene, &fabric, "10.1.0", SECOND[0])).transpose()?;
        let operator = [key(0), key(1)];
        let public = PUBLIC;
        Ok(Self { world, python, serving, fabric, gateway, machine, second, operator, public })
    }

    /// `warren sites` with the operator's credentials.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.world.command(words);
        command
            .env("AWS_ACCESS_KEY_ID", &self.operator[0])
            .env("AWS_SECRET_ACCESS_KEY", &self.operator[1])
            .env("AWS_CA_BUNDLE", self.world.path("ca.pem"))
            .env("AWS_EC2_METADATA_DISABLED", "true");
        command
    }

    pub(crate) fn sites(&self, words: &[&str]) -> Result<String> {
        said(&mut self.command(words))
    }

    fn refused(&self, words: &[&str]) -> Result<String> {
        Ok(self.sites(words).err().context("it should have been refused")?.to_string())
    }

    /// Asks or tells the cloud something as its administrator.
    pub(crate) fn asked(&self, words: &[&str]) -> Result<String> {
        let folder = self.world.path("").display().to_string();
        self.world.server.run(&[&[self.python.as_str(), ASKED, &folder], words].concat())
    }

    /// Everything that the cloud has, by kind.
    pub(crate) fn census(&self) -> Result<Value> {
        Ok(serde_json::from_str(&self.asked(&["census"])?)?)
    }

    fn faults(&self, faults: &Value) -> Result<()> {
        Ok(std::fs::write(self.world.path("faults.json"), faults.to_string())?)
    }

    pub(crate) fn booting(&self, words: &[&str]) -> Result<String> {
        let told = booting(self.world, self.command(words), &|| self.boot());
        told.with_context(|| self.serving.log())
    }

    /// Starts the machines that were run: their network is as the cloud says, and their user data
    /// does what it says.
    fn boot(&self) -> Result<()> {
        for boot in boots(&self.world.path(""))? {
            self.materialise()?;
            let is_second = std::fs::read_to_string(&boot)?.contains("-gw2 ");
            let second = self.second.as_ref().filter(|_| is_second);
            start(&self.python, second.unwrap_or(&self.gateway), &boot)?;
        }
        Ok(())
    }

    /// Makes of the fabric what the cloud believes now.
    pub(crate) fn materialise(&self) -> Result<()> {
        let mut words = vec!["fabric", self.public, GATEWAY];
        words.extend(self.second.iter().flat_map(|_| SECOND));
        let script = self.asked(&words)?;
        self.fabric.sh(&script).map(drop)
    }

    pub(crate) fn joined(&self) -> Result<()> {
        self.materialise()?;
        let pings = |host: &Host, to: &str| host.sh(&format!("ping -c 1 -W 0.5 {to}")).is_ok();
        let there = || pings(&self.machine, REMOTE) && pings(&self.world.apps[0], MACHINE);
        eventually("both reach each other", seconds(30), there).map(drop)
    }
}

/// What the world calls a gateway is another address from now on.
pub(crate) fn readdress(fabric: &Host, from: &str, to: &str) -> Result<()> {
    let words = format!(
        "ip addr del {from}/24 dev wan0; ip addr add {to}/24 dev wan0
         ip route replace default via {API}"
    );
    fabric.sh(&words).map(drop)
}

/// The fabric knows of no connection: a cloud translates each packet as it stands now.
pub(crate) fn forget_connections(fabric: &Host) -> Result<()> {
    let flush = "import socket, struct
netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
netlink.send(struct.pack('IHHIIBBH', 20, 1 << 8 | 2, 5, 1, 0, 2, 0, 0))
netlink.recv(100)";
    fabric.run(&["python3", "-c", flush]).map(drop)
}

/// Runs a command to its end; `boot` starts the machines that the cloud runs meanwhile.
pub(crate) fn booting(
    world: &World,
    mut command: Command,
    boot: &dyn Fn() -> Result<()>,
) -> Result<String> {
    let out = world.path("out.txt");
    let log = world.path("err.txt");
    command.stdout(std::fs::File::create(&out)?).stderr(std::fs::File::create(&log)?);
    let mut child = command.spawn()?;
    let ended = boot_until_end(&mut child, boot);
    let _ = child.kill();
    let status = child.wait()?;
    let told = std::fs::read_to_string(&log)?;
    ended.with_context(|| told.clone())?;
    ensure!(status.success(), "{told}");
    Ok(std::fs::read_to_string(&out)?)
}

fn boot_until_end(child: &mut Child, boot: &dyn Fn() -> Result<()>) -> Result<()> {
    let begin = std::time::Instant::now();
    while child.try_wait()?.is_none() {
        ensure!(begin.elapsed() < seconds(400), "it does not end");
        boot()?;
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    Ok(())
}

/// A machine's first start, to its end.
pub(crate) fn start(python: &str, machine: &Host, boot: &Path) -> Result<()> {
    let process = lab::sites::start(machine, Path::new(python), Path::new(ASKED), boot)?;
    let status = process.wait(seconds(100))?;
    ensure!(status.success(), "{}", process.log());
    Ok(())
}

fn rights(world: &World) -> Command {
    let mut command = world.server.command(&[env!("CARGO_BIN_EXE_warren"), "sites", "export"]);
    command.arg("--rights").arg(world.path("sites.toml"));
    command
}

/// A site at AWS and the one of `ssh` that the world has first.
fn write_file(world: &World, image: &str, more: &str) -> Result<()> {
    let text = format!(
        "network = \"acme\"\nssh_config = \"ssh_config\"\n\
         program = \"/run/warren-bin/warren\"\nstate = \"/run/warren-state\"\n\
         [[site]]\nname = \"paris\"\nprovider = \"ssh\"\n\
         hosts = [\"root@gw-paris\", \"root@app-paris:22\"]\n\
         [[site]]\nname = \"cloud\"\nprovider = \"aws\"\nregion = \"eu-west-1\"\n\
         endpoint = \"https://{API}:{API_PORT}\"\nimage = \"{image}\"\n{more}"
    );
    Ok(std::fs::write(world.path("sites.toml"), text)?)
}

/// The cloud's router with a port for each machine: what it lets pass is in its hands alone.
/// `net` is the site's network without its last part, `public` what the world calls the gateway.
pub(crate) fn fabric(scene: &Scene, world: &World, net: &str, public: &str) -> Result<[Host; 3]> {
    let fabric = scene.host("fabric")?;
    let gateway = scene.host("cloudgw")?;
    let machine = scene.host("cloudapp")?;
    scene.veth((&world.server, "p77", &[]), (&fabric, "wan0", &[&format!("{public}/24")]))?;
    world.server.sh("ip link set p77 master br0")?;
    let ports = [
        Port { host: &gateway, name: "gw0", last: 254 },
        Port { host: &machine, name: "app0", last: 10 },
    ];
    lab::sites::fabric(&scene.net.borrow(), &fabric, net, &ports)?;
    fabric.sh("ip route add default via 198.51.100.254")?;
    lab::sites::give_image(&gateway, Path::new(env!("CARGO_BIN_EXE_warren")))?;
    Ok([fabric, gateway, machine])
}

/// A second gateway at the same router, known as `public` to the world.
pub(crate) fn second(scene: &Scene, fabric: &Host, net: &str, public: &str) -> Result<Host> {
    let gateway = scene.host("cloudgw2")?;
    fabric.sh(&format!("ip addr add {public}/24 dev wan0"))?;
    let ports = [Port { host: &gateway, name: "gw1", last: 253 }];
    lab::sites::fabric(&scene.net.borrow(), fabric, net, &ports)?;
    lab::sites::give_image(&gateway, Path::new(env!("CARGO_BIN_EXE_warren")))?;
    Ok(gateway)
}

/// From outside nothing is open but the port that the plan prints.
pub(crate) fn nothing_else_is_open(world: &World, public: &str) -> Result<()> {
    let scan = world.server.sh(&format!(
        "python3 - <<'E'
import socket
for port in [22, 53, 80, 443, 8080, 8443, 41820]:
    s = socket.socket(); s.settimeout(0.3)
    try: s.connect((\"{public}\", port)); print(\"open\", port)
    except OSError: pass
E"
    ))?;
    ensure!(scan.is_empty(), "{scan}");
    Ok(())
}

/// What was changed by hand is read, and changed back.
fn what_was_changed_by_hand_is_changed_back(cloud: &Cloud<'_>) -> Result<()> {
    cloud.asked(&["spoil"])?;
    cloud.materialise()?;
    let told: Value = serde_json::from_str(&cloud.sites(&["plan", "--json"])?)?;
    let steps: Vec<String> = told["steps"]
        .as_array()
        .context("steps")?
        .iter()
        .map(|step| format!("{} {}", step["action"], step["kind"]).replace('"', ""))
        .collect();
    let expected =
        ["change security-group", "create machine-rule", "change interface", "change route"];
    for step in expected {
        ensure!(steps.contains(&step.to_owned()), "{step}: {steps:?}");
    }
    ensure!(steps.len() == expected.len(), "{steps:?}");
    let reaches = |to: &str| cloud.machine.sh(&format!("ping -c 1 -W 0.5 {to}")).is_ok();
    ensure!(!reaches(REMOTE), "the control: the fabric does what the cloud says");
    cloud.sites(&["apply", "--yes"])?;
    cloud.joined()
}

#[test]
fn source_001_1_001_4_001_5_a_site_at_aws_is_made_joined_mended_and_taken_away() -> Result<()> {
    let (Some(sshd), Some(python)) = (ssh::sshd(), moto()) else { return Ok(()) };
    scene("sites20", |scene| {
        let world = World::new(scene, "sites20", &sshd)?;
        let mut cloud = Cloud::open(scene, &world, &python)?;
        let before = cloud.census()?;
        let plan: Value = serde_json::from_str(&cloud.sites(&["plan", "--json"])?)?;
        ensure!(plan["unable"] == json!([]), "{plan}");
        ensure!(cloud.census()? == before, "a plan changes nothing");

        let begin = std::time::Instant::now();
        let told = cloud.booting(&["apply", "--yes"])?;
        println!("apply: {:?}: {}", begin.elapsed(), told.trim());
        ensure!(begin.elapsed() < seconds(60), "{:?}", begin.elapsed());
        cloud.joined()?;
        applies_again(|| cloud.sites(&["apply", "--yes"]))?;
        let status: Value = serde_json::from_str(&cloud.sites(&["status", "--json"])?)?;
        for gateway in status["gateways"].as_array().context("gateways")? {
            ensure!(gateway["online"] == true && gateway["state"] == "running", "{status}");
        }

        nothing_else_is_open(&world, PUBLIC)?;
        what_was_changed_by_hand_is_changed_back(&cloud)?;

        // A gateway that somebody deleted is made anew.
        cloud.asked(&["terminate"])?;
        cloud.booting(&["apply", "--yes"])?;
        cloud.joined()?;
        ensure!(cloud.sites(&["apply", "--yes"])?.contains("nothing is to be done"));

        // Its public address was given back by hand: it gets another one, and is found there.
        cloud.asked(&["release"])?;
        readdress(&cloud.fabric, PUBLIC, LATER)?;
        cloud.public = LATER;
        cloud.materialise()?;
        forget_connections(&cloud.fabric)?;
        let reaches = |to: &str| cloud.machine.sh(&format!("ping -c 1 -W 0.5 {to}")).is_ok();
        ensure!(!reaches(REMOTE), "the control: nobody knows where it is");
        let told: Value = serde_json::from_str(&cloud.sites(&["apply", "--yes", "--json"])?)?;
        ensure!(told["done"] == 1 && told["steps"][0]["kind"] == "public-address", "{told}");
        cloud.materialise()?;
        forget_connections(&cloud.fabric)?;
        cloud.joined()?;

        cloud.sites(&["destroy", "--yes"])?;
        ensure!(cloud.census()? == before, "what is left: {}", cloud.census()?);
        ensure!(cloud.sites(&["destroy", "--yes"])?.contains("nothing is to be done"));
        ensure!(world.admin(&["node", "list"])?.lines().count() == 1, "no node is left");
        // Neither the secret nor a key of a key pair was told to anybody.
        let told = std::fs::read_to_string(world.path("err.txt"))?;
        ensure!(!told.contains(&cloud.operator[1]) && !told.contains("PRIVATE KEY"), "{told}");
        Ok(())
    })
}

#[test]
fn si_08_a_wrong_secret_and_a_missing_right_are_told_by_name() -> Result<()> {
    let (Some(sshd), Some(python)) = (ssh::sshd(), moto()) else { return Ok(()) };
    scene("sites21", |scene| {
        let world = World::new(scene, "sites21", &sshd)?;
        let mut cloud = Cloud::open(scene, &world, &python)?;
        let before = cloud.census()?;
        let secret = std::mem::replace(&mut cloud.operator[1], "wrong".to_owned());
        let why = cloud.refused(&["apply", "--yes"])?;
        ensure!(why.contains("AuthFailure") && why.contains("secret is wrong"), "{why}");
        ensure!(cloud.census()? == before, "nothing was made");
        cloud.operator[1] = secret;
        // A site whose cloud is not asked is not made by halves; credentials that are missing.
        let mut bare = world.command(&["apply", "--yes"]);
        bare.env("HOME", "/nowhere").env("AWS_EC2_METADATA_DISABLED", "true");
        let why = said(&mut bare).err().context("it is refused")?.to_string();
        ensure!(why.contains("AWS_ACCESS_KEY_ID"), "{why}");

        // Every right but one: the site is half made, and the next apply goes on.
        cloud.asked(&["forbid", "ec2:CreateSubnet"])?;
        let why = cloud.refused(&["apply", "--yes", "--only", "cloud"])?;
        ensure!(why.contains("ec2:CreateSubnet is missing"), "{why}");
        ensure!(cloud.census()? != before, "the network is there");
        let half = cloud.census()?;
        // Half of it is taken away as well as all of it.
        cloud.sites(&["destroy", "--yes", "--only", "cloud"])?;
        ensure!(cloud.census()? == before, "{half} became {}", cloud.census()?);
        cloud.refused(&["apply", "--yes", "--only", "cloud"])?;
        cloud.asked(&["allow"])?;
        cloud.booting(&["apply", "--yes"])?;
        cloud.joined()?;
        ensure!(cloud.census()?["vpcs"] == json!(2), "one more than there was");
        cloud.sites(&["destroy", "--yes"])?;
        ensure!(cloud.census()? == before, "what is left: {}", cloud.census()?);
        Ok(())
    })
}

#[test]
fn si_07_a_cloud_that_throttles_fails_and_loses_answers_gets_each_thing_once() -> Result<()> {
    let (Some(sshd), Some(python)) = (ssh::sshd(), moto()) else { return Ok(()) };
    scene("sites22", |scene| {
        let world = World::new(scene, "sites22", &sshd)?;
        let cloud = Cloud::open(scene, &world, &python)?;
        let foreign = cloud.asked(&["foreign"])?;
        let before = cloud.census()?;
        let made = [
            "CreateVpc",
            "CreateSubnet",
            "AllocateAddress",
            "RunInstances",
            "CreateKeyPair",
            "CreateRoute",
            "AuthorizeSecurityGroupIngress",
        ];
        // A cloud that is down in the middle is told; what is there stays for the next apply.
        let outage = json!({ "AllocateAddress": 3600 });
        cloud.faults(&json!({ "lost": made, "slow_s": 2, "down": outage }))?;
        let begin = std::time::Instant::now();
        let why = cloud.refused(&["apply", "--yes", "--only", "cloud"])?;
        println!("down: {:?}: {why:?}", begin.elapsed());
        ensure!(why.contains("cloud public-address") && why.contains("no answer"), "{why}");
        // Who was silent for a minute is not waited for again, to give the lock back.
        ensure!(begin.elapsed() < seconds(110), "{:?}", begin.elapsed());
        ensure!(cloud.census()?["interfaces"] != before["interfaces"], "it is half made");

        // One that is down for a moment is waited for.
        cloud.faults(&json!({ "throttle": 7, "lost": made, "ahead_s": 3600, "slow_s": 2,
            "down": { "RunInstances": 8 },
            "broken": ["DescribeVpcs", "ModifyNetworkInterfaceAttribute", "AssociateAddress"] }))?;
        cloud.booting(&["apply", "--yes"])?;
        let log = cloud.serving.log();
        for word in ["throttled", "expired", "broken", "down"].iter().chain(&made) {
            ensure!(log.contains(word), "{word} did not happen: {log}");
        }
        ensure!(log.matches(" lost").count() == made.len(), "{log}");
        cloud.faults(&json!({}))?;
        cloud.joined()?;
        let now = cloud.census()?;
        for kind in ["vpcs", "internet_gateways", "addresses", "machines", "interfaces"] {
            let count = |census: &Value| census[kind].as_u64().unwrap_or_default();
            ensure!(count(&now) == count(&before) + 1, "{kind}: {before} became {now}");
        }
        ensure!(cloud.sites(&["apply", "--yes"])?.contains("nothing is to be done"));

        // Two operators: the lock is another's, and one whose owner is gone is taken over.
        cloud.asked(&["spoil"])?;
        cloud.asked(&["lock", "600"])?;
        let why = cloud.refused(&["apply", "--yes"])?;
        ensure!(why.contains("somebody@elsewhere is changing cloud now"), "{why}");
        cloud.asked(&["unlock"])?;
        cloud.asked(&["lock", "-5"])?;
        cloud.sites(&["apply", "--yes"])?;
        ensure!(cloud.census()?["key_pairs"] == before["key_pairs"], "no lock is left");

        cloud.sites(&["destroy", "--yes"])?;
        ensure!(cloud.census()? == before, "what is left: {}", cloud.census()?);
        ensure!(cloud.asked(&["foreign"])? == foreign, "what others made is as it was");
        Ok(())
    })
}
