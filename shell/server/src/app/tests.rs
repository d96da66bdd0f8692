//! What a member's word may do to the epoch of everybody's maps (threat CO-17), and what holds
//! strangers up (threat CO-11).

use std::sync::atomic::AtomicU64;

use control::SigningKey;
use noise::PrivateKey;

use super::*;
use crate::api;
use crate::doorstep::Way;
use crate::network::Shared;
use crate::store::Place;
use crate::store::tests::Folder;

/// When the clock that people set begins.
const BEGIN_S: u64 = 1_800_000_000;
/// A member's number; who it is does not matter here.
const MEMBER: u64 = 7;

/// A server with empty books, and the time since its program began, in seconds, which a test sets.
fn app(test: &str) -> (Folder, Arc<App>, Arc<AtomicU64>) {
    let folder = Folder::new(test);
    let place = Place::File(folder.0.join("warren.db"));
    let mut store = Store::open(&place, &[1; 32], None, &mut SystemRandom).unwrap();
    let up_s = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&up_s);
    let clock: Clock = Box::new(move || {
        let up_s = told.load(Ordering::Relaxed);
        Moment { unix_s: BEGIN_S + up_s, up_s }
    });
    let shared = Shared {
        pool: store.pool(),
        domain: "warren.internal".to_owned(),
        stun: Vec::new(),
        reserved: Vec::new(),
        relays: Vec::new(),
        urls: Vec::new(),
        resolvers: Resolvers::default(),
    };
    let network = Network::read(&mut store, shared, clock()).unwrap();
    let noise = PrivateKey::from_bytes([2; 32]);
    let keys = Keys { noise, signing: SigningKey::from_seed(&[3; 32]).unwrap(), pepper: [1; 32] };
    let urls = vec!["https://server.test".parse().unwrap()];
    let outer = Outer::open(&folder.0, None, &urls).unwrap();
    let kept = (keys, Copies::new(folder.0.clone()), Hooks::default());
    (folder, App::new(store, network, kept, urls, Enrolment::default(), clock, outer), up_s)
}

/// A member says that it has a map of this epoch: whether maps are later than that now, and which
/// epoch they have.
fn says(app: &App, epoch: u64) -> (bool, u64) {
    let is_later = app.overtake(MEMBER, &Poll { epoch, sequence: 1, ..Poll::default() });
    (is_later, app.network().epoch())
}

#[test]
fn co_17_a_members_word_begins_an_epoch_every_ten_seconds_at_most() {
    let (_folder, app, up_s) = app("overtake-often");
    let first = app.network().epoch();
    assert_eq!(says(&app, first - 1), (true, first), "there is nothing to overtake");
    assert_eq!(says(&app, first + 5), (true, first + 6));
    for second in 0..OVERTAKE_EVERY_S {
        up_s.store(second, Ordering::Relaxed);
        assert_eq!(says(&app, first + 100), (false, first + 6), "after {second} s");
        // Whose map is older is served as ever, however often that is.
        assert_eq!(says(&app, first + 5), (true, first + 6));
    }
    up_s.store(OVERTAKE_EVERY_S, Ordering::Relaxed);
    assert_eq!(says(&app, first + 100), (true, first + 101));
    assert_eq!(says(&app, first + 200), (false, first + 101), "and ten seconds again");
    let seen = app.store().next_epoch(0, 0).unwrap();
    assert_eq!(seen, first + 102, "it is in the books, for the next start");
}

#[test]
fn co_17_a_members_word_leads_no_further_than_ten_years_before_the_clock() {
    let (_folder, app, up_s) = app("overtake-far");
    let first = app.network().epoch();
    for far in [BEGIN_S + EPOCH_AHEAD_MAX_S + 1, u64::MAX / 2, u64::MAX] {
        assert_eq!(says(&app, far), (false, first), "{far}");
    }
    // A word that is not taken costs nobody the next ten seconds.
    let last = BEGIN_S + EPOCH_AHEAD_MAX_S;
    assert_eq!(says(&app, last), (true, last + 1));
    up_s.store(OVERTAKE_EVERY_S, Ordering::Relaxed);
    assert_eq!(says(&app, last + 11), (false, last + 1), "the clock went on ten seconds");
    assert_eq!(says(&app, last + 10), (true, last + 11));
}

#[test]
fn co_11_strangers_wait_for_nothing_that_holds_the_books_up() {
    let (_folder, app, up_s) = app("strangers");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let get = |path: &str, field: Option<String>| {
        let found = api::find("GET", path).map_err(|problem| problem.status)?;
        runtime.block_on(async {
            let caller = api::bearer(&app, &Way::default(), field.as_deref()).await;
            let caller = caller.map_err(|problem| problem.status)?;
            let call =
                api::run(Arc::clone(&app), found, caller, (None, None), String::new(), Vec::new());
            call.await.map(drop).map_err(|problem| problem.status)
        })
    };
    // Somebody has the books, and does not give them back.
    let books = app.store();
    assert_eq!(get("/api/v1/health", None), Ok(()));
    let nobodys = app.token(Kind::Api).print();
    assert_eq!(get("/api/v1/nodes", Some(format!("Bearer {nobodys}"))), Err(401));
    // Nobody could look at them for a while, and that is told, too.
    up_s.store(WELL_FOR_S, Ordering::Relaxed);
    assert_eq!(get("/api/v1/health", None), Err(503));
    drop(books);
    app.sweep(EPHEMERAL_AWAY_S);
    assert_eq!(get("/api/v1/health", None), Ok(()));
}
