//! The client against the server's half of the protocol, with answers lost, forged and repeated.

use noise::PrivateKey;

use super::*;
use crate::channel::tests::testing::Seeded;
use crate::map::tests::{delta, map, peer};
use crate::{Enrolled, NodeId, Secret, SecretId, SigningKey};

const NOW: Instant = Instant(1_000_000_000);

/// The server's half: a key, and one channel.
struct Server {
    key: PrivateKey,
    signer: SigningKey,
    channel: Option<Channel>,
    random: Seeded,
}

impl Server {
    fn new() -> Self {
        let mut random = Seeded(50);
        let key = PrivateKey::generate(&mut random);
        let (signer, _) = SigningKey::generate(&mut random).unwrap();
        Self { key, signer, channel: None, random }
    }

    fn hello(&mut self, ask: &Ask) -> Outcome {
        assert_eq!(ask.path, OPEN_PATH);
        let hello = Hello {
            version: VERSION,
            channel: [4; 16],
            verifying: self.signer.verifying(),
            now_unix_s: 77,
        };
        let payload = serde_json::to_vec(&hello).unwrap();
        let accepted = channel::accept(&self.key, &ask.body, &payload, &mut self.random);
        let Ok((answer, channel, _)) = accepted else { return Outcome::Failed };
        self.channel = Some(channel);
        Outcome::Answered(answer)
    }

    fn read(&self, ask: &Ask) -> (u64, Envelope) {
        assert_eq!((ask.path, &ask.body[..16]), (ASK_PATH, &[4; 16][..]));
        let number = u64::from_be_bytes(ask.body[16..24].try_into().unwrap());
        let plain = self.channel.as_ref().unwrap().receive(number, &ask.body[24..], 1 << 20);
        (number, Envelope::read(&plain.unwrap()).unwrap())
    }

    fn answer(&self, ask: &Ask, answer: &Answer) -> Outcome {
        let (number, _) = self.read(ask);
        let sealed = self.channel.as_ref().unwrap().seal(number, &answer.print()).unwrap();
        Outcome::Answered(sealed)
    }

    fn news(&self, statement: &Statement) -> Answer {
        Answer::News { signed: self.signer.sign(serde_json::to_string(statement).unwrap()) }
    }

    fn whole(&self, machine: PublicKey) -> Answer {
        self.news(&Statement::Map(Box::new(Map { machine, ..map(&[2, 3]) })))
    }
}

fn settings(server: &Server, join: bool) -> Settings {
    let machine = PrivateKey::from_bytes([3; 32]);
    Settings {
        urls: vec!["https://a".parse().unwrap(), "https://b".parse().unwrap()],
        server: server.key.public(),
        machine,
        node_key: PublicKey([1; 32]),
        next_key: None,
        join: join.then(|| (SecretId([5; 8]), Secret([6; 16]))),
        signs_in: false,
        verifying: None,
        host: HostInfo { hostname: "dev".to_owned(), ..HostInfo::default() },
    }
}

fn machine() -> PublicKey {
    PrivateKey::from_bytes([3; 32]).public()
}

fn events(client: &mut Client) -> Vec<Event> {
    std::iter::from_fn(|| client.poll_event()).collect()
}

/// A client that has joined and waits in its first poll, whose ask is returned.
fn joined(server: &mut Server) -> (Client, Ask) {
    let mut client = Client::new(settings(server, true), Vec::new());
    let random = &mut Seeded(1);
    let open = client.poll_ask(NOW, random).unwrap();
    assert_eq!(client.poll_ask(NOW, random), None, "one at a time");
    client.handle_outcome(open.id, server.hello(&open), NOW, random);
    let enrol = client.poll_ask(NOW, random).unwrap();
    let (_, envelope) = server.read(&enrol);
    let Request::Enrol(asked) = envelope.request else { panic!("it joins first") };
    assert_eq!((asked.id, asked.secret.0), ([5; 8], [6; 16]));
    assert_eq!(client.poll_ask(NOW, random), None, "nothing before it has joined");
    let enrolled = Enrolled { node: 1, name: "dev".to_owned(), approved: true };
    let answer = server.answer(&enrol, &Answer::Enrolled(enrolled.clone()));
    client.handle_outcome(enrol.id, answer, NOW, random);
    let opened = Event::Opened { now_unix_s: 77 };
    assert_eq!(events(&mut client), [opened, Event::Enrolled(enrolled), Event::InTouch]);
    let poll = client.poll_ask(NOW, random).unwrap();
    assert_eq!(poll.lane, Lane::Poll);
    (client, poll)
}

#[test]
fn a_token_becomes_a_map_and_deltas_change_it() {
    let mut server = Server::new();
    let random = &mut Seeded(2);
    let (mut client, poll) = joined(&mut server);
    assert!(matches!(server.read(&poll).1.request, Request::Poll(Poll { epoch: 0, .. })));
    let whole = server.whole(machine());
    client.handle_outcome(poll.id, server.answer(&poll, &whole), NOW, random);
    assert_eq!(events(&mut client), [Event::Changed(Changed::Whole)]);
    assert_eq!(client.poll_ask(NOW, random), None, "polls keep their distance");
    let (at, why) = client.poll_timeout().unwrap();
    assert_eq!(why, Why::Poll);

    let poll = client.poll_ask(at, random).unwrap();
    let Request::Poll(asked) = server.read(&poll).1.request else { panic!("a poll") };
    assert_eq!((asked.epoch, asked.sequence), (3, 10));
    let mut change = ToUs::new(10, 11);
    change.0.upsert = vec![peer(4)];
    change.0.remove = vec![NodeId(2)];
    client.handle_outcome(poll.id, server.answer(&poll, &change.news(&server)), at, random);
    let changed = Changed::Peers { upserted: vec![NodeId(4)], removed: vec![NodeId(2)] };
    assert_eq!(events(&mut client), [Event::Changed(changed)]);
    assert_eq!(client.map().unwrap().peers.len(), 2);
    assert_eq!(client.cached().len(), 2);
}

/// A delta for this machine.
struct ToUs(crate::Delta);

impl ToUs {
    fn new(from: u64, to: u64) -> Self {
        Self(crate::Delta { machine: machine(), ..delta(from, to) })
    }

    fn news(&self, server: &Server) -> Answer {
        server.news(&Statement::Delta(Box::new(self.0.clone())))
    }
}

#[test]
fn a_gap_leads_to_a_whole_map() {
    let mut server = Server::new();
    let random = &mut Seeded(2);
    let (mut client, poll) = joined(&mut server);
    let whole = server.whole(machine());
    client.handle_outcome(poll.id, server.answer(&poll, &whole), NOW, random);
    let later = Instant(2_000_000_000);
    let poll = client.poll_ask(later, random).unwrap();
    let gap = ToUs::new(12, 13).news(&server);
    client.handle_outcome(poll.id, server.answer(&poll, &gap), later, random);
    assert!(events(&mut client).contains(&Event::Trouble(Trouble::Map(BadMap::Gap))));
    assert_eq!(client.map().unwrap().sequence, 10, "the map stays as it was");
    let poll = client.poll_ask(Instant(4_000_000_000), random).unwrap();
    assert!(matches!(server.read(&poll).1.request, Request::Poll(Poll { epoch: 0, .. })));
}

#[test]
fn co_17_an_older_map_another_machines_or_a_foreign_one_is_refused() {
    let mut server = Server::new();
    let random = &mut Seeded(2);
    let (mut client, poll) = joined(&mut server);
    let whole = server.whole(machine());
    client.handle_outcome(poll.id, server.answer(&poll, &whole), NOW, random);
    let before = client.map().unwrap().clone();
    let mut now = NOW;
    let other = Server { random: Seeded(90), ..Server::new() };
    let (foreign, _) = SigningKey::generate(&mut Seeded(91)).unwrap();
    let older = Map { machine: machine(), epoch: 2, sequence: 99, ..map(&[]) };
    let same = Map { machine: machine(), sequence: 9, ..map(&[]) };
    let newer = Map { machine: machine(), epoch: 9, ..map(&[]) };
    let text = serde_json::to_string(&Statement::Map(Box::new(newer))).unwrap();
    for (answer, why) in [
        (server.news(&Statement::Map(Box::new(older))), BadMap::Old),
        (server.news(&Statement::Map(Box::new(same))), BadMap::Old),
        (server.whole(other.key.public()), BadMap::Machine),
        (Answer::News { signed: foreign.sign(text) }, BadMap::Form),
    ] {
        events(&mut client);
        now = now.after(Duration::from_secs(60));
        let poll = client.poll_ask(now, random).unwrap();
        client.handle_outcome(poll.id, server.answer(&poll, &answer), now, random);
        assert_eq!(events(&mut client), [Event::Trouble(Trouble::Map(why))]);
        assert_eq!(client.map(), Some(&before));
    }
}

#[test]
fn co_12_a_wrong_server_is_refused_and_asked_again_with_patience() {
    let (server, mut wrong) = (Server::new(), Server::new());
    wrong.key = PrivateKey::from_bytes([99; 32]);
    let random = &mut Seeded(2);
    let mut client = Client::new(settings(&server, true), Vec::new());
    let (mut now, mut pauses) = (NOW, Vec::new());
    for round in 0..16 {
        let ask = client.poll_ask(now, random).unwrap();
        let url = if round % 2 == 0 { "https://a" } else { "https://b" };
        assert_eq!(ask.url.to_string(), url, "every server in turn");
        // Somebody in between who answers what he can: the bytes of a handshake with himself.
        let (asked, _) =
            channel::open(&client.settings.machine, &wrong.key.public(), random).unwrap();
        let forged = channel::accept(&wrong.key, &asked, b"{}", random).unwrap().0;
        client.handle_outcome(ask.id, Outcome::Answered(forged), now, random);
        assert_eq!(events(&mut client), [Event::Trouble(Trouble::NotTheServer)]);
        assert_eq!(client.poll_ask(now, random), None);
        let (at, why) = client.poll_timeout().unwrap();
        assert_eq!(why, Why::Retry);
        pauses.push(at.since(now));
        now = at;
    }
    let longest = Duration::from_secs(2);
    assert!(pauses[0] <= longest / 4, "{pauses:?}");
    assert!(pauses[15] > longest / 4 && pauses[15] <= longest, "{pauses:?}");
    assert_eq!(wrong.hello(&client.poll_ask(now, random).unwrap()), Outcome::Failed);
}

#[test]
fn lc_13_a_restart_without_a_server_has_its_map_from_what_was_signed() {
    let mut server = Server::new();
    let random = &mut Seeded(2);
    let (mut client, poll) = joined(&mut server);
    let whole = server.whole(machine());
    client.handle_outcome(poll.id, server.answer(&poll, &whole), NOW, random);
    let later = Instant(2_000_000_000);
    let poll = client.poll_ask(later, random).unwrap();
    let mut change = ToUs::new(10, 15);
    change.0.remove = vec![NodeId(2)];
    client.handle_outcome(poll.id, server.answer(&poll, &change.news(&server)), later, random);

    let mut again = settings(&server, false);
    again.verifying = client.verifying();
    let restarted = Client::new(again.clone(), client.cached().to_vec());
    assert_eq!(restarted.map(), client.map());
    assert_eq!(restarted.map().unwrap().sequence, 15);

    for kept in 0..client.cached().len() {
        let mut forged = client.cached().to_vec();
        let text = &mut Arc::make_mut(&mut forged[kept]).text;
        *text = text.replace("\"sequence\":10", "\"sequence\":99");
        *text = text.replace("\"to\":15", "\"to\":99");
        let mut restarted = Client::new(again.clone(), forged);
        assert_eq!(restarted.map().is_some(), kept > 0, "what is before it still holds");
        assert!(events(&mut restarted).contains(&Event::Trouble(Trouble::Map(BadMap::Form))));
    }
    again.verifying = None;
    assert_eq!(Client::new(again, client.cached().to_vec()).map(), None, "nothing without the key");
}

#[test]
fn removal_ends_the_client_and_takes_its_map_away() {
    let mut server = Server::new();
    let random = &mut Seeded(2);
    let (mut client, poll) = joined(&mut server);
    let whole = server.whole(machine());
    client.handle_outcome(poll.id, server.answer(&poll, &whole), NOW, random);
    let later = Instant(2_000_000_000);
    let poll = client.poll_ask(later, random).unwrap();
    let refused = Answer::refused(Code::NotEnrolled, "removed");
    client.handle_outcome(poll.id, server.answer(&poll, &refused), later, random);
    assert!(matches!(events(&mut client).last(), Some(Event::Ended(_))));
    assert!(client.map().is_none() && client.cached().is_empty());
    assert_eq!(client.poll_ask(Instant::MAX, random), None);
    assert_eq!(client.poll_timeout(), None);
}

#[test]
fn a_busy_server_is_asked_again_and_a_lost_channel_is_opened_again() {
    let mut server = Server::new();
    let random = &mut Seeded(2);
    let (mut client, poll) = joined(&mut server);
    let busy = Answer::refused(Code::Busy, "the disk is full");
    client.handle_outcome(poll.id, server.answer(&poll, &busy), NOW, random);
    assert!(matches!(events(&mut client)[..], [Event::Trouble(Trouble::Refused(_))]));
    let (at, _) = client.poll_timeout().unwrap();
    let poll = client.poll_ask(at, random).unwrap();
    for _ in 0..8 {
        client.patience.pause(1, at, random);
    }
    client.handle_outcome(poll.id, Outcome::NoChannel, at, random);
    assert_eq!(events(&mut client), []);
    let was = at;
    let (at, _) = client.poll_timeout().unwrap();
    assert!(at.since(was) <= Duration::from_millis(500), "a server that is back is not waited for");
    let open = client.poll_ask(at, random).unwrap();
    client.handle_outcome(open.id, server.hello(&open), at, random);
    let report = client.poll_ask(at, random).unwrap();
    assert!(matches!(server.read(&report).1.request, Request::Report(_)), "a new channel reports");
    client.handle_outcome(open.id, Outcome::Failed, at, random);
    assert!(client.command.is_some(), "an answer that nobody waits for changes nothing");
}

/// Trials: after one interruption of TCP a node counted as out of touch for ever, and so did not
/// renew its key.
#[test]
fn in_touch_is_what_is_and_told_at_once_after_an_interruption() {
    let mut server = Server::new();
    let random = &mut Seeded(2);
    let (mut client, poll) = joined(&mut server);
    let whole = server.whole(machine());
    client.handle_outcome(poll.id, server.answer(&poll, &whole), NOW, random);
    let mut now = client.poll_timeout().unwrap().0;
    let poll = client.poll_ask(now, random).unwrap();
    let waits = |server: &Server, ask: &Ask| match server.read(ask).1.request {
        Request::Poll(poll) => poll.wait_ms,
        other => panic!("{other:?}"),
    };
    assert_eq!(waits(&server, &poll), 45_000, "who is in touch waits for news");
    events(&mut client);
    client.handle_outcome(poll.id, Outcome::Failed, now, random);
    assert_eq!(events(&mut client), [Event::Trouble(Trouble::Unreachable)]);
    now = client.poll_timeout().unwrap().0;
    // The channel is the old one, so nothing is opened.
    let poll = client.poll_ask(now, random).unwrap();
    assert_eq!(waits(&server, &poll), 0, "answered at once");
    client.handle_outcome(poll.id, server.answer(&poll, &Answer::Unchanged), now, random);
    assert_eq!(events(&mut client), [Event::InTouch]);
    now = client.poll_timeout().unwrap().0;
    let poll = client.poll_ask(now, random).unwrap();
    assert_eq!(waits(&server, &poll), 45_000);
}

#[test]
fn a_channel_that_could_not_be_opened_for_long_is_tried_again_at_once() {
    let server = Server::new();
    let random = &mut Seeded(2);
    let mut client = Client::new(settings(&server, true), Vec::new());
    let mut now = NOW;
    for _ in 0..20 {
        let ask = client.poll_ask(now, random).unwrap();
        now = now.after(Duration::from_secs(5));
        client.handle_outcome(ask.id, Outcome::Failed, now, random);
        assert_eq!(client.poll_timeout().unwrap().0, now, "what it took is a part of the pause");
    }
}

#[test]
fn a_key_is_rotated_though_the_answer_was_lost() {
    let mut server = Server::new();
    let random = &mut Seeded(2);
    let (mut client, poll) = joined(&mut server);
    client.handle_rotation(PublicKey([2; 32]));
    let rotate = client.poll_ask(NOW, random).unwrap();
    assert!(matches!(server.read(&rotate).1.request, Request::Rotate { .. }));
    client.handle_outcome(rotate.id, Outcome::Failed, NOW, random);
    // The server did it, so the poll that is under way has the wrong key.
    let wrong = Answer::refused(Code::WrongKey, "x");
    client.handle_outcome(poll.id, server.answer(&poll, &wrong), NOW, random);
    events(&mut client);
    let (at, _) = client.poll_timeout().unwrap();
    let rotate = client.poll_ask(at, random).unwrap();
    client.handle_outcome(rotate.id, server.answer(&rotate, &wrong), at, random);
    assert_eq!(events(&mut client), [Event::Rotated(PublicKey([2; 32]))]);
    let poll = client.poll_ask(Instant(at.0 + 1_000_000_000), random).unwrap();
    assert_eq!(server.read(&poll).1.node_key, PublicKey([2; 32]));
    client.handle_outcome(poll.id, server.answer(&poll, &wrong), at, random);
    assert!(matches!(events(&mut client)[..], [Event::Ended(_)]), "this time it is wrong");
}

#[test]
fn a_report_is_made_until_it_is_answered() {
    let mut server = Server::new();
    let random = &mut Seeded(2);
    let (mut client, _) = joined(&mut server);
    let mut now = NOW;
    let host = |os: &str| HostInfo { os: os.to_owned(), ..HostInfo::default() };
    client.handle_host(host("a"));
    let report = client.poll_ask(now, random).unwrap();
    client.handle_outcome(report.id, Outcome::Failed, now, random);
    now = client.poll_timeout().unwrap().0;
    // Nobody answered, and the channel is still the same one.
    let again = client.poll_ask(now, random).unwrap();
    assert!(matches!(server.read(&again).1.request, Request::Report(said) if said == host("a")));
    client.handle_network_change();
    let asks: Vec<_> = std::iter::from_fn(|| client.poll_ask(now, random)).collect();
    let report = &asks[0];
    assert!(matches!(server.read(report).1.request, Request::Report(_)), "what waited is asked");
    client.handle_host(host("b"));
    client.handle_outcome(report.id, server.answer(report, &Answer::Done), now, random);
    let last = client.poll_ask(now, random).unwrap();
    assert!(matches!(server.read(&last).1.request, Request::Report(said) if said == host("b")));
    client.handle_outcome(last.id, server.answer(&last, &Answer::Done), now, random);
    assert_eq!(client.poll_ask(now, random), None, "and then no more");
}

#[test]
fn a_rotation_that_was_under_way_at_a_restart_goes_on() {
    let mut server = Server::new();
    let random = &mut Seeded(2);
    // The server took the new key, and this machine ended before it heard so.
    let mut settings = settings(&server, false);
    settings.next_key = Some(PublicKey([2; 32]));
    let mut client = Client::new(settings, Vec::new());
    client.handle_logout();
    let open = client.poll_ask(NOW, random).unwrap();
    client.handle_outcome(open.id, server.hello(&open), NOW, random);
    let rotate = client.poll_ask(NOW, random).unwrap();
    let asked = server.read(&rotate).1.request;
    assert!(matches!(asked, Request::Rotate { .. }), "before all else: {asked:?}");
    let poll = client.poll_ask(NOW, random).unwrap();
    let wrong = Answer::refused(Code::WrongKey, "x");
    client.handle_outcome(poll.id, server.answer(&poll, &wrong), NOW, random);
    client.handle_outcome(rotate.id, server.answer(&rotate, &Answer::Done), NOW, random);
    let told = events(&mut client);
    let [Event::Opened { .. }, Event::Rotated(_), Event::InTouch] = told[..] else {
        panic!("{told:?}")
    };
    let logout = client.poll_ask(NOW, random).unwrap();
    let asked = server.read(&logout).1;
    assert!(matches!(asked.request, Request::Logout), "{asked:?}");
    assert_eq!(asked.node_key, PublicKey([2; 32]));
}

#[test]
fn a_signer_that_changes_is_refused() {
    let mut server = Server::new();
    let mut with = settings(&server, false);
    with.verifying = Some(VerifyingKey([1; 32]));
    let mut client = Client::new(with, Vec::new());
    let random = &mut Seeded(2);
    let open = client.poll_ask(NOW, random).unwrap();
    client.handle_outcome(open.id, server.hello(&open), NOW, random);
    assert_eq!(events(&mut client), [Event::Trouble(Trouble::OtherSigner)]);
}

/// A client whose poll was answered by this code.
fn refused(server: &mut Server, code: Code) -> Client {
    let random = &mut Seeded(2);
    let (mut client, poll) = joined(server);
    let answer = server.answer(&poll, &Answer::refused(code, "over"));
    client.handle_outcome(poll.id, answer, NOW, random);
    assert!(matches!(events(&mut client)[..], [Event::Ended(_)]));
    assert_eq!((client.poll_ask(NOW, random), client.poll_timeout()), (None, None));
    client
}

#[test]
fn a_key_that_is_over_is_renewed_if_the_server_lets_it_be() {
    let mut server = Server::new();
    let (random, next) = (&mut Seeded(3), PublicKey([2; 32]));
    for is_let in [true, false] {
        let mut client = refused(&mut server, Code::Expired);
        client.handle_rotation(next);
        let rotate = client.poll_ask(NOW, random).unwrap();
        let (_, envelope) = server.read(&rotate);
        assert_eq!(envelope.node_key, PublicKey([1; 32]), "under the key that is over");
        assert!(matches!(envelope.request, Request::Rotate { new_key } if new_key == next));
        assert_eq!(client.poll_ask(NOW, random), None, "nothing else is asked meanwhile");
        let over = || Answer::refused(Code::Expired, "for too long");
        let answer = if is_let { Answer::Done } else { over() };
        client.handle_outcome(rotate.id, server.answer(&rotate, &answer), NOW, random);
        let told = events(&mut client);
        if is_let {
            assert_eq!(told, [Event::Rotated(next), Event::InTouch]);
            let later = Instant(2_000_000_000);
            let poll = std::iter::from_fn(|| client.poll_ask(later, random))
                .find(|ask| ask.lane == Lane::Poll)
                .unwrap();
            let (_, envelope) = server.read(&poll);
            assert_eq!(envelope.node_key, next);
            assert!(matches!(envelope.request, Request::Poll(Poll { epoch: 0, .. })));
        } else {
            assert!(matches!(&told[..], [Event::Ended(why)] if why.code == Code::Expired));
            assert_eq!(client.poll_ask(NOW, random), None);
        }
    }
    // Who was removed is not let in again by asking for another key.
    let mut client = refused(&mut server, Code::NotEnrolled);
    client.handle_rotation(next);
    assert_eq!(client.poll_ask(NOW, random), None);
}

#[test]
fn a_server_that_moved_is_sought_where_its_map_says_and_the_way_that_works_stays_in_use() {
    let mut server = Server::new();
    let random = &mut Seeded(2);
    let (mut client, poll) = joined(&mut server);
    let urls = ["https://new", "https://a"].map(|url| url.parse().unwrap()).to_vec();
    let told = Map { machine: machine(), urls, ..map(&[2, 3]) };
    let news = server.news(&Statement::Map(Box::new(told)));
    client.handle_outcome(poll.id, server.answer(&poll, &news), NOW, random);
    let known: Vec<String> = client.urls().iter().map(ToString::to_string).collect();
    assert_eq!(known, ["https://new", "https://a", "https://b"]);
    let mut now = Instant(2_000_000_000);
    let mut asked = Vec::new();
    for _ in 0..4 {
        let ask = client.poll_ask(now, random).unwrap();
        asked.push(ask.url.to_string());
        client.handle_outcome(ask.id, Outcome::Failed, now, random);
        now = now.after(Duration::from_secs(60));
    }
    assert_eq!(asked, ["https://a", "https://b", "https://new", "https://a"]);
}

#[test]
fn two_lanes_that_fail_together_try_another_way_and_not_the_same_again() {
    let mut server = Server::new();
    let random = &mut Seeded(2);
    let (mut client, poll) = joined(&mut server);
    client.handle_host(HostInfo { hostname: "other".to_owned(), ..HostInfo::default() });
    let mut lanes = vec![poll, client.poll_ask(NOW, random).unwrap()];
    let mut now = NOW;
    for way in ["https://a", "https://b", "https://a"] {
        assert_eq!(lanes.len(), 2);
        for ask in lanes {
            assert_eq!(ask.url.to_string(), way);
            client.handle_outcome(ask.id, Outcome::Failed, now, random);
        }
        now = now.after(Duration::from_secs(60));
        lanes = std::iter::from_fn(|| client.poll_ask(now, random)).collect();
    }
}
