//! What PostgreSQL has of its own: sessions that are lost, servers that are two, and tables that
//! are somebody else's.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::cluster::{Cluster, SHARED};
use super::*;

fn place(url: &str, may_make: bool) -> Place {
    Place::Postgres { url: PostgresUrl::parse(url).unwrap(), may_make }
}

fn open(url: &str) -> Stored<Store> {
    Store::open(&place(url, true), &[7; 32], None, &mut SystemRandom)
}

/// Tables, columns and what binds them, as the database itself knows them.
const SCHEMA: &str = "
    SELECT line FROM (
      SELECT c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
          || CASE WHEN o.collname = 'C' THEN ' \"C\"' ELSE '' END
          || CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END
          || CASE a.attidentity WHEN 'a' THEN ' IDENTITY' ELSE '' END AS line
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        LEFT JOIN pg_collation o ON o.oid = a.attcollation
       WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0
      UNION ALL
      SELECT c.relname || ' ' || pg_get_constraintdef(p.oid)
        FROM pg_constraint p JOIN pg_class c ON c.oid = p.conrelid
       WHERE c.relnamespace = 'public'::regnamespace AND p.contype IN ('c', 'f', 'p', 'u')
    ) lines ORDER BY line COLLATE \"C\"";

#[test]
fn the_schema_of_postgresql_is_the_committed_one() {
    let url = SHARED.database("schema");
    drop(open(&url).unwrap());
    let made = SHARED.psql("schema", SCHEMA).unwrap();
    let known = include_str!("schema.postgres.txt");
    assert_eq!(made, known, "write what migrations make into schema.postgres.txt:\n{made}");
    drop(open(&url).unwrap());
    assert_eq!(SHARED.psql("schema", SCHEMA).unwrap(), known, "a second start makes nothing");
}

#[test]
fn lc_01_every_commit_is_on_the_disk_whatever_the_databases_default_is() {
    let url = SHARED.database("commits");
    SHARED.psql("commits", "ALTER DATABASE commits SET synchronous_commit = off").unwrap();
    let store = open(&url).unwrap();
    let sql = "SELECT current_setting('synchronous_commit')";
    assert_eq!(store.db.value::<String>(sql, &[]).unwrap(), "on");
}

#[test]
fn lc_03_what_is_not_ours_is_told_and_left_alone() {
    let url = SHARED.database("foreign_tables");
    let told = |why: StoreError, part: &str| {
        let why = why.to_string();
        assert!(why.contains(part) && why.contains("database"), "{why}");
    };
    let missing = Store::open(&place(&url, false), &[7; 32], None, &mut SystemRandom);
    told(missing.err().unwrap(), "has the keys of one");
    assert_eq!(SHARED.psql("foreign_tables", "SELECT to_regclass('nodes')").unwrap().trim(), "");
    for sql in
        ["CREATE TABLE settings (a INT)", "ALTER TABLE settings ADD name TEXT, ADD value TEXT"]
    {
        SHARED.psql("foreign_tables", sql).unwrap();
        told(open(&url).err().unwrap(), "not Warren's");
    }
    SHARED.psql("foreign_tables", "INSERT INTO settings VALUES (1, 'schema', '99')").unwrap();
    told(open(&url).err().unwrap(), "later version");
    SHARED.psql("postgres", "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0").unwrap();
    told(open(&SHARED.url("latin")).err().unwrap(), "UTF8");
    told(open(&SHARED.url("nowhere")).err().unwrap(), "does not exist");
}

/// Ends all sessions with a database, and waits until they are gone.
fn end_sessions(database: &str) {
    let end = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{database}'"
    );
    let mut ended = 0;
    loop {
        match SHARED.psql("postgres", &end).unwrap().trim() {
            "0" if ended > 0 => return,
            "0" => panic!("there was no session"),
            _ => ended += 1,
        }
    }
}

#[test]
fn a_session_that_was_lost_while_it_rested_is_not_missed() {
    let url = SHARED.database("rested");
    let mut store = open(&url).unwrap();
    key(&mut store, 1, &NewJoinKey { reusable: true, ..NewJoinKey::default() });
    for machine in 0..3 {
        assert!(!store.look().unwrap());
        end_sessions("rested");
        assert!(join(&mut store, machine, 1, NOW).unwrap().is_new);
        assert!(store.look().unwrap(), "CO-16: others may have written; it is to be read again");
        store.is_read_again();
    }
    end_sessions("rested");
    assert_eq!(store.nodes().unwrap().len(), 3);
    store.verify_audit().unwrap();
}

#[test]
fn co_16_one_server_at_a_time_and_who_was_replaced_writes_nothing() {
    let url = SHARED.database("claims");
    let (mut first, second) = (open(&url).unwrap(), open(&url).unwrap());
    first.claim().unwrap();
    let begin = Instant::now();
    let why = second.claim().err().unwrap().to_string();
    assert!(why.contains("another server") && begin.elapsed() > Duration::from_secs(2), "{why}");
    // The first one's session is lost, and the second is there when it comes back.
    SHARED.psql(
        "postgres",
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted
         AND database = (SELECT oid FROM pg_database WHERE datname = 'claims')",
    );
    second.claim().unwrap();
    let late = first.set_policy("{}", None, "late", NOW);
    assert!(matches!(&late, Err(StoreError::Conflict(why)) if why.contains("another server")));
    assert_eq!(second.policy().unwrap(), None);
    drop(second);
    first.set_policy("{}", None, "again", NOW).unwrap();
    assert!(first.look().unwrap(), "and what the other wrote is to be read");
}

#[test]
fn lc_01_kill_9_of_postgresql_under_load_loses_nothing_that_was_acknowledged() {
    let mut cluster = Cluster::new("on");
    let url = cluster.database("killed");
    let mut store = open(&url).unwrap();
    key(&mut store, 1, &NewJoinKey { reusable: true, ..NewJoinKey::default() });
    let store = Arc::new(Mutex::new(store));
    let (is_over, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (load, over, counted) = (Arc::clone(&store), Arc::clone(&is_over), Arc::clone(&count));
    let load = std::thread::spawn(move || {
        let (mut acknowledged, mut failures) = (Vec::new(), 0);
        for machine in 0.. {
            if over.load(Ordering::Relaxed) {
                return (acknowledged, failures);
            }
            match join(&mut load.lock().unwrap(), machine, 1, NOW) {
                Ok(registered) => {
                    acknowledged.push(registered.node);
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    let why = error.to_string();
                    assert!(matches!(error, StoreError::Unavailable(_)), "{why}");
                    assert!(why.contains("PostgreSQL database \"killed\""), "{why}");
                    failures += 1;
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        }
        unreachable!("it is over before")
    });
    let more = |than: usize| {
        let begin = Instant::now();
        while count.load(Ordering::Relaxed) < than {
            assert!(begin.elapsed() < Duration::from_secs(60), "it does not come back");
            std::thread::sleep(Duration::from_millis(3));
        }
    };
    for round in 0..4_usize {
        more(count.load(Ordering::Relaxed) + 10 + round * 7);
        cluster.kill();
        cluster.start();
    }
    more(count.load(Ordering::Relaxed) + 10);
    is_over.store(true, Ordering::Relaxed);
    let (acknowledged, failures) = load.join().unwrap();
    let mut store = store.lock().unwrap();
    let there = store.nodes().unwrap();
    for node in &acknowledged {
        assert!(there.contains(node), "{node:?} was lost");
    }
    println!("{} acknowledged, {failures} refused, {} there", acknowledged.len(), there.len());
    assert!(failures > 0);
    assert!(there.len() <= acknowledged.len() + 4, "at most one a kill was made in the dark");
    store.verify_audit().unwrap();
    store.set_policy("{}", None, "local:0", NOW).unwrap();
}

#[test]
fn co_12_a_session_over_tls_is_verified_where_that_is_asked_for() {
    let made = || {
        let pair = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        (params.self_signed(&pair).unwrap().pem(), pair.serialize_pem())
    };
    let folder = Folder::new("tls");
    let ((certificate, key), (other, _)) = (made(), made());
    let mut cluster = Cluster::new("off");
    cluster.database("tls");
    let port = cluster.serve_tls(&certificate, &key);
    let write = |name: &str, text: &str| {
        let path = folder.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (good, bad) = (write("good.pem", &certificate), write("bad.pem", &other));
    let empty = write("empty.pem", "");
    let open =
        |host: &str, query: &str| open(&format!("postgres://warren@{host}:{port}/tls{query}"));
    for query in ["?sslmode=require", "", &format!("?sslmode=verify-full&sslrootcert={good}")] {
        let store = open("localhost", query).unwrap();
        let sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        assert!(store.db.value::<bool>(sql, &[]).unwrap(), "{query}: it is TLS");
    }
    let plain = open("localhost", "?sslmode=disable").unwrap();
    let sql = "SELECT count(*) FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND ssl";
    assert_eq!(plain.db.value::<u64>(sql, &[]).unwrap(), 0);
    for (host, roots, why) in [
        ("localhost", &bad, "certificate"),
        ("127.0.0.1", &good, "certificate"),
        ("localhost", &empty, "sslrootcert="),
        ("localhost", &"/nowhere".to_owned(), "sslrootcert=/nowhere"),
    ] {
        let told = open(host, &format!("?sslrootcert={roots}")).err().unwrap().to_string();
        assert!(told.contains(why), "{told}");
    }
}
