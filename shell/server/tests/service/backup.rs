//! Backups: all that a server has in one file.

use serde_json::json;
use server::Server;

use crate::stage::{Folder, Stage, config};

#[test]
fn lc_01_a_backup_of_a_running_server_is_one_file_to_start_with() {
    let stage = Stage::new();
    let token = stage.token(&json!({ "reusable": true }));
    let mut one = stage.node(&token, "one");
    one.until_peers(&[]);
    let before = one.map.clone().unwrap();
    let file = stage.folder.0.join("copy.db");
    server::backup(&stage.folder.0, &file).unwrap();
    let again = server::backup(&stage.folder.0, &file).unwrap_err();
    assert!(again.to_string().contains("there already"), "{again}");
    assert!(!stage.folder.0.join("copy.db.part").exists());
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);

    // Everything else is lost, and the same port serves again out of the copy.
    let Stage { server, address, folder, .. } = stage;
    drop(server);
    let fresh = Folder::new();
    std::fs::create_dir_all(&fresh.0).unwrap();
    std::fs::rename(&file, fresh.0.join("warren.db")).unwrap();
    drop(folder);
    let server = Server::start(config(&fresh.0, address.port())).unwrap();
    one.until("a map of the copy", |_, map| map.is_some_and(|map| map.epoch > before.epoch));
    assert_eq!(one.map.as_ref().unwrap().me, before.me);
    // Keys of another server beside a copy are told, not mixed.
    let other = Stage::new();
    let copy = other.folder.0.join("copy.db");
    server::backup(&fresh.0, &copy).unwrap();
    let Stage { server: running, folder, .. } = other;
    drop((running, server));
    std::fs::rename(&copy, folder.0.join("warren.db")).unwrap();
    let why = Server::start(config(&folder.0, 0)).err().unwrap().to_string();
    assert!(why.contains("other keys than the backup"), "{why}");
}
