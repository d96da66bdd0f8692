//! The books under races, crashes, damage and every kind of key.

use std::path::PathBuf;
use std::sync::{Arc, Barrier, Mutex};

use control::join::Refused;
use control::{HostInfo, Prefix, Secret, SecretId};
use noise::PublicKey;

use super::*;
use crate::keys::SystemRandom;

#[allow(dead_code, reason = "others use more of it")]
#[path = "../../tests/service/cluster.rs"]
mod cluster;
#[path = "tests/names.rs"]
mod names;
#[path = "tests/postgres.rs"]
mod on_postgres;
#[path = "tests/people.rs"]
mod people;
#[path = "tests/rights.rs"]
mod rights;
#[path = "tests/upgrades.rs"]
mod upgrades;

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
        self.ground().open()
    }

    fn ground(&self) -> Ground {
        Ground { place: Place::File(self.0.join("warren.db")), database: None }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Where a test has its books.
struct Ground {
    place: Place,
    /// The name of the PostgreSQL database.
    database: Option<String>,
}

impl Ground {
    fn open(&self) -> Stored<Store> {
        self.with(None)
    }

    fn with(&self, v4: Option<Prefix>) -> Stored<Store> {
        Store::open(&self.place, &[7; 32], v4, &mut SystemRandom)
    }
}

fn postgres(test: &str) -> Ground {
    let name = format!("store_{test}");
    let url = PostgresUrl::parse(&cluster::SHARED.database(&name)).unwrap();
    Ground { place: Place::Postgres { url, may_make: true }, database: Some(name) }
}

/// The same on both databases, each of which is new.
fn on_both(test: &str, check: impl Fn(&Ground)) {
    let folder = Folder::new(test);
    check(&folder.ground());
    check(&postgres(test));
}

fn key(store: &mut Store, number: u8, new: &NewJoinKey) -> u64 {
    let (id, secret) = (SecretId([number; 8]), Secret([number; 16]));
    store.add_join_key(new, id, &secret, "local:0", NOW).unwrap().id
}

fn bytes(number: u64) -> [u8; 32] {
    let mut bytes = [1; 32];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// The machine with this number joins with the key of that one.
fn join(store: &mut Store, machine: u64, key: u8, now: u64) -> Stored<Registered> {
    join_under(store, machine, key, now, Enrolment::default())
}

/// The same in a network with these terms.
fn join_under(
    store: &mut Store,
    machine: u64,
    key: u8,
    now: u64,
    terms: Enrolment,
) -> Stored<Registered> {
    let host = HostInfo { hostname: "dev".to_owned(), ..HostInfo::default() };
    let joining = Joining {
        machine_key: PublicKey(bytes(machine)),
        node_key: PublicKey(bytes(machine + 1_000_000)),
        lookup: [key; 8],
        secret: &[key; 16],
        host: &host,
    };
    store.enrol(&joining, terms, now)
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
    let rows = store.db.rows(sql, &[]).unwrap();
    let made: String = rows.iter().map(|row| row.read::<String>(0).unwrap() + ";\n").collect();
    assert_eq!(made, include_str!("schema.sql"), "write what migrations make into schema.sql");
}

#[test]
fn source_001_11_hours_of_paths_are_kept_for_a_month() {
    on_both("hours", |ground| {
        let mut store = ground.open().unwrap();
        let hour = |at: u64, rtt_us: u32| crate::paths::Hour {
            node: 1,
            peer: 2,
            at,
            rtt_us_min: Some(rtt_us),
            rtt_us_max: None,
            loss_ppm_max: 7,
            low_bps: None,
            high_bps: Some(8),
        };
        let day = 86_400;
        store.keep_hours(&[hour(NOW, 5), hour(NOW + 3600, 6)], NOW).unwrap();
        store.keep_hours(&[hour(NOW, 4)], NOW).unwrap();
        let told = store.hours(NOW, 9).unwrap();
        assert_eq!(told, [hour(NOW + 3600, 6), hour(NOW, 4)], "the newest first, and once each");
        assert_eq!(store.hours(NOW, 1).unwrap().len(), 1);
        store.keep_hours(&[], NOW + 30 * day + 60).unwrap();
        assert_eq!(store.hours(0, 9).unwrap(), [hour(NOW + 3600, 6)]);
        store.forget_hours().unwrap();
        assert_eq!(store.hours(0, 9).unwrap(), []);
    });
}

#[test]
fn lc_01_every_write_is_on_the_disk_when_it_is_acknowledged() {
    let folder = Folder::new("pragmas");
    let store = folder.open().unwrap();
    let pragma = |sql| store.db.value::<u64>(sql, &[]).unwrap();
    assert_eq!(pragma("PRAGMA synchronous"), 2, "FULL");
    assert_eq!(pragma("PRAGMA foreign_keys"), 1);
    let mode: String = store.db.value("PRAGMA journal_mode", &[]).unwrap();
    assert_eq!(mode, "wal");
}

#[test]
fn co_02_of_200_that_race_for_a_key_exactly_one_gets_in() {
    on_both("race", |ground| {
        let mut first = ground.open().unwrap();
        for round in 0..100 {
            key(&mut first, round, &NewJoinKey::default());
        }
        drop(first);
        // Two connections, so that the database decides and not our lock alone.
        let stores =
            [ground.open().unwrap(), ground.open().unwrap()].map(|s| Arc::new(Mutex::new(s)));
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
    });
}

#[test]
fn co_03_every_kind_of_key_meets_every_kind_of_machine() {
    on_both("kinds", |ground| {
        let mut store = ground.open().unwrap();
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
    });
}

#[test]
fn co_01_no_secret_is_in_the_database() {
    let folder = Folder::new("secrets");
    for ground in [folder.ground(), postgres("secrets")] {
        let mut store = ground.open().unwrap();
        let secret = Secret(*b"sixteen secret b");
        store.add_join_key(&NewJoinKey::default(), SecretId([1; 8]), &secret, "a", NOW).unwrap();
        let scopes = vec!["nodes:read".to_owned()];
        let new = NewApiToken { scopes, ..NewApiToken::default() };
        store.add_api_token(&new, SecretId([2; 8]), &secret, "a", NOW).unwrap();
        let listed = format!("{:?} {:?}", store.join_keys().unwrap(), store.api_tokens().unwrap());
        drop(store);
        let mut everything = listed.into_bytes();
        if let Some(name) = &ground.database {
            for table in ["join_keys", "api_tokens", "audit", "settings"] {
                let sql = format!("SELECT * FROM {table}");
                everything.extend(cluster::SHARED.psql(name, &sql).unwrap().into_bytes());
            }
        } else {
            for file in std::fs::read_dir(&folder.0).unwrap() {
                everything.extend(std::fs::read(file.unwrap().path()).unwrap());
            }
        }
        let is_there = |what: &[u8]| everything.windows(what.len()).any(|window| window == what);
        assert!(is_there(b"token.create"), "it is looked at");
        let hex = secret.0.map(|byte| format!("{byte:02x}")).concat();
        assert!(!is_there(&secret.0) && !is_there(hex.as_bytes()));
        let store = ground.open().unwrap();
        let bearer = store.bearer([2; 8], &secret.0, NOW).unwrap();
        assert_eq!(bearer.unwrap().scopes, ["nodes:read".to_owned()]);
        assert_eq!(store.bearer([2; 8], &[0; 16], NOW).unwrap(), None);
        assert_eq!(store.bearer([1; 8], &secret.0, NOW).unwrap(), None, "a key is no token");
    }
}

#[test]
fn co_07_addresses_and_names_are_unique_and_wait_before_they_come_back() {
    on_both("addresses", |ground| {
        let range: Prefix = "10.9.0.0/29".parse().unwrap();
        let mut store = ground.with(Some(range)).unwrap();
        key(&mut store, 1, &NewJoinKey { reusable: true, ..NewJoinKey::default() });
        let nodes: Vec<Node> = (0..6).map(|n| join(&mut store, n, 1, NOW).unwrap().node).collect();
        let numbers: Vec<u32> = nodes.iter().map(|node| node.number).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["dev", "dev-1", "dev-2", "dev-3", "dev-4", "dev-5"]);
        assert!(matches!(join(&mut store, 10, 1, NOW), Err(StoreError::Full)));
        // Of two that wait the one that has waited longer is given, for there is no other.
        store.remove(nodes[3].id, "local:0", NOW).unwrap();
        store.remove(nodes[1].id, "local:0", NOW + 1).unwrap();
        let next = join(&mut store, 10, 1, NOW + 2).unwrap().node;
        assert_eq!((next.number, next.name.as_str()), (4, "dev-1"), "the same key's name is free");
        assert!(next.id > nodes[5].id, "but a number in the books is never given twice");
        // The machine itself has back what it had.
        let back = join(&mut store, 1, 1, NOW + 3).unwrap().node;
        assert_eq!((back.number, back.name.as_str()), (2, "dev-3"));
        assert!(matches!(join(&mut store, 11, 1, NOW + 4), Err(StoreError::Full)));

        drop(store);
        assert!(ground.open().unwrap().pool().v4() == range);
        let other: Prefix = "10.8.0.0/16".parse().unwrap();
        let why = ground.with(Some(other)).err().unwrap();
        assert!(why.to_string().contains("10.9.0.0/29"), "{why}");
    });
}

#[test]
fn co_18_the_log_tells_everything_and_shows_when_it_was_changed() {
    on_both("audit", |ground| {
        let mut store = ground.open().unwrap();
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
            "DELETE FROM audit WHERE id = 1",
            "UPDATE audit SET time = time + 1 WHERE id = 3",
            "DELETE FROM audit WHERE id = 4",
        ] {
            let undone = store.db.write(|tx| {
                tx.execute(change, &[])?;
                assert!(store.verify_audit().is_err(), "{change}");
                Err::<(), _>(StoreError::Full)
            });
            assert!(matches!(undone, Err(StoreError::Full)), "{undone:?}");
        }
        store.verify_audit().unwrap();
    });
}

#[test]
fn co_06_of_two_who_change_the_policy_the_second_is_told() {
    on_both("policy", |ground| {
        let mut store = ground.open().unwrap();
        assert_eq!(store.policy().unwrap(), None);
        assert_eq!(store.set_policy("{}", Some(0), "a", NOW).unwrap(), 1);
        let late = store.set_policy("{\"b\":1}", Some(0), "b", NOW);
        assert!(matches!(late, Err(StoreError::Conflict(_))));
        assert_eq!(store.set_policy("{\"b\":1}", Some(1), "b", NOW).unwrap(), 2);
        assert_eq!(store.policy().unwrap().unwrap().text, "{\"b\":1}");
        // None is ever overwritten.
        let past = store.policy_versions(None, 100).unwrap();
        let told = past.iter().map(|one| (one.version, one.actor.as_str())).collect::<Vec<_>>();
        assert_eq!(told, [(2, "b"), (1, "a")]);
        assert_eq!(store.policy_versions(Some(2), 100).unwrap(), past[1..]);
        assert_eq!(store.policy_versions(None, 1).unwrap(), past[..1]);
        assert_eq!(store.policy_version(1).unwrap(), (past[1].clone(), "{}".to_owned()));
        assert!(matches!(store.policy_version(3), Err(StoreError::Missing(_))));
    });
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
    let later = rusqlite::Connection::open(&path).unwrap();
    later.pragma_update(None, "user_version", 99).unwrap();
    drop(later);
    let why = folder.open().err().unwrap().to_string();
    assert!(why.contains("later version"), "{why}");
}

#[test]
fn lc_03_a_page_of_rubbish_anywhere_is_told_or_was_of_no_use() {
    let folder = Folder::new("pages");
    let mut store = folder.open().unwrap();
    key(&mut store, 1, &NewJoinKey { reusable: true, ..NewJoinKey::default() });
    for machine in 0..60 {
        join(&mut store, machine, 1, NOW).unwrap();
    }
    drop(store);
    let path = folder.0.join("warren.db");
    let good = std::fs::read(&path).unwrap();
    let (pages, mut told) = (good.len() / 4096, 0);
    for page in 0..pages {
        for end in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(folder.0.join(format!("warren.db{end}")));
        }
        let mut bad = good.clone();
        bad[page * 4096..][..4096].fill(0xa5);
        std::fs::write(&path, &bad).unwrap();
        match folder.open() {
            Err(error) => {
                let why = error.to_string();
                assert!(matches!(error, StoreError::Damaged(_)), "page {page}: {why}");
                assert!(why.contains("backup"), "page {page}: {why}");
                assert!(std::fs::read(&path).unwrap() == bad, "page {page} is left as it was");
                told += 1;
            }
            Ok(store) => {
                assert_eq!(store.nodes().unwrap().len(), 60, "page {page}");
                store.verify_audit().unwrap();
            }
        }
    }
    assert!(pages > 15 && told * 2 > pages, "{told} of {pages}");
}

#[test]
fn a_backup_taken_while_it_runs_is_whole_and_epochs_only_grow() {
    let folder = Folder::new("backup");
    let mut store = folder.open().unwrap();
    key(&mut store, 1, &NewJoinKey::default());
    join(&mut store, 1, 1, NOW).unwrap();
    let first = store.next_epoch(NOW, 0).unwrap();
    let copy = folder.0.join("copy.db");
    store.backup(&copy).unwrap();
    assert!(store.backup(&copy).is_err(), "nothing is overwritten");
    let second = store.next_epoch(NOW, 0).unwrap();
    assert_eq!((first, second), (NOW, NOW + 1));
    let copy = Ground { place: Place::File(copy), database: None };
    let mut restored = copy.open().unwrap();
    assert_eq!(restored.nodes().unwrap(), store.nodes().unwrap());
    assert!(restored.next_epoch(NOW + 60, 0).unwrap() > second, "CO-17: a copy is later as well");
    assert!(restored.next_epoch(0, 0).unwrap() > NOW + 60, "whatever the clock says");
    let seen = NOW + 1_000_000;
    assert_eq!(restored.next_epoch(NOW, seen).unwrap(), seen + 1, "and what nodes have seen");
}

#[test]
fn routes_are_told_when_offered_and_approved_and_never_overlap_the_network() {
    on_both("routes", |ground| {
        let mut store = ground.open().unwrap();
        key(&mut store, 1, &NewJoinKey::default());
        let id = join(&mut store, 1, 1, NOW).unwrap().node.id;
        let (a, b): (Prefix, Prefix) =
            ("10.0.0.0/8".parse().unwrap(), "0.0.0.0/0".parse().unwrap());
        let host = HostInfo { routes: vec![a], ..HostInfo::default() };
        assert_eq!(store.report(id, &host, NOW).unwrap().routes(), []);
        assert_eq!(store.approve_routes(id, &[a, b], "x", NOW).unwrap().routes(), [a]);
        for inside in ["100.64.0.0/10", "100.70.0.0/16", "100.0.0.0/8"] {
            let why = store.approve_routes(id, &[inside.parse().unwrap()], "x", NOW);
            assert!(matches!(why, Err(StoreError::Invalid(_))), "{inside}");
        }
        assert_eq!(store.node(id).unwrap().approved_routes.len(), 2, "nothing was changed");
    });
}

#[test]
fn a_place_among_sites_is_kept_and_too_long_a_one_is_refused() {
    on_both("ways", |ground| {
        let mut store = ground.open().unwrap();
        key(&mut store, 1, &NewJoinKey::default());
        let id = join(&mut store, 1, 1, NOW).unwrap().node.id;
        let word: control::Through = "10.0.0.0/8=hub".parse().unwrap();
        let ways = control::Ways { passes_on: true, through: vec![word.clone()] };
        assert_eq!(store.set_ways(id, &ways, "x", NOW).unwrap().ways, ways);
        let through = vec![word; control::limits::WAYS_MAX + 1];
        let long = store.set_ways(id, &control::Ways { passes_on: true, through }, "x", NOW);
        assert!(matches!(long, Err(StoreError::Invalid(_))));
        drop(store);
        let mut store = ground.open().unwrap();
        assert_eq!(store.node(id).unwrap().ways, ways, "it is in the books");
        let none = control::Ways::default();
        assert_eq!(store.set_ways(id, &none, "x", NOW).unwrap().ways, none);
    });
}

#[test]
fn lc_02_a_full_disk_changes_nothing_and_is_recovered_from() {
    let folder = Folder::new("full");
    let mut store = folder.open().unwrap();
    key(&mut store, 1, &NewJoinKey { reusable: true, ..NewJoinKey::default() });
    // The database's own bound makes it say what a full disk makes it say.
    let pages: u32 = store.db.value("PRAGMA page_count", &[]).unwrap();
    let bound = |store: &Store, pages: u32| {
        let db = &store.db.file().unwrap().0;
        db.pragma_update(None, "max_page_count", pages).unwrap();
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
