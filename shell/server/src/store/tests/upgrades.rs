//! From one version of the schema to the next and back (threat LC-17): from the first to the one
//! there is, and to one that is made up. That adds a table and a column, and another fails behind
//! its first statement.

use super::postgres::Postgres;
use super::sqlite::Sqlite;
use super::*;
use crate::resolvers::{Record, Resolvers, Zone};

const LATER: &str = "CREATE TABLE later (id BIGINT NOT NULL PRIMARY KEY);
    ALTER TABLE nodes ADD COLUMN colour TEXT NOT NULL DEFAULT 'grey';";
const FAILS: &str = "CREATE TABLE later (id BIGINT NOT NULL PRIMARY KEY);
    ALTER TABLE nodes ADD COLUMN colour TEXT NOT NULL DEFAULT 'grey';
    INSERT INTO nowhere VALUES (1);";

/// What the program of the next version does at its start, and one whose migration fails.
fn next(ground: &Ground, migration: &str) -> Stored<Db> {
    match &ground.place {
        Place::File(path) => {
            let all = [&sqlite::MIGRATIONS[..], &[migration]].concat();
            Sqlite::open_with(path, &all).map(Db::sqlite)
        }
        Place::Postgres { url, .. } => {
            let all = [&postgres::MIGRATIONS[..], &[migration]].concat();
            Postgres::open_with(url, true, &all).map(Db::postgres)
        }
    }
}

fn names(db: &Db) -> Vec<String> {
    let rows = db.rows("SELECT name FROM nodes ORDER BY name", &[]).unwrap();
    rows.iter().map(|row| row.read(0).unwrap()).collect()
}

fn is_there(db: &Db, sql: &'static str) -> bool {
    db.rows(sql, &[]).is_ok()
}

#[test]
fn lc_17_an_upgrade_is_whole_or_not_at_all_and_an_older_program_leaves_it_alone() {
    on_both("upgrades", |ground| {
        let mut store = ground.open().unwrap();
        key(&mut store, 1, &NewJoinKey { reusable: true, ..NewJoinKey::default() });
        for machine in 0..3 {
            join(&mut store, machine, 1, NOW).unwrap();
        }
        let before = store.nodes().unwrap();
        drop(store);
        // It fails, twice, and nothing of it is there: the program of before goes on.
        for _ in 0..2 {
            let why = next(ground, FAILS).err().unwrap().to_string();
            assert!(why.contains("nowhere"), "{why}");
            let mut store = ground.open().unwrap();
            assert_eq!(store.nodes().unwrap().len(), before.len());
            assert!(!is_there(&store.db, "SELECT id FROM later"));
            assert!(!is_there(&store.db, "SELECT colour FROM nodes"));
            store.verify_audit().unwrap();
            assert!(!join(&mut store, 0, 1, NOW).unwrap().is_new, "and it writes");
        }
        // It succeeds: everything is there, with what is new.
        let db = next(ground, LATER).unwrap();
        assert_eq!(names(&db), ["dev", "dev-1", "dev-2"]);
        assert!(is_there(&db, "SELECT id FROM later"));
        let sql = "SELECT count(*) FROM nodes WHERE colour = 'grey'";
        assert_eq!(db.value::<u64>(sql, &[]).unwrap(), 3);
        drop(db);
        // A second start has nothing to do, and the program of before is told.
        drop(next(ground, LATER).unwrap());
        let why = ground.open().err().unwrap().to_string();
        assert!(why.contains("later version") && why.contains("update this program"), "{why}");
        assert_eq!(names(&next(ground, LATER).unwrap()).len(), 3, "it was left alone");
    });
}

#[test]
fn lc_17_the_copy_of_before_is_the_way_back() {
    let folder = Folder::new("way-back");
    let ground = folder.ground();
    let mut store = ground.open().unwrap();
    key(&mut store, 1, &NewJoinKey::default());
    join(&mut store, 1, 1, NOW).unwrap();
    let before = store.nodes().unwrap();
    drop(store);
    drop(next(&ground, LATER).unwrap());
    let place =
        Place::File(folder.0.join(format!("warren.before-{}", sqlite::MIGRATIONS.len() + 1)));
    let copy = Ground { place, database: None };
    let store = copy.open().unwrap();
    assert_eq!(store.nodes().unwrap(), before);
    store.verify_audit().unwrap();
}

#[test]
fn lc_17_killed_in_the_middle_of_an_upgrade_it_is_what_it_was() {
    let folder = Folder::new("upgrade-cut");
    let mut store = folder.open().unwrap();
    key(&mut store, 1, &NewJoinKey::default());
    join(&mut store, 1, 1, NOW).unwrap();
    drop(store);
    let path = folder.0.join("warren.db");
    let db = rusqlite::Connection::open(&path).unwrap();
    db.pragma_update(None, "cache_spill", 1).unwrap();
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    db.execute_batch(LATER).unwrap();
    db.pragma_update(None, "user_version", sqlite::MIGRATIONS.len() + 1).unwrap();
    // What is on the disk now is what a kill leaves.
    let cut = Folder::new("upgrade-cut-copy");
    for end in ["", "-wal"] {
        let name = format!("warren.db{end}");
        std::fs::copy(folder.0.join(&name), cut.0.join(&name)).unwrap();
    }
    let store = cut.open().unwrap();
    assert_eq!(store.nodes().unwrap().len(), 1);
    assert!(!is_there(&store.db, "SELECT id FROM later"));
    drop(store);
    let db = next(&cut.ground(), LATER).unwrap();
    assert!(is_there(&db, "SELECT id FROM later"));
}

/// What a server of the first schema kept is there after the upgrade, and what is new works.
#[test]
fn lc_17_a_database_of_the_first_schema_is_brought_up_to_date() {
    on_both("first-schema", |ground| {
        match &ground.place {
            Place::File(path) => drop(Sqlite::open_with(path, &sqlite::MIGRATIONS[..1]).unwrap()),
            Place::Postgres { url, .. } => {
                drop(Postgres::open_with(url, true, &postgres::MIGRATIONS[..1]).unwrap());
            }
        }
        let mut store = ground.open().unwrap();
        assert_eq!(store.resolvers().unwrap(), Resolvers::default());
        let new = Resolvers {
            upstreams: ["10.0.0.2", "10.0.0.1"].map(|text| text.parse().unwrap()).to_vec(),
            zones: ["a.example", "b.example"]
                .map(|zone| Zone {
                    zone: zone.to_owned(),
                    resolvers: ["fd00::1", "10.0.0.3"].map(|text| text.parse().unwrap()).to_vec(),
                })
                .to_vec(),
            records: vec![Record {
                name: "nas.warren.internal".to_owned(),
                addresses: vec!["10.7.0.10".parse().unwrap()],
            }],
        };
        assert!(store.set_resolvers(&new, "local:0", NOW).unwrap());
        assert!(!store.set_resolvers(&new, "local:0", NOW).unwrap(), "nothing changed");
        assert_eq!(store.audit(None, 10).unwrap().len(), 1);
        drop(store);
        let mut store = ground.open().unwrap();
        assert_eq!(store.resolvers().unwrap(), new, "in the same order");
        assert!(store.set_resolvers(&Resolvers::default(), "local:0", NOW).unwrap());
        assert_eq!(store.resolvers().unwrap(), Resolvers::default());
        store.verify_audit().unwrap();
    });
}
