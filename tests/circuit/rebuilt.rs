//! A hop dies under a command that uses it.

use std::time::Instant;

use serde_json::Value;

use crate::support::capture::Capture;
use crate::support::{Result, bail, ensure, eventually, scene, seconds};
use crate::world::{NAMES, Running, WEB, World};

/// A command that fetches in a room until its file is there.
struct Fetching(Running, String);

impl Drop for Fetching {
    fn drop(&mut self) {
        let _ = std::fs::write(&self.1, "");
        let begin = Instant::now();
        while begin.elapsed() < seconds(10) && matches!(self.0.0.try_wait(), Ok(None)) {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

/// Kills a hop of a circuit that a command uses: how long until it is told dead, and from then on
/// until another carries.
fn rebuilt(id: &str, at: usize) -> Result<()> {
    scene(&format!("circ{id}"), |scene| {
        let mut world = World::new(scene, id)?;
        world.join()?;
        // Hops know of each other by now.
        let (first, _) = world.open(&[])?;
        world.node(0, &["circuit", "close", &first])?;
        let mut daemons = std::mem::take(&mut world.daemons);
        // It ends with the scene: whoever kills the command before it does not kill this one.
        let over = world.path("over");
        let fetch = format!(
            "until [ -e {over} ]; do
                 curl -s --max-time 1 http://{WEB}/10 >/dev/null && echo page
             done"
        );
        let mut running = world.command(0, &["circuit", "run", "--", "sh", "-c", &fetch]);
        let said = std::fs::File::create(world.path("run.log"))?;
        let out = std::fs::File::create(world.path("pages.log"))?;
        let running = Fetching(Running(running.stdout(out).stderr(said).spawn()?), over);
        let pages = || world.log("pages").lines().count();
        if eventually("pages are served", seconds(20), || pages() > 3).is_err() {
            bail!("no page is served:\n{}", world.log("run"));
        }
        let list = || -> Result<Value> {
            let all: Value = serde_json::from_str(&world.node(0, &["circuit", "list", "--json"])?)?;
            Ok(all["circuits"][0].clone())
        };
        let path = list()?["hops"].clone();
        let killed = path[at]["name"].as_str().unwrap_or_default().to_owned();
        let index = NAMES.iter().position(|name| *name == killed);
        let Some(index) = index.filter(|index| *index != 3) else { bail!("{path}") };
        let capture = Capture::start(&world.hosts[0], "eth0")?;
        daemons[index] = None;
        let begin = Instant::now();
        let is = |state: &str| {
            let changed = || list().is_ok_and(|circuit| circuit["state"] == state);
            eventually(&format!("it is {state}"), seconds(10), changed)
        };
        let names = |path: &Value| -> Vec<String> {
            let hops = path.as_array().into_iter().flatten();
            hops.filter_map(|hop| hop["name"].as_str().map(str::to_owned)).collect()
        };
        // What is dead may be building again when it is looked at, or have been built again.
        let is_over = || {
            list().is_ok_and(|circuit| {
                circuit["state"] != "open" || !names(&circuit["hops"]).contains(&killed)
            })
        };
        let dead = eventually("it is told dead", seconds(10), is_over).map(|_| begin.elapsed());
        let open = is("open").map(|_| begin.elapsed());
        let (dead, open) = (dead?, open?);
        let after = pages();
        eprintln!("{killed} killed: dead after {dead:?}, another carries after {open:?}");
        ensure!(dead < seconds(3), "told dead after {dead:?}");
        ensure!(open - dead < seconds(1), "{:?} later another carries", open - dead);
        let again = list()?["hops"].clone();
        ensure!(!names(&again).contains(&killed), "over {again}");
        ensure!(at == 0 || names(&again)[0] == names(&path)[0], "another entry: {path} {again}");
        eventually("pages are served again", seconds(5), || pages() > after + 2)?;
        let packets = capture.stop()?;
        let leaks = |p: &&Vec<u8>| p[0] >> 4 == 4 && p[16..20] == [203, 0, 113, 9];
        ensure!(packets.len() > 20, "the control: the wire is seen");
        ensure!(packets.iter().filter(leaks).count() == 0, "packets beside the circuit");
        ensure!(world.log("run").contains("is dead"), "the command is told: {}", world.log("run"));
        drop(running);
        Ok(())
    })
}

#[test]
fn a_command_goes_on_over_others_when_the_middle_is_killed() -> Result<()> {
    rebuilt("4", 1)
}

#[test]
fn a_command_goes_on_by_the_next_entry_when_the_first_is_killed() -> Result<()> {
    rebuilt("5", 0)
}
