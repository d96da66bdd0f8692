//! The books under races, crashes, damage and every kind of key.

use std::path::PathBuf;
use std::sync::{Arc, Barrier, Mutex};

use control::join::Refused;
use control::{HostInfo, Prefix, Secret, SecretId};
use noise::PublicKey;

use super::*;
use crate::keys::SystemRandom;

const NOW: u64 = 1_800_000_000;

/// A folder of one test, removed with it.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(test: &str) -> Self {
        let name = format!("warren-server-{test}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn open(&self) -> Stored<Store> {
        Store::open(&self.0.join("warren.db"), &[7; 32], None, &mut SystemRandom)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn key(store: &mut Store, number: u8, new: &NewJoinKey) -> u64 {
    let (id, secret) = (SecretId([number; 8]), Secret([number; 16]));
    store.add_join_key(new, id, &secret, "local:0", NOW).unwrap()
}

fn bytes(number: u64) -> [u8; 32] {
    let mut bytes = [1; 32];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// The machine with this number joins with the key of that one.
fn join(store: &mut Store, machine: u64, key: u8, now: u64) -> Stored<Registered> {
    let host = HostInfo { hostname: "dev".to_owned(), ..HostInfo::default() };
    let joining = Joining {
        machine_key: PublicKey(bytes(machine)),
        node_key: PublicKey(bytes(machine + 1_000_000)),
        lookup: [key; 8],
        secret: &[key; 16],
        host: &host,
    };
    store.enrol(&joining, Enrolment::default(), now)
}

fn refused(result: Stored<Registered>) -> Refused {
    match result {
        Err(StoreError::Key(why)) => why,
        other => panic!("it was not refused: {other:?}"),
    }
}

#[test]
fn the_schema_is_the_committed_one() {
    let folder = Folder::new("schema");
    let store = folder.open().unwrap();
    let sql = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'
               ORDER BY name";
    let mut query = store.db.prepare(sql).unwrap();
    let rows = query.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let made: String = rows.map(|row| row.unwrap() + ";\n").collect();
    assert_eq!(made, include_str!("schema.sql"), "write what migrations make into schema.sql");
}

#[test]
fn lc_01_every_write_is_on_the_disk_when_it_is_acknowledged() {
    let folder = Folder::new("pragmas");
    let store = folder.open().unwrap();
    let pragma = |sql| store.db.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(pragma("PRAGMA synchronous"), 2, "FULL");
    assert_eq!(pragma("PRAGMA foreign_keys"), 1);
    let mode: String = store.db.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
}

#[test]
fn co_02_of_200_that_race_for_a_key_exactly_one_gets_in() {
    let folder = Folder::new("race");
    let mut first = folder.open().unwrap();
    for round in 0..100 {
        key(&mut first, round, &NewJoinKey::default());
    }
    drop(first);
    // Two connections, so that the database decides and not our lock alone.
    let stores = [folder.open().unwrap(), folder.open().unwrap()].map(|s| Arc::new(Mutex::new(s)));
    for round in 0..100_u8 {
        let barrier = Arc::new(Barrier::new(200));
        let threads: Vec<_> = (0..200)
            .map(|n| {
                let (store, barrier) = (Arc::clone(&stores[n % 2]), Arc::clone(&barrier));
                std::thread::spawn(move || {
                    barrier.wait();
                    let machine = u64::from(round) * 1000 + n as u64;
                    join(&mut store.lock().unwrap(), machine, round, NOW)
                })
            })
            .collect();
        let results: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        let won = results.iter().filter(|result| result.is_ok()).count();
        assert_eq!(won, 1, "round {round}");
        for result in results.into_iter().filter(Result::is_err) {
            assert_eq!(refused(result), Refused::Used);
        }
    }
    assert_eq!(stores[0].lock().unwrap().nodes().unwrap().len(), 100);
}

#[test]
fn co_03_every_kind_of_key_meets_every_kind_of_machine() {
    let folder = Folder::new("kinds");
    let mut store = folder.open().unwrap();
    let once = NewJoinKey::default();
    key(&mut store, 1, &once);
    key(&mut store, 2, &NewJoinKey { reusable: true, ..once.clone() });
    key(&mut store, 3, &NewJoinKey { lifetime_s: Some(10), ..once.clone() });
    let revoked = key(&mut store, 4, &NewJoinKey { reusable: true, ..once.clone() });
    key(&mut store, 5, &NewJoinKey { lifetime_s: Some(0), ..once });
    store.revoke_join_key(revoked, "local:0", NOW).unwrap();

    let node = join(&mut store, 1, 1, NOW).unwrap();
    assert!(node.is_new);
    assert_eq!(refused(join(&mut store, 2, 1, NOW)), Refused::Used);
    let again = join(&mut store, 1, 1, NOW).unwrap();
    assert_eq!((again.is_new, again.node.id), (false, node.node.id), "its own key lets it in");
    let again = join(&mut store, 1, 99, NOW).unwrap();
    assert_eq!(again.node.id, node.node.id, "whatever join key it shows");

    assert_eq!(refused(join(&mut store, 2, 99, NOW)), Refused::Unknown);
    assert_eq!(refused(join(&mut store, 2, 4, NOW)), Refused::Revoked);
    assert_eq!(refused(join(&mut store, 2, 5, NOW)), Refused::Expired, "zero is no never");
    assert_eq!(refused(join(&mut store, 2, 3, NOW + 10)), Refused::Expired, "at its time");
    assert!(join(&mut store, 2, 3, NOW + 9).is_ok());
    assert!(join(&mut store, 3, 2, NOW).is_ok() && join(&mut store, 4, 2, NOW).is_ok());

    // An expired machine needs a join key again, and keeps its name and address.
    let before = store.expire(node.node.id, "local:0", NOW).unwrap();
    assert_eq!(refused(join(&mut store, 1, 1, NOW)), Refused::Used);
    let back = join(&mut store, 1, 2, NOW).unwrap().node;
    assert_eq!((back.id, &back.name, back.number), (before.id, &before.name, before.number));
    assert!(!back.is_expired(NOW));

    // A wrong secret under a right look-up name is an unknown key.
    let host = HostInfo::default();
    let joining = Joining {
        machine_key: PublicKey(bytes(50)),
        node_key: PublicKey(bytes(51)),
        lookup: [2; 8],
        secret: &[3; 16],
        host: &host,
    };
    let result = store.enrol(&joining, Enrolment::default(), NOW);
    assert_eq!(refused(result), Refused::Unknown);
    // Another machine's WireGuard key is nobody else's.
    let stolen = Joining { node_key: PublicKey(bytes(1_000_001)), secret: &[2; 16], ..joining };
    let result = store.enrol(&stolen, Enrolment::default(), NOW);
    assert!(matches!(result, Err(StoreError::WrongKey)));
}

#[test]
fn co_01_no_secret_is_in_the_database() {
    let folder = Folder::new("secrets");
    let mut store = folder.open().unwrap();
    let secret = Secret(*b"sixteen secret b");
    store.add_join_key(&NewJoinKey::default(), SecretId([1; 8]), &secret, "a", NOW).unwrap();
    let scopes = ["nodes:read".to_owned()];
    store.add_api_token(&scopes, None, (SecretId([2; 8]), &secret), "a", NOW).unwrap();
    let listed = format!("{:?} {:?}", store.join_keys().unwrap(), store.api_tokens().unwrap());
    drop(store);
    let mut everything = listed.into_bytes();
    for file in std::fs::read_dir(&folder.0).unwrap() {
        everything.extend(std::fs::read(file.unwrap().path()).unwrap());
    }
    assert!(everything.len() > 10_000);
    assert!(!everything.windows(16).any(|window| window == secret.0));
    let store = folder.open().unwrap();
    let scopes = store.scopes_of([2; 8], &secret.0, NOW).unwrap();
    assert_eq!(scopes, Some(vec!["nodes:read".to_owned()]));
    assert_eq!(store.scopes_of([2; 8], &[0; 16], NOW).unwrap(), None);
    assert_eq!(store.scopes_of([1; 8], &secret.0, NOW).unwrap(), None, "a join key is no token");
}

#[test]
fn co_07_addresses_and_names_are_unique_and_wait_before_they_come_back() {
    let folder = Folder::new("addresses");
    let range: Prefix = "10.9.0.0/29".parse().unwrap();
    let path = folder.0.join("warren.db");
    let mut store = Store::open(&path, &[7; 32], Some(range), &mut SystemRandom).unwrap();
    key(&mut store, 1, &NewJoinKey { reusable: true, ..NewJoinKey::default() });
    let nodes: Vec<Node> = (0..6).map(|n| join(&mut store, n, 1, NOW).unwrap().node).collect();
    let numbers: Vec<u32> = nodes.iter().map(|node| node.number).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
    let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["dev", "dev-1", "dev-2", "dev-3", "dev-4", "dev-5"]);
    assert!(matches!(join(&mut store, 10, 1, NOW), Err(StoreError::Full)));
    store.remove(nodes[1].id, "local:0", NOW).unwrap();
    assert!(matches!(join(&mut store, 10, 1, NOW), Err(StoreError::Full)), "it waits");
    let later = join(&mut store, 10, 1, NOW + 8 * 86_400).unwrap().node;
    assert_eq!((later.number, later.name.as_str()), (2, "dev-1"));
    assert!(later.id > nodes[5].id, "but a number in the books is never given twice");

    drop(store);
    assert!(Store::open(&path, &[7; 32], None, &mut SystemRandom).unwrap().pool().v4() == range);
    let other: Prefix = "10.8.0.0/16".parse().unwrap();
    let why = Store::open(&path, &[7; 32], Some(other), &mut SystemRandom).err().unwrap();
    assert!(why.to_string().contains("10.9.0.0/29"), "{why}");
}

#[test]
fn co_18_the_log_tells_everything_and_shows_when_it_was_changed() {
    let folder = Folder::new("audit");
    let mut store = folder.open().unwrap();
    key(&mut store, 1, &NewJoinKey::default());
    let id = join(&mut store, 1, 1, NOW).unwrap().node.id;
    store.rename(id, "other", "token:ab", NOW).unwrap();
    store.set_policy("{}", Some(0), "local:0", NOW).unwrap();
    let log = store.audit(None, 100).unwrap();
    let actions: Vec<&str> = log.iter().map(|entry| entry.action.as_str()).collect();
    assert_eq!(actions, ["policy.set", "node.rename", "node.enrol", "key.create"]);
    assert_eq!(log[1].detail, serde_json::json!({ "before": "dev", "after": "other" }));
    assert_eq!(store.audit(Some(log[1].id), 1).unwrap()[0].action, "node.enrol");
    store.verify_audit().unwrap();
    for change in [
        "UPDATE audit SET actor = 'local:1' WHERE id = 2",
        "DELETE FROM audit WHERE id = 2",
        "UPDATE audit SET time = time + 1 WHERE id = 3",
    ] {
        store.db.execute_batch("SAVEPOINT before").unwrap();
        store.db.execute_batch(change).unwrap();
        assert!(store.verify_audit().is_err(), "{change}");
        store.db.execute_batch("ROLLBACK TO before; RELEASE before").unwrap();
    }
    store.verify_audit().unwrap();
}

#[test]
fn co_06_of_two_who_change_the_policy_the_second_is_told() {
    let folder = Folder::new("policy");
    let mut store = folder.open().unwrap();
    assert_eq!(store.policy().unwrap(), None);
    assert_eq!(store.set_policy("{}", Some(0), "a", NOW).unwrap(), 1);
    let late = store.set_policy("{\"b\":1}", Some(0), "b", NOW);
    assert!(matches!(late, Err(StoreError::Conflict(_))));
    assert_eq!(store.set_policy("{\"b\":1}", Some(1), "b", NOW).unwrap(), 2);
    assert_eq!(store.policy().unwrap().unwrap().text, "{\"b\":1}");
}

#[test]
fn lc_03_a_damaged_database_is_told_and_left_alone() {
    let folder = Folder::new("damage");
    let path = folder.0.join("warren.db");
    for text in [&b"this is no database, but it is long enough to be looked at"[..], &[0; 5000]] {
        std::fs::write(&path, text).unwrap();
        let why = folder.open().err().map(|why| why.to_string());
        assert!(why.as_ref().is_some_and(|why| why.contains("backup")), "{why:?}");
        assert_eq!(std::fs::read(&path).unwrap(), text, "it is left as it was");
    }
    std::fs::remove_file(&path).unwrap();
    let mut store = folder.open().unwrap();
    key(&mut store, 1, &NewJoinKey::default());
    drop(store);
    let later = Connection::open(&path).unwrap();
    later.pragma_update(None, "user_version", 99).unwrap();
    drop(later);
    let why = folder.open().err().unwrap().to_string();
    assert!(why.contains("later version"), "{why}");
}

#[test]
fn a_backup_taken_while_it_runs_is_whole_and_epochs_only_grow() {
    let folder = Folder::new("backup");
    let mut store = folder.open().unwrap();
    key(&mut store, 1, &NewJoinKey::default());
    join(&mut store, 1, 1, NOW).unwrap();
    let first = store.next_epoch(NOW).unwrap();
    let copy = folder.0.join("copy.db");
    store.backup(&copy).unwrap();
    assert!(store.backup(&copy).is_err(), "nothing is overwritten");
    let second = store.next_epoch(NOW).unwrap();
    assert_eq!((first, second), (NOW, NOW + 1));
    let mut restored = Store::open(&copy, &[7; 32], None, &mut SystemRandom).unwrap();
    assert_eq!(restored.nodes().unwrap(), store.nodes().unwrap());
    assert!(restored.next_epoch(NOW + 60).unwrap() > second, "CO-17: a copy is later as well");
    assert!(restored.next_epoch(0).unwrap() > NOW + 60, "whatever the clock says");
}

#[test]
fn routes_are_told_when_offered_and_approved_and_never_overlap_the_network() {
    let folder = Folder::new("routes");
    let mut store = folder.open().unwrap();
    key(&mut store, 1, &NewJoinKey::default());
    let id = join(&mut store, 1, 1, NOW).unwrap().node.id;
    let (a, b): (Prefix, Prefix) = ("10.0.0.0/8".parse().unwrap(), "0.0.0.0/0".parse().unwrap());
    let host = HostInfo { routes: vec![a], ..HostInfo::default() };
    assert_eq!(store.report(id, &host, NOW).unwrap().routes(), []);
    assert_eq!(store.approve_routes(id, &[a, b], "x", NOW).unwrap().routes(), [a]);
    for inside in ["100.64.0.0/10", "100.70.0.0/16", "100.0.0.0/8"] {
        let why = store.approve_routes(id, &[inside.parse().unwrap()], "x", NOW);
        assert!(matches!(why, Err(StoreError::Invalid(_))), "{inside}");
    }
    assert_eq!(store.node(id).unwrap().approved_routes.len(), 2, "nothing was changed");
}

#[test]
fn lc_02_a_full_disk_changes_nothing_and_is_recovered_from() {
    let folder = Folder::new("full");
    let mut store = folder.open().unwrap();
    key(&mut store, 1, &NewJoinKey { reusable: true, ..NewJoinKey::default() });
    // The database's own bound makes it say what a full disk makes it say.
    let pages: u32 = store.db.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
    let bound = |store: &Store, pages: u32| {
        store.db.pragma_update(None, "max_page_count", pages).unwrap();
    };
    bound(&store, pages + 4);
    let (mut joined, mut failed) = (0, None);
    for machine in 0..1000 {
        match join(&mut store, machine, 1, NOW) {
            Ok(_) => joined += 1,
            Err(error) => {
                failed = Some((machine, error));
                break;
            }
        }
    }
    let (machine, error) = failed.expect("four pages are filled");
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    assert!(error.to_string().contains("disk"), "{error}");
    assert_eq!(store.nodes().unwrap().len(), joined, "no half registration");
    store.verify_audit().unwrap();
    bound(&store, pages + 1000);
    assert!(join(&mut store, machine, 1, NOW).unwrap().is_new, "without a restart");
}
