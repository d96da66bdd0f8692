//! Hops of several operators.

use serde_json::Value;

use crate::support::{Result, bail, ensure, eventually, scene, seconds};
use crate::world::{ADDRESSES, MARKER, NAMES, WEB, World, has};

/// Writes and signs the file; the key that it is signed by.
fn share_directory(world: &World) -> Result<String> {
    let mut text = "until = \"2999-12-31\"\n".to_owned();
    for (i, operator) in [(1, "alice"), (2, "bob"), (3, "carol")] {
        let status: Value = serde_json::from_str(&world.node(i, &["status", "--json"])?)?;
        let (key, port) = (&status["self"]["key"], &status["port"]);
        let (name, at, exit) = (NAMES[i], ADDRESSES[i], i == 3);
        text += &format!(
            "[[hop]]\nname = \"{name}\"\noperator = \"{operator}\"\nkey = {key}\n\
             addresses = [\"{at}:{port}\"]\nexit = {exit}\n"
        );
    }
    let (file, secret) = (world.path("hops.toml"), world.path("hops.key"));
    std::fs::write(&file, text)?;
    let words = |what: &str| -> Vec<String> {
        let words = [what, &file].map(str::to_owned).to_vec();
        [&["circuit".to_owned(), "directory".to_owned()][..], &words].concat()
    };
    let directory = |what: &str, more: &[&str]| {
        let all = words(what);
        let all: Vec<&str> = all.iter().map(String::as_str).chain(more.iter().copied()).collect();
        world.node(0, &all)
    };
    let unsigned = directory("check", &[]);
    ensure!(unsigned.is_err(), "not signed, and yet: {unsigned:?}");
    directory("sign", &["--key", &secret])?;
    let shown: Value = serde_json::from_str(&directory("show", &["--json"])?)?;
    let Some(key) = shown["signer"].as_str() else { bail!("{shown}") };
    ensure!(directory("check", &["--by", key])?.contains("3 hops"));
    Ok(key.to_owned())
}

/// Client and hops are in four networks; a signed file is all that they have in common.
#[test]
fn hops_of_several_operators_serve_who_is_in_none_of_their_networks() -> Result<()> {
    scene("circ7", |scene| {
        let mut world = World::new(scene, "7")?;
        let of: [(usize, &str, &[&str]); 4] = [
            (0, "tag:staff", &[]),
            (1, "tag:hop", &["--circuit-hop", "--circuit-guests"]),
            (2, "tag:hop", &["--circuit-hop"]),
            (3, "tag:exit", &["--circuit-exit", "--circuit-names", WEB]),
        ];
        for (i, tag, offer) in of {
            if i > 0 {
                world.serve(i)?;
            }
            world.set_policy(i)?;
            world.join_as(i, i, tag, offer)?;
        }
        let key = share_directory(&world)?;
        let file = world.path("hops.toml");
        let at = format!("{key}:{file}");
        for i in 0..4 {
            world.node(i, &["set", "--circuit-directory", &at])?;
        }
        let (id, took) = world.open(&[])?;
        let shown = world.show(&id)?;
        println!("over three operators in {took:?}: {}", shown["built_ms"]);
        let names: Vec<&str> = (0..3).filter_map(|i| shown["hops"][i]["name"].as_str()).collect();
        ensure!(names == ["h1", "h2", "h3"], "only one path can be: {shown}");
        ensure!(shown["hops"][1]["operator"] == "bob", "{shown}");
        let page = world.node(
            0,
            &[
                "circuit",
                "run",
                "--",
                "curl",
                "-sS",
                "--max-time",
                "20",
                "http://page.example/5000",
            ],
        )?;
        ensure!(page.len() == 5000, "{} bytes", page.len());
        search_memories(&world)?;
        // Whoever is no guest of a hop is let in by none: h2 takes no client itself.
        let beside = world.node(0, &["circuit", "open", "--via", "h2,h3"]);
        ensure!(beside.is_err(), "{beside:?}");
        // A file that somebody changed is told of, and the one before goes on.
        let changed = std::fs::read_to_string(&file)?.replace("alice", "mallory");
        std::fs::write(&file, changed)?;
        eventually("the change is told of", seconds(20), || {
            world.node(0, &["status"]).is_ok_and(|status| status.contains("another key"))
        })?;
        ensure!(world.show(&id)?["state"] == "open");
        Ok(())
    })
}

/// Everything that a process has in memory it may write to.
fn memory(pid: u32) -> Result<Vec<u8>> {
    use std::os::unix::fs::FileExt as _;

    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let file = std::fs::File::open(format!("/proc/{pid}/mem"))?;
    let mut all = Vec::new();
    for line in maps.lines() {
        let mut words = line.split(' ');
        let range = words.next().unwrap_or_default();
        let is_written = words.next().is_some_and(|rights| rights.starts_with("rw"));
        let Some((start, end)) = range.split_once('-').filter(|_| is_written) else { continue };
        let start = u64::from_str_radix(start, 16)?;
        let end = u64::from_str_radix(end, 16)?;
        let mut part = vec![0; usize::try_from(end - start)?];
        // What is mapped and not there, as a guard page, is nobody's memory.
        if file.read_exact_at(&mut part, start).is_ok() {
            all.extend(part);
        }
    }
    Ok(all)
}

/// Each hop's memory is searched for what it must not know: who sends is the entry's alone, where
/// to and what is said is the exit's alone (003.5, 1 and 2).
fn search_memories(world: &World) -> Result<()> {
    let status: Value = serde_json::from_str(&world.node(0, &["status", "--json"])?)?;
    let Some(text) = status["self"]["key"].as_str() else { bail!("{status}") };
    let key: noise::PublicKey = text.parse().map_err(|_| anyhow::anyhow!("{text} is no key"))?;
    let name = b"\x04page\x07example";
    let client: [(&str, &[u8]); 2] = [("its key", &key.0), ("its key as text", text.as_bytes())];
    let beyond: [(&str, &[u8]); 2] = [("the page", MARKER), ("the name", name)];
    for (i, knows_client, knows_beyond) in [(1, true, false), (2, false, false), (3, false, true)] {
        let Some(daemon) = &world.daemons[i] else { bail!("it is gone") };
        let held = memory(daemon.0.id())?;
        ensure!(held.len() > 1 << 20, "{}: {} bytes are no memory", NAMES[i], held.len());
        for (what, bytes) in client {
            let is_known = has(&held, bytes);
            ensure!(knows_client || !is_known, "{} knows the client: {what}", NAMES[i]);
        }
        ensure!(!knows_client || has(&held, &key.0), "the control: the entry knows the client");
        for (what, bytes) in beyond {
            let is_known = has(&held, bytes);
            ensure!(knows_beyond || !is_known, "{} knows what is beyond: {what}", NAMES[i]);
        }
        ensure!(!knows_beyond || has(&held, MARKER), "the control: the exit reads the page");
    }
    Ok(())
}
