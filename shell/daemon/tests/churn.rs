//! Weeks of peers that come, move and go, in seconds: a map that follows deltas, the plan of each,
//! and a node that is changed by it. What is resident must not grow (threat LC-15).

#![expect(clippy::unwrap_used, reason = "all of it is tests")]

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use control::{Delta, Map, NodeId, Peer, SelfNode};
use daemon::Settings;
use daemon::plan::Plan;
use dial::SystemRandom;
use node::{Change, Node};
use noise::{Identity, Instant, PrivateKey, PublicKey};

/// Peers at a time.
const LIVE: u64 = 64;
/// What may be added to the resident memory behind the first tenth: 17 bytes an update at 120,000.
const GROWTH_MAX: u64 = 2 << 20;

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

fn key(id: u64) -> PublicKey {
    let mut bytes = [7; 32];
    bytes[..8].copy_from_slice(&id.to_le_bytes());
    PublicKey(bytes)
}

fn peer(id: u64, moved: u64) -> Peer {
    let number = (id % 4_000_000) as u32;
    let place = [192, 0, 2, (id + moved) as u8];
    Peer {
        addresses: vec![IpAddr::from((0x6440_0000 + number).to_be_bytes())],
        endpoints: vec![SocketAddr::from((place, 1000 + (moved % 60_000) as u16))],
        routes: vec![format!("10.{}.{}.0/24", id / 256 % 256, id % 256).parse().unwrap()],
        online: moved.is_multiple_of(2),
        ..Peer::new(NodeId(id), format!("node-{id}"), key(id))
    }
}

fn first() -> Map {
    let addresses = vec![IpAddr::from([100, 127, 0, 1])];
    let me = SelfNode { addresses, ..SelfNode::new(NodeId(1), "me") };
    let ranges = vec!["100.64.0.0/10".parse().unwrap()];
    Map { ranges, ..Map::new(PublicKey([9; 32]), 1, me) }
}

/// One goes and one comes, or one that is there moves.
fn delta(map: &Map, step: u64, newest: &mut u64) -> Delta {
    let mut delta = map.delta(map.sequence + 1, 1000 + step);
    if step.is_multiple_of(3) || (map.peers.len() as u64) < LIVE {
        *newest += 1;
        delta.upsert.push(peer(*newest, step));
        delta.remove.extend(newest.checked_sub(LIVE).filter(|old| *old > 1).map(NodeId));
    } else {
        let there = &map.peers[step as usize % map.peers.len()];
        delta.upsert.push(peer(there.id.0, step));
    }
    delta
}

/// How many bytes more are resident after so many updates.
fn churn(updates: u64) -> u64 {
    let settings = Settings { accept_routes: true, ..Settings::default() };
    let mut node = Node::new();
    let own = PrivateKey::generate(&mut SystemRandom);
    node.set_identity(Some(Identity::new(own)), &mut SystemRandom);
    node.set_up(true, &mut SystemRandom);
    let (mut map, mut plan, mut newest) = (first(), Plan::default(), 1);
    let (mut begin, mut now) = (0, Instant::ZERO.after(Duration::from_secs(1)));
    for step in 0..updates {
        now = now.after(Duration::from_secs(5));
        let delta = delta(&map, step, &mut newest);
        map.apply(delta).unwrap();
        let next = Plan::new(&map, &settings, 0, &BTreeMap::new());
        for change in next.changes_since(&plan) {
            let Change::Peer(change) = change else { panic!("only peers change: {change:?}") };
            node.change_peer(&change, &mut SystemRandom).unwrap();
        }
        for (key, candidates) in next.moved_since(&plan) {
            node.set_candidates(&key, &candidates, now);
        }
        node.handle_timeout(now);
        plan = next;
        if step == updates / 10 {
            begin = resident();
        }
    }
    assert_eq!((map.peers.len() as u64, plan.peers.len() as u64), (LIVE, LIVE));
    let grown = resident().saturating_sub(begin);
    assert!(grown < GROWTH_MAX, "{grown} bytes after {newest} peers in turn");
    grown
}

#[test]
fn lc_15_updates_of_the_map_and_peers_that_come_and_go_leave_nothing_behind() {
    println!("{} bytes more are resident", churn(120_000));
}

#[test]
#[ignore = "soak: a million updates"]
fn lc_15_a_million_updates_leave_nothing_behind() {
    println!("{} bytes more are resident", churn(1_000_000));
}
