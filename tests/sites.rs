//! Sites end to end: `warren serve`, machines in namespaces that are reached by the system's `ssh`
//! and a real `sshd`, and `warren sites` that joins them and takes everything away again.

#[path = "sites/aws.rs"]
mod aws;
#[path = "sites/azure.rs"]
mod azure;
#[path = "sites/backend.rs"]
mod backend;
#[path = "sites/cloud_init.rs"]
mod cloud_init;
#[path = "sites/inventory.rs"]
mod inventory;
#[path = "sites/openstack.rs"]
mod openstack;
#[path = "sites/openstack_pair.rs"]
mod openstack_pair;
#[path = "sites/openstack_port.rs"]
mod openstack_port;
#[path = "sites/openstack_real.rs"]
mod openstack_real;
#[path = "sites/pair.rs"]
mod pair;
#[path = "sites/proofs.rs"]
mod proofs;
#[path = "sites/soak.rs"]
mod soak;
#[path = "sites/ssh.rs"]
mod ssh;
#[path = "sites/standby.rs"]
mod standby;
#[path = "sites/star.rs"]
mod star;
#[path = "sites/stolen.rs"]
mod stolen;
mod support;
#[path = "sites/topology.rs"]
mod topology;

use std::process::Command;
use std::time::Instant;

use serde_json::Value;
use ssh::{SITES, World, said};
use support::*;

#[test]
fn source_001_1_001_4_three_sites_are_joined_once_and_leave_nothing_behind() -> Result<()> {
    let Some(sshd) = ssh::sshd() else { return Ok(()) };
    scene("sites1", |scene| {
        let world = World::new(scene, "sites1", &sshd)?;
        let before = world.settled()?;
        ensure!(!world.reaches(0, 1), "nothing joins them yet");

        let plan: Value = serde_json::from_str(&world.sites(&["plan", "--json"])?)?;
        let steps = plan["steps"].as_array().context("steps")?;
        ensure!(steps.len() == SITES.len() * 5, "{plan}");
        ensure!(steps.iter().all(|step| step["action"] == "create"), "{plan}");
        ensure!(world.machines()? == before, "a plan changes nothing");

        let begin = Instant::now();
        let told = world.sites(&["apply", "--yes"])?;
        println!("apply: {:?}: {}", begin.elapsed(), told.trim());
        ensure!(begin.elapsed() < seconds(60), "{:?}", begin.elapsed());
        for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)] {
            let what = format!("{} reaches {}", SITES[from], SITES[to]);
            eventually(&what, seconds(20), || world.reaches(from, to))?;
        }
        // Addresses are what they are: nobody translates in between.
        let seen = world.seen(0, 2)?;
        ensure!(seen == "10.4.0.1", "the source is {seen}");
        let links = world.apps[0].sh("ip -br link")?;
        ensure!(!links.contains("warren"), "machines need no Warren: {links}");

        proofs::applies_again(|| world.sites(&["apply", "--yes"]))?;
        let status: Value = serde_json::from_str(&world.sites(&["status", "--json"])?)?;
        for gateway in status["gateways"].as_array().context("gateways")? {
            ensure!(gateway["online"] == true && gateway["state"] == "running", "{status}");
        }
        let quality: Value = serde_json::from_str(&world.sites(&["quality", "--json"])?)?;
        let paths = quality["paths"].as_array().context("paths")?;
        ensure!(paths.len() == 6, "each directed path: {quality}");
        ensure!(paths.iter().all(|path| path["rtt_ms"].is_number()), "{quality}");
        measured(&world)?;

        let told = world.sites(&["destroy", "--yes"])?;
        println!("destroy: {}", told.trim());
        ensure!(world.machines()? == before, "what is left:\n{}", world.machines()?);
        ensure!(world.admin(&["node", "list"])?.lines().count() == 1, "no node is left");
        ensure!(!world.reaches(0, 1), "nothing joins them any more");
        ensure!(world.sites(&["destroy", "--yes"])?.contains("nothing is to be done"));
        Ok(())
    })
}

/// The gateway of the first site measures its path to that of the second, on a line of 20 Mbit/s.
fn measured(world: &World) -> Result<()> {
    world.gateways[0].sh("tc qdisc add dev wan0 root tbf rate 20mbit burst 1600 limit 1mb")?;
    let ends = ["quality", "--measure", SITES[0], SITES[1], "--json"];
    let mut told = Value::Null;
    for _ in 0..2 {
        told = serde_json::from_str(&world.sites(&ends)?)?;
        eprintln!("{told}");
        // A machine that is busy with other tests may not send in time; then it says so.
        if told["paths"][0]["bandwidth"]["result"] == "range" {
            break;
        }
    }
    ensure!(told["paths"].as_array().is_some_and(|paths| paths.len() == 1), "{told}");
    let path = &told["paths"][0];
    ensure!(path["from"] == "acme-paris-gw1" && path["to"] == "acme-lyon-gw1", "{path}");
    let found = &path["bandwidth"];
    let [low, high] = ["low_bps", "high_bps"].map(|field| found[field].as_f64().unwrap_or(0.0));
    match found["result"].as_str() {
        Some("range") => ensure!(low > 0.0 && low <= 20e6 && high >= 19e6, "{found}"),
        _ => ensure!(found["why"].is_string() && found["high_bps"].is_null(), "{found}"),
    }
    // The gateway keeps it, and says how old it is.
    let all: Value = serde_json::from_str(&world.sites(&["quality", "--json"])?)?;
    let paths = all["paths"].as_array().context("paths")?;
    let kept = paths.iter().find(|one| one["from"] == path["from"] && one["to"] == path["to"]);
    ensure!(kept.is_some_and(|one| one["bandwidth"]["cost_bytes"] == found["cost_bytes"]), "{all}");
    let text = world.sites(&["quality"])?;
    ensure!(text.contains("AVAILABLE") && text.contains(" MB"), "{text}");
    let why = world.sites(&["quality", "--measure", SITES[0], "nowhere"]).err();
    ensure!(why.is_some_and(|why| why.to_string().contains("no site \"nowhere\"")));
    world.gateways[0].sh("tc qdisc del dev wan0 root")?;
    Ok(())
}

#[test]
fn si_02_what_others_made_stays_and_what_was_changed_by_hand_is_put_back() -> Result<()> {
    let Some(sshd) = ssh::sshd() else { return Ok(()) };
    scene("sites2", |scene| {
        let world = World::new(scene, "sites2", &sshd)?;
        world.sites(&["apply", "--yes"])?;
        eventually("joined", seconds(20), || world.reaches(0, 1))?;
        world.apps[0].sh("ip route add 10.99.0.0/16 via 10.4.0.254
             ip route del 10.0.0.0/8")?;
        let told: Value = serde_json::from_str(&world.sites(&["apply", "--yes", "--json"])?)?;
        ensure!(told["done"] == 1, "one step: {told}");
        ensure!(told["steps"][0]["kind"] == "route", "{told}");
        eventually("joined again", seconds(20), || world.reaches(0, 1))?;
        // Another program in the place of ours is replaced, and what runs it begins anew.
        world.gateways[2]
            .sh("cd /run/warren-bin; cp warren other; echo >> other; mv other warren")?;
        let told: Value = serde_json::from_str(&world.sites(&["apply", "--yes", "--json"])?)?;
        ensure!(told["done"] == 1 && told["steps"][0]["kind"] == "program", "{told}");
        eventually("joined by the right program", seconds(20), || world.reaches(0, 2))?;
        // A route that somebody else made in the place of ours is refused, by name.
        world.apps[1].sh("ip route replace 10.0.0.0/8 via 10.4.1.9 proto static")?;
        world.apps[1].sh("ip route del 10.0.0.0/8 proto 158 || true")?;
        let why = world.sites(&["apply", "--yes"]).err().context("it is refused")?.to_string();
        ensure!(why.contains("that Warren did not make"), "{why}");
        world.apps[1].sh("ip route del 10.0.0.0/8 via 10.4.1.9")?;
        // One site goes, the others stay joined.
        world.sites(&["destroy", "--yes", "--only", SITES[1]])?;
        ensure!(!world.reaches(0, 1), "the one that was meant");
        eventually("the others stay joined", seconds(20), || world.reaches(0, 2))?;
        world.sites(&["apply", "--yes"])?;
        eventually("it came back", seconds(20), || world.reaches(0, 1))?;
        world.sites(&["destroy", "--yes"])?;
        let routes = world.apps[0].sh("ip route")?;
        ensure!(routes.contains("10.99.0.0/16"), "a route of others is left: {routes}");
        Ok(())
    })
}

#[test]
fn source_001_3_sites_with_the_same_addresses_are_joined_by_aliases() -> Result<()> {
    let Some(sshd) = ssh::sshd() else { return Ok(()) };
    scene("sites11", |scene| {
        let world = World::with(scene, "sites11", &sshd, false, true)?;
        let before = world.settled()?;
        let plan: Value = serde_json::from_str(&world.sites(&["plan", "--json"])?)?;
        ensure!(plan["unable"] == serde_json::json!([]), "{plan}");
        world.sites(&["apply", "--yes"])?;
        for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 0), (2, 1)] {
            let what = format!("{} reaches {}", SITES[from], SITES[to]);
            eventually(&what, seconds(20), || world.reaches(from, to))?;
        }
        // Each has 192.168.1.1 and is known by its place in the plan.
        ensure!(world.seen(0, 1)? == "10.4.0.1" && world.seen(1, 2)? == "10.4.1.1");
        ensure!(world.apps[1].sh("ip -br addr")?.contains(&format!("{}.1/24", ssh::ALIKE)));
        ensure!(world.sites(&["apply", "--yes"])?.contains("nothing is to be done"));
        world.sites(&["destroy", "--yes"])?;
        ensure!(world.machines()? == before, "what is left:\n{}", world.machines()?);
        Ok(())
    })
}

#[test]
fn an_apply_that_was_killed_is_gone_on_with() -> Result<()> {
    let Some(sshd) = ssh::sshd() else { return Ok(()) };
    scene("sites5", |scene| {
        let world = World::new(scene, "sites5", &sshd)?;
        let log = world.path("apply.log");
        let mut command = world.command(&["apply", "--yes"]);
        command.stdout(std::process::Stdio::null()).stderr(std::fs::File::create(&log)?);
        let mut child = command.spawn()?;
        // In the middle of a gateway's joining.
        let begun = || std::fs::read_to_string(&log).is_ok_and(|text| text.contains("lyon member"));
        let reached = eventually("it is half done", seconds(60), begun);
        child.kill()?;
        child.wait()?;
        reached?;
        ensure!(!world.reaches(0, 2), "it is not whole");
        let told = world.sites(&["apply", "--yes"])?;
        println!("gone on: {}", told.trim());
        eventually("joined", seconds(20), || world.reaches(0, 2) && world.reaches(1, 0))?;
        ensure!(world.sites(&["apply", "--yes"])?.contains("nothing is to be done"));
        ensure!(world.admin(&["node", "list"])?.lines().count() == 4, "three nodes and no more");
        Ok(())
    })
}

#[test]
fn a_gateway_whose_address_changes_is_found_again_by_itself() -> Result<()> {
    let Some(sshd) = ssh::sshd() else { return Ok(()) };
    scene("sites53", |scene| {
        let world = World::new(scene, "sites53", &sshd)?;
        world.sites(&["apply", "--yes"])?;
        eventually("joined", seconds(20), || world.reaches(0, 1) && world.reaches(1, 0))?;
        world.gateways[0].sh("ip addr del 198.51.100.1/24 dev wan0")?;
        ensure!(!world.reaches(0, 1), "the control: it is nowhere");
        world.gateways[0].sh("ip addr add 198.51.100.91/24 dev wan0")?;
        for (from, to) in [(0, 1), (1, 0), (2, 0)] {
            let what = format!("{} reaches {}", SITES[from], SITES[to]);
            println!("{what}: {:?}", eventually(&what, seconds(20), || world.reaches(from, to))?);
        }
        // The operator's own way there is what `ssh` knows; nothing else has to be done.
        let config = std::fs::read_to_string(world.path("ssh_config"))?;
        let moved = config.replace("198.51.100.1\n", "198.51.100.91\n");
        ensure!(moved != config, "{config}");
        std::fs::write(world.path("ssh_config"), moved)?;
        ensure!(world.sites(&["apply", "--yes"])?.contains("nothing is to be done"));
        Ok(())
    })
}

#[test]
fn two_operators_at_once_make_what_one_makes() -> Result<()> {
    let Some(sshd) = ssh::sshd() else { return Ok(()) };
    scene("sites10", |scene| {
        let world = World::new(scene, "sites10", &sshd)?;
        let start = |number: u8| -> Result<std::process::Child> {
            let mut command = world.command(&["apply", "--yes"]);
            let log = std::fs::File::create(world.path(&format!("operator{number}.log")))?;
            Ok(command.stdout(log.try_clone()?).stderr(log).spawn()?)
        };
        let mut both = [start(1)?, start(2)?];
        for (at, child) in both.iter_mut().enumerate() {
            let status = child.wait()?;
            let log = std::fs::read_to_string(world.path(&format!("operator{}.log", at + 1)))?;
            println!("operator {}: {status}: {}", at + 1, log.lines().last().unwrap_or_default());
        }
        // Whoever met the other may have stopped; whoever comes next makes it whole.
        world.sites(&["apply", "--yes"])?;
        for (from, to) in [(0, 1), (1, 2), (2, 0)] {
            eventually("joined", seconds(20), || world.reaches(from, to))?;
        }
        ensure!(world.sites(&["apply", "--yes"])?.contains("nothing is to be done"));
        ensure!(world.admin(&["node", "list"])?.lines().count() == 4, "three nodes and no more");
        world.sites(&["destroy", "--yes"])?;
        Ok(())
    })
}

#[test]
fn si_04_no_list_of_processes_shows_a_join_key() -> Result<()> {
    let Some(sshd) = ssh::sshd() else { return Ok(()) };
    scene("sites4", |scene| {
        let world = World::new(scene, "sites4", &sshd)?;
        // Whoever is on the machine looks at every command line, again and again.
        let spy = "import glob, os, time
print('ready', flush=True)
here = os.readlink('/proc/self/ns/net')
end = time.time() + 60
seen = 0
while time.time() < end:
    for path in glob.glob('/proc/[0-9]*'):
        try:
            if os.readlink(path + '/ns/net') != here: continue
            words = open(path + '/cmdline', 'rb').read()
        except OSError: continue
        seen += b'--advertise' + b'-routes' in words
        if b'warren-' + b'join-' in words: print('SEEN', words, flush=True)
    print('up', seen, flush=True)";
        let spying = world.gateways[0].spawn(&["python3", "-c", spy])?;
        spying.wait_for(|log| log.contains("ready"))?;
        world.sites(&["apply", "--yes"])?;
        let log = spying.log();
        ensure!(!log.contains("SEEN"), "{log}");
        let seen = log.lines().rev().find_map(|line| line.strip_prefix("up "));
        ensure!(seen.is_some_and(|count| count != "0"), "it saw none of the commands: {seen:?}");
        world.sites(&["destroy", "--yes"])?;
        Ok(())
    })
}

#[test]
fn si_05_a_machine_whose_key_is_not_known_is_not_talked_to() -> Result<()> {
    let Some(sshd) = ssh::sshd() else { return Ok(()) };
    scene("sites3", |scene| {
        let world = World::new(scene, "sites3", &sshd)?;
        let known = std::fs::read_to_string(world.path("known_hosts"))?;
        let others: String = known
            .lines()
            .filter(|line| !line.contains("gw-lyon"))
            .map(|l| format!("{l}\n"))
            .collect();
        std::fs::write(world.path("known_hosts"), others)?;
        let why = world.sites(&["apply", "--yes"]).err().context("it is refused")?.to_string();
        ensure!(why.contains("nothing was done") && why.contains("known_hosts"), "{why}");
        ensure!(world.admin(&["node", "list"])?.lines().count() == 1, "nobody joined");
        // The same for a gateway that is not in its site.
        std::fs::write(world.path("known_hosts"), known)?;
        let file = std::fs::read_to_string(world.path("sites.toml"))?;
        let wrong = "name = \"lyon\"\ninside = [\"10.4.1.7\"]";
        std::fs::write(world.path("sites.toml"), file.replace("name = \"lyon\"", wrong))?;
        let why = world.sites(&["apply", "--yes"]).err().context("it is refused")?.to_string();
        ensure!(why.contains("gw-lyon: it is to be the gateway of lyon"), "{why}");
        ensure!(why.contains("has no address 10.4.1.7, only 10.4.1.254"), "{why}");
        ensure!(world.admin(&["node", "list"])?.lines().count() == 1, "nobody joined");
        Ok(())
    })
}

#[test]
fn si_01_a_file_with_mistakes_is_told_with_their_places_and_nobody_is_asked() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("warren-sites-check-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let file = folder.join("sites.toml");
    let text = "network = \"acme\"\n[[site]]\nname = \"a\"\nprovider = \"ssh\"\nhosts = [\"h\"]\n\
                subnets = [\"10.9.0.0/24\"]\n[[site]]\nname = \"b\"\nprovider = \"ssh\"\n\
                hosts = [\"h;reboot\"]\nsubnets = [\"10.9.0.0/25\"]\n";
    std::fs::write(&file, text)?;
    let command = |word: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warren"));
        command.args(["sites", word]).arg(&file);
        command
    };
    let says = |word: &str| said(&mut command(word));
    let out = command("check").output()?;
    let why = String::from_utf8_lossy(&out.stderr).into_owned();
    ensure!(!out.status.success() && why.contains("sites.toml:10:10: a host is USER@"), "{why}");
    std::fs::write(&file, text.replace("h;reboot", "h"))?;
    let why = String::from_utf8_lossy(&command("check").output()?.stderr).into_owned();
    ensure!(why.contains("10.9.0.0/25 of b overlaps 10.9.0.0/24 of a"), "{why}");
    std::fs::write(&file, text.replace("h;reboot", "h").replace("10.9.0.0/25", "10.8.0.0/25"))?;
    let told = says("check")?;
    ensure!(told.contains("10.8.0.0/25") && told.contains("1 link;"), "{told}");
    ensure!(!told.contains("image"), "{told}");
    let told = says("inventory")?;
    let value: Value = serde_json::from_str(&told)?;
    let host = &value["all"]["children"]["a"]["children"]["a_gateways"]["hosts"]["a-gw1"];
    ensure!(host["ansible_host"] == "h", "{told}");
    let made =
        "network = \"acme\"\n[[site]]\nname = \"c\"\nprovider = \"aws\"\nregion = \"eu-west-3\"\n";
    std::fs::write(&file, made)?;
    let told = says("check")?;
    ensure!(told.contains("the image of c must have /usr/local/bin/warren"), "{told}");
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
