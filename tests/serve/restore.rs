//! A backup that is restored while the server runs, while it stands, after a cut, and not at all.

use std::fs;

use super::*;

fn named(serve: &Serve, name: &str) -> String {
    serve.data.join(name).display().to_string()
}

fn nodes(serve: &Serve) -> Vec<String> {
    let list = serve.json(&["node", "list"]);
    let all = list["nodes"].as_array().unwrap().iter();
    all.map(|node| node["name"].as_str().unwrap().to_owned()).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The policy whose version is this, with a word to know it by.
fn set_policy(serve: &Serve, word: &str) {
    let file = named(serve, "policy.hujson");
    fs::write(&file, format!("// {word}\n{{}}\n")).unwrap();
    serve.said(&["policy", "set", &file]);
}

#[test]
fn lc_01_a_backup_is_restored_while_the_server_runs_and_its_nodes_come_back() {
    let mut serve = Serve::new();
    serve.kill();
    let log = serve.data.join("log");
    let mut logged = serving(&serve.data, serve.port, "127.0.0.1");
    logged.env_remove("LOG_LEVEL").stderr(fs::File::create(&log).unwrap());
    serve.child = started(&mut logged);
    let token = serve.token(&["--reusable"]);
    let one = join(&token, "one");
    until(&one, "a map", has_peers(0));
    set_policy(&serve, "before");
    let copy = named(&serve, "copy");
    serve.said(&["backup", &copy]);

    // What comes after the backup is gone with it.
    set_policy(&serve, "after");
    let two = join(&token, "two");
    until(&two, "a map", has_peers(1));
    until(&one, "a peer", has_peers(1));
    let begin = Instant::now();
    let restored = serve.run(&["restore", &copy]);
    println!("restored after {:?}", begin.elapsed());
    assert_eq!(text(&restored.stdout), "restored; the server has restarted with it\n");
    assert!(!text(&restored.stderr).contains("ERROR"), "{}", text(&restored.stderr));
    assert_eq!(nodes(&serve), ["one"]);
    assert!(serve.said(&["policy", "get"]).contains("before"));
    until(&one, "its own network again", has_peers(0));
    until(&two, "that it never joined", |event, _| matches!(event, Event::Ended(_)));
    assert!(serve.said(&["audit"]).contains("backup.restore"));
    let three = join(&token, "three");
    until(&three, "a map, with a token of before", has_peers(1));

    // The day before is not lost: it is a database as any other.
    assert!(serve.data.join("before-restore.db").exists());
    assert!(!serve.data.join("restore.db").exists());
    assert_eq!(serve.json(&["restore", &copy])["running"], true);
    assert_eq!(nodes(&serve), ["one"], "as often as one likes");
    until(&three, "that it never joined", |event, _| matches!(event, Event::Ended(_)));
    let log = fs::read_to_string(&log).unwrap();
    assert!(log.contains("was restored") && !log.contains("ERROR"), "{log}");
}

#[test]
fn lc_01_a_backup_is_restored_where_no_server_runs_and_after_a_cut() {
    let mut serve = Serve::new();
    let token = serve.token(&["--reusable"]);
    let one = join(&token, "one");
    until(&one, "a map", has_peers(0));
    let copy = named(&serve, "copy");
    serve.said(&["backup", &copy]);
    until(&join(&token, "two"), "a map", has_peers(1));
    serve.kill();
    let said = serve.said(&["restore", &copy]);
    assert!(said.contains("start `warren serve`"), "{said}");
    serve.restart();
    assert_eq!(nodes(&serve), ["one"]);

    // Cut between any two moves: the database, then its journal, is aside; the backup waits.
    for moved in 0..3 {
        until(&join(&token, "late"), "a map", has_peers(1));
        serve.kill();
        fs::copy(&copy, serve.data.join("restore.db")).unwrap();
        for part in ["warren.db", "warren.db-wal"].iter().take(moved) {
            let to = part.replace("warren", "before-restore");
            // A server that was killed has left its journal.
            fs::rename(serve.data.join(part), serve.data.join(to)).unwrap();
        }
        serve.restart();
        assert_eq!(nodes(&serve), ["one"], "{moved}");
        assert!(!serve.data.join("restore.db").exists());
    }

    // In an empty directory it is the same server.
    let data = std::env::temp_dir().join(format!("warren-restored-{}", std::process::id()));
    let _ = fs::remove_dir_all(&data);
    serve.kill();
    let mut moved = Command::new(WARREN);
    let moved = moved.args(["restore", &copy, "--data"]).arg(&data).output().unwrap();
    assert!(moved.status.success(), "{}", String::from_utf8_lossy(&moved.stderr));
    let child = start(&data, serve.port, "127.0.0.1");
    let again = Serve { data, child, port: serve.port };
    assert_eq!(again.token(&[]).server, token.server);
    until(&one, "a map", has_peers(0));
}

#[test]
fn lc_01_what_is_no_backup_of_this_server_is_refused_and_changes_nothing() {
    let (serve, other) = (Serve::new(), Serve::new());
    until(&join(&serve.token(&[]), "one"), "a map", has_peers(0));
    let (copy, foreign) = (named(&serve, "copy"), named(&other, "foreign"));
    serve.said(&["backup", &copy]);
    other.said(&["backup", &foreign]);
    let bytes = fs::read(&copy).unwrap();
    let (text, half, bent, later) = (
        named(&serve, "text"),
        named(&serve, "half"),
        named(&serve, "bent"),
        named(&serve, "later"),
    );
    fs::write(&text, "not a database at all, but long enough to be looked at\n".repeat(40))
        .unwrap();
    fs::write(&half, &bytes[..bytes.len() / 2]).unwrap();
    let mut worse = bytes.clone();
    let end = worse.len();
    worse[end / 2..].iter_mut().for_each(|byte| *byte = !*byte);
    fs::write(&bent, worse).unwrap();
    // The user's version stands at byte 60 of a database.
    let mut newer = bytes.clone();
    newer[60..64].copy_from_slice(&999_u32.to_be_bytes());
    fs::write(&later, newer).unwrap();
    for (file, part) in [
        (&text, "is no backup"),
        (&half, "is damaged"),
        (&bent, "is damaged"),
        (&later, "later version"),
        (&foreign, "another server's"),
        (&named(&serve, "nowhere"), "No such file"),
        (&named(&serve, "warren.db"), "is no backup"),
    ] {
        let why = refusal(&serve.run(&["restore", file]));
        println!("{why}");
        assert!(why.contains("nothing was restored") && why.contains(part), "{why}");
        let left = fs::read_dir(&serve.data).unwrap().flatten();
        let left: Vec<_> = left.map(|one| one.file_name().into_string().unwrap()).collect();
        assert!(!left.iter().any(|name| name.contains("restore")), "{left:?}");
        assert_eq!(nodes(&serve), ["one"]);
    }
}
