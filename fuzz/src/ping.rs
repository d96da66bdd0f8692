//! A requester and a responder of ICMP, and anything at all as their requests and replies.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use carrier::icmp::{POLL, Requester, Responder, ResponderCounters};
use noise::{Instant, Random};
use wire::ping::{HEAD_LEN, Reply, Request};

/// Bytes of one step: what is done, by whom, a number, how long the message is.
const STEP_LEN: usize = 6;

struct Ones;

impl Random for Ones {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill(1);
    }
}

/// A program of steps: a request or a reply of the bytes behind it, a datagram for somebody, a key
/// that somebody has proved, time. The first bit says whether the responder is a network's.
///
/// No reply without a request of its own; who proved nothing gets no more bytes than it sent;
/// everything is counted; a requester takes a reply once.
pub fn ping(data: &[u8]) {
    let is_network = data.first().is_some_and(|first| first & 0x80 != 0);
    let mut answers = if is_network { Responder::for_network(&mut Ones) } else { Responder::new() };
    let mut asks = Requester::new(7, 0xfff0, POLL);
    let mut open: BTreeMap<(SocketAddr, u16), Vec<usize>> = BTreeMap::new();
    let mut now = Instant(1);
    let mut rest = data;
    let mut out = Vec::new();
    while let Some((step, body)) = rest.split_at_checked(STEP_LEN) {
        let [what, who, a, b, len, wait] = *step else { return };
        let (body, after) = body.split_at(usize::from(len).min(body.len()));
        rest = after;
        now.0 += u64::from(wait) * 10_000_000;
        let from = SocketAddr::from(([192, 0, 2, who % 4], u16::from(who)));
        let sequence = u16::from_be_bytes([a, b]);
        match what % 5 {
            0 => {
                open.entry((from, sequence)).or_default().push(body.len());
                if let Some(found) = answers.handle_request(from, sequence, body, now) {
                    assert_eq!(found, HEAD_LEN..body.len());
                }
            }
            1 => {
                if let Some(echo) = answers.handle_datagram(from, body, &mut Ones, now) {
                    let asked = spend(&mut open, from, echo.sequence);
                    let reply = Reply::parse(&echo.head).expect("a head");
                    assert!(reply.is_proven || HEAD_LEN + body.len() <= asked);
                    let bytes = [&echo.head[..], body].concat();
                    asks.handle_reply(echo.sequence, &bytes, now);
                }
            }
            2 => {
                let replies = asks.counters().replies;
                asks.handle_reply(sequence, body, now);
                asks.handle_reply(sequence, body, now);
                assert!(asks.counters().replies <= replies + 1, "twice");
            }
            3 => {
                let echo = asks.poll_request(now).unwrap_or_else(|| asks.handle_datagram(now));
                assert!(Request::parse(&echo.head).is_some());
                open.entry((from, echo.sequence)).or_default().push(HEAD_LEN + body.len());
                let bytes = [&echo.head[..], body].concat();
                answers.handle_request(from, echo.sequence, &bytes, now);
            }
            _ => {
                let _ = answers.prove(from, now);
            }
        }
        while let Some((to, echo)) = answers.poll_reply(&mut out, now) {
            let asked = spend(&mut open, to, echo.sequence);
            let reply = Reply::parse(&echo.head).expect("a head");
            assert!(reply.is_proven || HEAD_LEN + out.len() <= asked);
            out.clear();
        }
        assert!(asks.open() as u64 <= asks.counters().requests);
    }
    check(answers.counters(), answers.held() as u64, answers.queued() as u64);
}

/// Takes the request that a reply answers; its length.
fn spend(
    open: &mut BTreeMap<(SocketAddr, u16), Vec<usize>>,
    to: SocketAddr,
    sequence: u16,
) -> usize {
    // Of several with one number the longest: which of them is kept is the responder's.
    let all = open.get_mut(&(to, sequence)).filter(|all| !all.is_empty());
    let all = all.expect("a reply answers a request of its own");
    all.sort_unstable();
    all.pop().unwrap_or_default()
}

fn check(of: &ResponderCounters, held: u64, queued: u64) {
    let spent = of.malformed + of.strange + of.duplicates + of.expired + of.replies;
    assert_eq!(of.requests, spent + held);
    let went = of.replies - of.empty + queued + of.stale + of.overflow + of.unasked;
    assert_eq!(of.datagrams, went);
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let step = |what: u8, len: usize, wait: u8, body: &[u8]| {
        let head = [what, 1, 0, 9, len as u8, wait];
        [&head[..], body].concat()
    };
    let message = |kind: u8, len: usize| {
        let mut bytes = vec![0; len];
        bytes[0] = kind;
        bytes
    };
    let initiation = message(1, 148);
    let response = message(2, 92);
    let request = [&Request { tag: 7, ..Request::default() }.bytes()[..], &initiation].concat();
    let shaken = [step(3, 148, 0, &initiation), step(1, 92, 0, &response)].concat();
    let data = [step(3, 0, 1, &[]), step(1, 64, 1, &message(4, 64))].concat();
    vec![
        [step(0, request.len(), 0, &request), step(1, 64, 0, &message(3, 64))].concat(),
        [shaken.clone(), data.repeat(4)].concat(),
        [shaken, step(1, 64, 0, &message(4, 64)).repeat(5), data.repeat(3)].concat(),
        step(2, 20, 0, &Reply { tag: 7, cookie: 1, ..Reply::default() }.bytes()),
    ]
}
