//! Rights come from the key that is used now, and what a token made ends with it.

use control::Relay;

use super::*;

/// A member of this name.
fn add(store: &mut Store, name: &str) -> Stored<User> {
    store.add_user(&NewUser::member(name), None, "local:0", NOW)
}

/// The machine with this number joins with the key of that one, in a network where all wait.
fn join_waiting(store: &mut Store, machine: u64, key: u8, now: u64) -> Stored<Registered> {
    join_under(store, machine, key, now, Enrolment { needs_approval: true, lifetime_s: None })
}

#[test]
fn co_03_a_machine_that_comes_back_has_what_its_new_key_gives_and_nothing_of_before() {
    on_both("rights", |ground| {
        let mut store = ground.open().unwrap();
        add(&mut store, "anna").unwrap();
        let tags = |tag: &str| vec![format!("tag:{tag}")];
        let user = Some("anna".to_owned());
        let admin = NewJoinKey { tags: tags("admin"), user, ..NewJoinKey::default() };
        key(&mut store, 1, &admin);
        let robot = NewJoinKey { reusable: true, tags: tags("robot"), ..NewJoinKey::default() };
        let robot = NewJoinKey { ephemeral: true, ..robot };
        key(&mut store, 2, &robot);
        let id = join_waiting(&mut store, 7, 1, NOW).unwrap().node.id;
        store.approve(id, "local:0", NOW).unwrap();
        let ways = control::Ways { passes_on: true, ..control::Ways::default() };
        store.set_ways(id, &ways, "local:0", NOW).unwrap();
        let route = ["10.0.0.0/8".parse().unwrap()];
        let before = store.approve_routes(id, &route, "local:0", NOW).unwrap();
        assert_eq!((before.user.as_deref(), before.approved), (Some("anna"), true));

        // While it is a member its own key lets it in, and it stays what it is.
        let again = join_waiting(&mut store, 7, 2, NOW).unwrap();
        assert_eq!((again.is_new, again.node), (false, before));
        store.expire(id, "local:0", NOW).unwrap();
        let back = join_waiting(&mut store, 7, 2, NOW + 1).unwrap();
        assert!(back.is_new);
        let node = back.node;
        assert_eq!((node.id, node.user, node.tags), (id, None, tags("robot")));
        assert_eq!(
            (node.approved, node.ephemeral),
            (false, true),
            "as the key and the network say"
        );
        assert_eq!(node.approved_routes, [], "they were Anna's administrator's");
        assert!(node.ways.is_empty(), "and so was its place");
        let log = &store.audit(None, 1).unwrap()[0];
        assert_eq!(
            (log.action.as_str(), &log.detail["before"]["user"]),
            ("node.enrol", &"anna".into())
        );
        assert_eq!(log.detail["after"]["tags"], serde_json::json!(["tag:robot"]));

        // With a key that gives the same its routes stay; whether it waits is asked anew.
        store.approve(id, "local:0", NOW).unwrap();
        store.approve_routes(id, &route, "local:0", NOW).unwrap();
        store.expire(id, "local:0", NOW + 2).unwrap();
        let node = join_waiting(&mut store, 7, 2, NOW + 3).unwrap().node;
        assert_eq!((node.approved_routes.len(), node.approved), (1, false));
    });
}

#[test]
fn co_03_a_key_that_changes_without_a_word_is_in_the_log_and_the_same_again_is_not() {
    let folder = Folder::new("refresh");
    let mut store = folder.open().unwrap();
    key(&mut store, 1, &NewJoinKey::default());
    let first = join(&mut store, 7, 1, NOW).unwrap().node;
    let count = |store: &Store| store.audit(None, 100).unwrap().len();
    let before = count(&store);
    join(&mut store, 7, 1, NOW).unwrap();
    assert_eq!(count(&store), before, "nothing is new");
    let host = first.host.clone();
    let joining = Joining {
        machine_key: first.machine_key,
        node_key: PublicKey([9; 32]),
        lookup: [1; 8],
        secret: &[1; 16],
        host: &host,
    };
    store.enrol(&joining, Enrolment::default(), NOW).unwrap();
    let log = &store.audit(None, 1).unwrap()[0];
    assert_eq!((log.action.as_str(), count(&store)), ("node.rotate", before + 1));
    assert_eq!(log.detail["before"], first.node_key.to_string());
}

#[test]
fn co_19_no_node_is_called_by_a_number() {
    let folder = Folder::new("digits");
    let mut store = folder.open().unwrap();
    key(&mut store, 1, &NewJoinKey { reusable: true, ..NewJoinKey::default() });
    let host = HostInfo { hostname: "12".to_owned(), ..HostInfo::default() };
    let joining = Joining {
        machine_key: PublicKey(bytes(1)),
        node_key: PublicKey(bytes(2)),
        lookup: [1; 8],
        secret: &[1; 16],
        host: &host,
    };
    let node = store.enrol(&joining, Enrolment::default(), NOW).unwrap().node;
    assert_eq!(node.name, "node-12");
    let why = store.rename(node.id, "12", "local:0", NOW).unwrap_err().to_string();
    assert!(why.contains("number"), "{why}");
    assert_eq!(store.rename(node.id, "web-12", "local:0", NOW).unwrap().name, "web-12");
}

/// A token of this number, which made another or was made by an administrator.
fn token(store: &mut Store, number: u8, maker: Option<u64>, lifetime_s: Option<u64>) -> Made {
    let scopes = vec!["tokens:write".to_owned()];
    let new = NewApiToken { scopes, lifetime_s, maker, giver: None };
    let (id, secret) = (SecretId([number; 8]), Secret([number; 16]));
    store.add_api_token(&new, id, &secret, "token:x", NOW).unwrap()
}

#[test]
fn wb_08_what_a_token_makes_ends_no_later_and_is_taken_back_with_it() {
    on_both("makers", |ground| {
        let mut store = ground.open().unwrap();
        let first = token(&mut store, 1, None, Some(60));
        assert_eq!(first.expires, Some(NOW + 60));
        let child = token(&mut store, 2, Some(first.id), None);
        assert_eq!(child.expires, Some(NOW + 60), "never means until its maker ends");
        assert_eq!(token(&mut store, 3, Some(child.id), Some(9000)).expires, Some(NOW + 60));
        assert_eq!(token(&mut store, 4, Some(first.id), Some(5)).expires, Some(NOW + 5));
        let other = token(&mut store, 5, None, None);
        assert_eq!(other.expires, None);
        let wanted = NewJoinKey { reusable: true, maker: Some(child.id), ..NewJoinKey::default() };
        let (id, secret) = (SecretId([8; 8]), Secret([8; 16]));
        let key = store.add_join_key(&wanted, id, &secret, "token:x", NOW).unwrap();
        assert_eq!(key.expires, Some(NOW + 60));
        assert!(join(&mut store, 1, 8, NOW).is_ok());

        let is_good = |store: &Store, n: u8| store.bearer([n; 8], &[n; 16], NOW).unwrap().is_some();
        assert!((1..=5).all(|n| is_good(&store, n)));
        assert!(!store.revoke_api_token(first.id, None, "local:0", NOW).unwrap());
        assert_eq!([1, 2, 3, 4, 5].map(|n| is_good(&store, n)), [false, false, false, false, true]);
        assert_eq!(refused(join(&mut store, 2, 8, NOW)), Refused::Revoked);
        assert_eq!(store.nodes().unwrap().len(), 1, "who was let in stays");
        let log = &store.audit(None, 1).unwrap()[0];
        assert_eq!(log.detail["tokens"].as_array().unwrap().len(), 3, "{log:?}");
        assert_eq!(log.detail["join_keys"], 1);

        // A maker that has ended meanwhile makes nothing.
        for maker in [first.id, token(&mut store, 6, None, Some(0)).id] {
            let new = NewApiToken { maker: Some(maker), ..NewApiToken::default() };
            let why = store.add_api_token(&new, SecretId([9; 8]), &secret, "x", NOW).unwrap_err();
            assert!(matches!(why, StoreError::Conflict(_)), "{why}");
        }
        // Nobody takes back what may do more than they may.
        let own = ["nodes:read".to_owned()];
        let why = store.revoke_api_token(other.id, Some(&own), "x", NOW).unwrap_err();
        assert!(matches!(why, StoreError::Denied(_)), "{why}");
        assert!(is_good(&store, 5));
        store.verify_audit().unwrap();
    });
}

fn relay(number: u8, url: &str) -> Relay {
    let key = PublicKey([number; 32]);
    Relay { id: 0, url: url.parse().unwrap(), key, stun: Vec::new(), quic: false, icmp: false }
}

#[test]
fn rl_17_an_entry_is_changed_by_who_holds_the_relays_key_and_ends_with_its_token() {
    on_both("entries", |ground| {
        let mut store = ground.open().unwrap();
        let (one, two) = (token(&mut store, 1, None, None), token(&mut store, 2, None, None));
        let (one, two) = (Some(one.id), Some(two.id));
        let put = |store: &mut Store, n, url: &str, token, is_proven| {
            store.put_relay(relay(n, url), token, is_proven, "token:x", NOW)
        };
        assert_eq!(put(&mut store, 1, "https://a", one, true).unwrap().0.id, 1);
        // Another's token, or the same one, without the key.
        for token in [one, two] {
            let why = put(&mut store, 1, "https://evil", token, false).unwrap_err();
            assert!(matches!(why, StoreError::Denied(_)), "{why}");
            assert!(put(&mut store, 2, "https://evil", token, false).is_err(), "nor a new one");
            let same = put(&mut store, 1, "https://a", token, false).unwrap();
            assert!(!same.1, "what is said again as it is changes nothing");
        }
        assert_eq!(store.relays().unwrap()[0].url.to_string(), "https://a");
        // One token does not fill the map.
        let many = (10..40).filter(|n| put(&mut store, *n, "https://b", two, true).is_ok()).count();
        assert_eq!(many, 8);
        // Its relays end with a token; one that its key entered anew with another stays.
        assert!(!put(&mut store, 1, "https://a", two, true).is_ok_and(|(_, is_news)| is_news));
        assert!(store.revoke_api_token(two.unwrap(), None, "local:0", NOW).unwrap());
        let left: Vec<u32> = store.relays().unwrap().iter().map(|relay| relay.id).collect();
        assert_eq!(left, [1], "two has eight already, so the first is one's still");
        assert!(store.revoke_api_token(one.unwrap(), None, "local:0", NOW).unwrap());
        assert_eq!(store.relays().unwrap(), []);
        store.verify_audit().unwrap();
    });
}

#[test]
fn co_03_a_key_that_ended_by_its_time_is_renewed_for_a_while_and_one_that_was_ended_is_not() {
    on_both("renewal", |ground| {
        let mut store = ground.open().unwrap();
        key(&mut store, 1, &NewJoinKey { reusable: true, ..NewJoinKey::default() });
        let host = HostInfo::default();
        let life_s = Some(100);
        let joining = Joining {
            machine_key: PublicKey(bytes(1)),
            node_key: PublicKey(bytes(2)),
            lookup: [1; 8],
            secret: &[1; 16],
            host: &host,
        };
        let terms = Enrolment { needs_approval: false, lifetime_s: life_s };
        let node = store.enrol(&joining, terms, NOW).unwrap().node;
        assert_eq!((node.expires, node.life_s()), (Some(NOW + 100), life_s));
        let rotate = |store: &mut Store, n: u64, now| {
            store.rotate(node.id, PublicKey(bytes(100 + n)), life_s, now)
        };
        // At half of its life, and then each time at the last moment that it is borne.
        let node = rotate(&mut store, 1, NOW + 50).unwrap();
        assert_eq!((node.begun, node.expires), (Some(NOW + 50), Some(NOW + 150)));
        let late = NOW + 249;
        assert!(node.is_expired(late) && node.is_renewable(late));
        assert_eq!(rotate(&mut store, 2, late).unwrap().expires, Some(late + 100));
        let why = rotate(&mut store, 3, late + 200).unwrap_err();
        assert!(matches!(why, StoreError::Expired), "{why}");
        // What an administrator ended is over at once and for good.
        let ended = store.expire(node.id, "local:0", late + 1).unwrap();
        assert!(!ended.is_renewable(late + 1));
        assert!(rotate(&mut store, 4, late + 1).is_err());
        // Weeks later it is no more than a week, however long the life was.
        let terms = Enrolment { lifetime_s: Some(180 * 86_400), ..terms };
        let node = store.enrol(&joining, terms, NOW + 500).unwrap().node;
        let end = node.expires.unwrap();
        assert!(node.is_renewable(end + 7 * 86_400 - 1) && !node.is_renewable(end + 7 * 86_400));
    });
}

#[test]
fn co_07_a_name_waits_for_all_but_its_machine_and_its_join_key() {
    on_both("held-names", |ground| {
        let mut store = ground.open().unwrap();
        let reusable = NewJoinKey { reusable: true, ..NewJoinKey::default() };
        for number in [1, 2] {
            key(&mut store, number, &reusable);
        }
        let first = join(&mut store, 1, 1, NOW).unwrap().node;
        assert_eq!((first.name.as_str(), first.number), ("dev", 1));
        store.remove(first.id, "local:0", NOW).unwrap();
        let thief = join(&mut store, 2, 2, NOW + 1).unwrap().node;
        assert_eq!(
            (thief.name.as_str(), thief.number),
            ("dev-1", 2),
            "another's key, another name"
        );
        let next = join(&mut store, 3, 1, NOW + 2).unwrap().node;
        assert_eq!(
            (next.name.as_str(), next.number),
            ("dev", 3),
            "the same key, as of a container"
        );
        store.remove(next.id, "local:0", NOW + 3).unwrap();
        let back = join(&mut store, 1, 2, NOW + 4).unwrap().node;
        assert_eq!((back.name.as_str(), back.number), ("dev-2", 1), "the machine has its address");
        store.remove(back.id, "local:0", NOW + 5).unwrap();
        let late = join(&mut store, 4, 2, NOW + 8 * 86_400).unwrap().node;
        assert_eq!(late.name, "dev", "after a week it is anybody's");
    });
}

#[test]
fn co_07_a_name_is_free_at_once_where_an_administrator_took_its_node_out() {
    on_both("freed", |ground| {
        let mut store = ground.open().unwrap();
        for number in [1, 2] {
            let reusable = NewJoinKey { reusable: true, ..NewJoinKey::default() };
            key(&mut store, number, &reusable);
        }
        let first = join(&mut store, 1, 1, NOW).unwrap().node;
        store.dismiss(first.id, "local:0", NOW).unwrap();
        let next = join(&mut store, 2, 2, NOW + 1).unwrap().node;
        assert_eq!((next.name.as_str(), next.number), ("dev", 2), "the address waits all the same");
    });
}

#[test]
fn co_07_who_joins_and_leaves_in_a_loop_uses_up_no_range() {
    on_both("loop", |ground| {
        let range: Prefix = "10.9.0.0/24".parse().unwrap();
        let mut store = ground.with(Some(range)).unwrap();
        key(&mut store, 1, &NewJoinKey { reusable: true, ..NewJoinKey::default() });
        let stays = join(&mut store, 1, 1, NOW).unwrap().node;
        let mut numbers = std::collections::BTreeSet::new();
        for machine in 0..600 {
            let node = join(&mut store, 1000 + machine, 1, NOW + machine).unwrap().node;
            assert_ne!(node.number, stays.number);
            numbers.insert(node.number);
            store.remove(node.id, "local:0", NOW + machine).unwrap();
        }
        assert_eq!(numbers.len(), 253, "in turns, each as late as can be");
        let count: u64 = store.db.value("SELECT count(*) FROM released", &[]).unwrap();
        assert!(count <= 253, "{count}");
    });
}

#[test]
fn co_11_a_secret_of_nobodys_is_known_as_such_without_the_books() {
    on_both("secrets-known", |ground| {
        let mut store = ground.open().unwrap();
        let secrets = store.secrets();
        key(&mut store, 1, &NewJoinKey::default());
        token(&mut store, 2, None, None);
        for secrets in [secrets, ground.open().unwrap().secrets()] {
            assert!(secrets.open(&[1; 8], &[1; 16]) && secrets.open(&[2; 8], &[2; 16]));
            assert!(!secrets.open(&[1; 8], &[2; 16]) && !secrets.open(&[3; 8], &[3; 16]));
        }
    });
}

#[test]
fn a_user_with_ended_keys_alone_is_removed_and_else_it_is_told_what_is_in_the_way() {
    on_both("removal", |ground| {
        let mut store = ground.open().unwrap();
        let name = format!("{}@example.com", "a".repeat(242));
        let id = add(&mut store, &name).unwrap().id;
        assert!(add(&mut store, &format!("b{name}")).is_err(), "255 characters");
        let of = |new: NewJoinKey| NewJoinKey { user: Some(name.clone()), ..new };
        let once = key(&mut store, 1, &of(NewJoinKey::default()));
        let why = store.remove_user(id, None, "local:0", NOW).unwrap_err().to_string();
        assert!(why.contains(&format!("({once})")), "{why}");
        let node = join(&mut store, 1, 1, NOW).unwrap().node;
        let why = store.remove_user(id, None, "local:0", NOW).unwrap_err().to_string();
        assert!(why.contains("(dev)"), "{why}");
        store.remove(node.id, "local:0", NOW).unwrap();
        key(&mut store, 2, &of(NewJoinKey { lifetime_s: Some(1), ..NewJoinKey::default() }));
        let taken_back = key(&mut store, 3, &of(NewJoinKey::default()));
        store.revoke_join_key(taken_back, "local:0", NOW).unwrap();
        assert!(store.remove_user(id, None, "local:0", NOW).is_err(), "one still lets a node in");
        store.remove_user(id, None, "local:0", NOW + 1).unwrap();
        assert!(store.join_keys().unwrap().iter().all(|key| key.user.is_none()));
    });
}
