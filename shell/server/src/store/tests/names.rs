//! What a node is called follows what it calls itself, unless somebody else said so.

use super::*;

#[test]
fn a_nodes_name_follows_its_hostname_until_an_administrator_gives_it_one() {
    on_both("names", |ground| {
        let mut store = ground.open().unwrap();
        key(&mut store, 1, &NewJoinKey { reusable: true, ..NewJoinKey::default() });
        let [one, two] = [7, 8].map(|machine| join(&mut store, machine, 1, NOW).unwrap().node);
        assert_eq!((&one.name[..], &two.name[..]), ("dev", "dev-1"));
        let call = |store: &mut Store, id: u64, hostname: &str| {
            let host = HostInfo { hostname: hostname.to_owned(), ..HostInfo::default() };
            store.report(id, &host, NOW + 1).unwrap().name
        };
        assert_eq!(call(&mut store, one.id, "Printer.example"), "printer");
        let log = &store.audit(None, 1).unwrap()[0];
        let actor = format!("node:{}", one.id);
        assert_eq!((&log.action[..], &log.actor[..]), ("node.rename", &actor[..]));
        assert_eq!(log.detail["after"], "printer");
        // What another has it does not get, nor what means something to programs.
        assert_eq!(call(&mut store, two.id, "printer"), "printer-1");
        assert_eq!(call(&mut store, two.id, "localhost"), "localhost-1");
        assert_eq!(call(&mut store, two.id, "12"), "node-12");
        assert_eq!(call(&mut store, one.id, "printer.other"), "printer", "the same label");
        // A name that waits for who had it is not there for a member either (threat CO-07).
        let gone = join(&mut store, 9, 1, NOW).unwrap().node;
        assert_eq!(gone.name, "dev");
        key(&mut store, 2, &NewJoinKey { reusable: true, ..NewJoinKey::default() });
        let other = join(&mut store, 10, 2, NOW).unwrap().node;
        store.remove(gone.id, "node:9", NOW).unwrap();
        assert_eq!(call(&mut store, other.id, "x"), "x");
        assert_eq!(call(&mut store, other.id, "dev"), "dev-1");
        // An administrator's word stays.
        store.rename(one.id, "boss", "local:0", NOW).unwrap();
        assert_eq!(call(&mut store, one.id, "clerk"), "boss");
    });
}
