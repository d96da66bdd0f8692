//! A backup taken elsewhere, through the API: whole, in pieces, by who may, and good to start with.

use super::*;

/// Policy texts of which each fills most of a mebibyte: more than one piece of a copy.
const TEXTS: usize = 6;

fn far(token: &str, words: &[&str]) -> Output {
    let mut command = Command::new(WARREN);
    command.args(words).args(["--token", token.trim()]);
    command.output().expect("the program is built")
}

#[test]
fn lc_01_a_backup_taken_elsewhere_while_it_runs_is_a_server_to_start_with() {
    let mut serve = Serve::new();
    let one = join(&serve.token(&[]), "one");
    until(&one, "a map", has_peers(0));
    let file = serve.data.join("policy.hujson");
    for n in 0..TEXTS {
        let text = format!("// {n} {}\n{{}}\n", "x".repeat(900_000));
        std::fs::write(&file, text).unwrap();
        serve.said(&["policy", "set", file.to_str().unwrap()]);
    }
    let token = serve.said(&["token", "create", "--scope", "backup:read"]);
    let folder = serve.data.join("elsewhere");
    std::fs::create_dir(&folder).unwrap();
    let copy = folder.join("copy.db");
    let name = copy.to_str().unwrap();
    let begin = Instant::now();
    let made = far(&token, &["backup", name, "--json"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    let len = copy.metadata().unwrap().len();
    assert_eq!(made["bytes"], len);
    assert!(len > 5_000_000, "{len} bytes are more than one piece");
    println!("{len} bytes in {:?}", begin.elapsed());
    let mode = std::os::unix::fs::PermissionsExt::mode(&copy.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert!(!serve.data.join("backup.copy").exists(), "nothing is left at the server");
    assert!(!folder.join("copy.db.part").exists());
    assert!(serve.said(&["audit"]).contains("backup.make"));

    // Refused: what is there already, and who may do something else.
    assert!(refusal(&far(&token, &["backup", name])).contains("overwrites nothing"));
    let other = serve.said(&["token", "create", "--scope", "nodes:read"]);
    let new = folder.join("other.db");
    let why = refusal(&far(&other, &["backup", new.to_str().unwrap()]));
    assert!(why.contains("backup:read"), "{why}");
    assert!(!new.exists() && !folder.join("other.db.part").exists());

    // Everything else is lost; the copy serves, with the same keys, at the same place.
    let policy = serve.said(&["policy", "get"]);
    let (port, key) = (serve.port, serve.token(&[]).server);
    serve.kill();
    let data = std::env::temp_dir().join(format!("warren-copy-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&data);
    std::fs::create_dir(&data).unwrap();
    std::fs::rename(&copy, data.join("warren.db")).unwrap();
    let child = start(&data, port, "127.0.0.1");
    let again = Serve { data, child, port };
    until(&one, "a map of the copy", |_, map| map.is_some_and(|map| map.policy.version == 6));
    assert_eq!(again.said(&["policy", "get"]), policy);
    assert_eq!(again.token(&[]).server, key);
}
