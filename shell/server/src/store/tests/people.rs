//! Users, their passwords and their sessions.

use super::*;
use crate::roles::Role;
use crate::store::sessions::IDLE_S;

const DAY_S: u64 = 86_400;

#[test]
fn wb_04_a_session_ends_by_rest_and_by_age() {
    on_both("sessions", |ground| {
        let mut store = ground.open().unwrap();
        let user = store.add_user(&NewUser::member("anna"), None, "local:0", NOW).unwrap().id;
        let begun = store.begin_session(user, [1; 16], "password", NOW).unwrap();
        assert_eq!(begun.expires, NOW + IDLE_S);
        let is_good = |store: &Store, at: u64| store.session(&[1; 16], at).unwrap().is_some();
        assert!(store.session(&[2; 16], NOW).unwrap().is_none());
        assert!(is_good(&store, NOW + 30), "used within a minute, which is not written");
        assert!(is_good(&store, NOW + IDLE_S - 1));
        assert!(!is_good(&store, NOW + 2 * IDLE_S), "nobody used it for so long");
        // Who uses it all the time has it for a week.
        let mut at = NOW + IDLE_S;
        while at < NOW + 7 * DAY_S {
            assert!(is_good(&store, at));
            at += IDLE_S / 2;
        }
        assert!(!is_good(&store, NOW + 7 * DAY_S));
        // The next sign-in tidies up, and one user has so many.
        for number in 0..40 {
            let now = NOW + 8 * DAY_S + u64::from(number);
            store.begin_session(user, [number + 10; 16], "password", now).unwrap();
        }
        let sql = "SELECT count(*) FROM sessions";
        assert_eq!(store.db.value::<u64>(sql, &[]).unwrap(), 32);
        let late = NOW + 8 * DAY_S + 40;
        assert!(store.session(&[10; 16], late).unwrap().is_none(), "the oldest went");
        assert!(store.session(&[49; 16], late).unwrap().is_some());
        assert_eq!(store.end_sessions_of(user, "local:0", late).unwrap(), 32);
        store.remove_user(user, None, "local:0", late).unwrap();
        store.verify_audit().unwrap();
    });
}

/// What is written down of this user's sessions, the latest first.
fn audited(store: &Store, what: &str) -> u64 {
    let sql = "SELECT count(*) FROM audit WHERE action = $1";
    store.db.value::<u64>(sql, values![what]).unwrap()
}

#[test]
fn sc_05_a_session_that_is_ended_is_written_down_once_and_others_go_on() {
    on_both("session-end", |ground| {
        let mut store = ground.open().unwrap();
        let user = store.add_user(&NewUser::member("anna"), None, "local:0", NOW).unwrap().id;
        for number in [1, 2] {
            store.begin_session(user, [number; 16], "password", NOW).unwrap();
        }
        for _ in 0..2 {
            store.end_session(&[1; 16], "user:1", NOW).unwrap();
            assert_eq!(audited(&store, "session.end"), 1, "there was one to end");
        }
        assert!(store.session(&[1; 16], NOW).unwrap().is_none());
        assert!(store.session(&[2; 16], NOW).unwrap().is_some());
    });
}

#[test]
fn sc_05_what_a_provider_says_again_is_no_news_and_what_differs_is() {
    on_both("news", |ground| {
        let mut store = ground.open().unwrap();
        let person = Person {
            subject: "1".to_owned(),
            name: "anna".to_owned(),
            email: Some("a@x.example".to_owned()),
            groups: vec!["one".to_owned()],
            role: Some(Role::Operator),
        };
        let anna = store.know("https://i", &person, None, NOW).unwrap();
        assert_eq!((anna.name.as_str(), anna.role()), ("anna", Role::Operator));
        let mut is_news = |person: &Person| store.know_again(anna.id, person, None, NOW).unwrap();
        assert!(!is_news(&person));
        let mut other = person.clone();
        other.groups.clear();
        assert!(is_news(&other) && !is_news(&other));
        other.email = None;
        assert!(is_news(&other) && !is_news(&other));
        other.role = Some(Role::Member);
        assert!(is_news(&other) && !is_news(&other));
        other.role = None;
        assert!(!is_news(&other), "it says nothing of roles");
        let groups = audited(&store, "user.groups");
        assert_eq!(groups, 2, "at the first sign-in, and once");
        // Whoever is called alike is somebody else.
        let again = Person { subject: "2".to_owned(), ..person.clone() };
        assert_eq!(store.know("https://i", &again, None, NOW).unwrap().name, "anna-2");
        let third = Person { subject: "3".to_owned(), ..person };
        assert_eq!(store.know("https://i", &third, None, NOW).unwrap().name, "anna-3");
    });
}

#[test]
fn sc_05_a_provider_does_not_take_the_last_owner_its_role() {
    on_both("last-owner", |ground| {
        let mut store = ground.open().unwrap();
        let mut person = Person {
            subject: "1".to_owned(),
            name: "anna".to_owned(),
            email: None,
            groups: Vec::new(),
            role: Some(Role::Owner),
        };
        let anna = store.know("https://i", &person, None, NOW).unwrap();
        person.role = Some(Role::Member);
        assert!(!store.know_again(anna.id, &person, None, NOW).unwrap());
        assert_eq!(store.user(anna.id).unwrap().role(), Role::Owner);
        let new = NewUser { name: "ben", role: Role::Owner, password: None };
        store.add_user(&new, None, "local:0", NOW).unwrap();
        assert!(store.know_again(anna.id, &person, None, NOW).unwrap());
        assert_eq!(store.user(anna.id).unwrap().role(), Role::Member);
    });
}

#[test]
fn co_09_somebody_is_left_who_may_do_everything() {
    on_both("owners", |ground| {
        let mut store = ground.open().unwrap();
        let mut add = |name: &str, role: Role| {
            let new = NewUser { name, role, password: None };
            store.add_user(&new, None, "local:0", NOW).unwrap().id
        };
        let (first, second) = (add("one", Role::Owner), add("two", Role::Member));
        let why = store.set_role(first, Role::Admin, None, "local:0", NOW).unwrap_err();
        assert!(why.to_string().contains("last owner"), "{why}");
        assert!(store.remove_user(first, None, "local:0", NOW).is_err());
        store.set_role(second, Role::Owner, None, "local:0", NOW).unwrap();
        store.set_role(first, Role::Member, None, "local:0", NOW).unwrap();
        assert_eq!(store.user(first).unwrap().role(), Role::Member);
        assert!(store.claim_of("ONE").unwrap().is_some() && store.claim_of("x").unwrap().is_none());
    });
}
