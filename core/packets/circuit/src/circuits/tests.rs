//! What circuits must do, on machines with a wire between them.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::body::room;
use crate::client::{BUILD_AGAIN, BUILD_WITHIN, DEAD_AFTER};
use crate::{EXIT_ADDRESS, PER_CLIENT_MAX, TAG_LEN};

mod batch;
mod machine;
mod net;
mod six;
mod transcript;
use net::*;

#[test]
fn any_depth_is_built_and_carries_both_ways() {
    for hops in 1..=HOPS_MAX {
        let mut net = Net::new(hops + 1);
        let path: Vec<_> = (1..=hops).collect();
        let id = net.opened(&path);
        for len in [0, 40, 52, 53, 400, 500, room(hops) - 28] {
            carries(&mut net, id, hops, len);
        }
        let large = udp((net.local(id), 1), (SERVER, 2), &vec![0; room(hops) - 27]);
        assert_eq!(net.send(id, &large), Err(Drop::TooBig));
        for machine in &net.machines {
            let counters = machine.counters();
            assert!(counters.drops().all(|(reason, _)| reason == Drop::TooBig), "{counters:?}");
        }
        let status = net.machines[0].status(id).expect("known");
        assert_eq!((status.addresses.len(), status.mtu), (hops, room(hops)));
        assert!(net.machines[0].close(id, true, net.now));
        net.pass(Duration::from_millis(1));
        net.with(0, |_, _| ());
        net.run();
        assert_eq!(net.machines.iter().map(Circuits::indices).sum::<usize>(), 0, "nothing is left");
        assert!(net.machines.iter().all(|machine| machine.carried() == (0, 0)));
    }
}

#[test]
fn ci_04_equal_packets_have_equal_frames_on_every_link_whatever_the_depth() {
    let mut sizes: BTreeSet<Vec<usize>> = BTreeSet::new();
    for hops in 1..=3 {
        let mut net = Net::new(hops + 1);
        let id = net.opened(&(1..=hops).collect::<Vec<_>>());
        let mut found = Vec::new();
        for len in [0, 52, 53, 436, 437, 900, 1300] {
            net.seen.clear();
            carries(&mut net, id, hops, len);
            let mut each: Vec<_> = net.seen.iter().map(|frame| frame.bytes.len()).collect();
            assert_eq!(each.len(), 2 * hops);
            each.dedup();
            assert_eq!(each.len(), 1, "{len} bytes: {each:?}");
            found.push(each[0]);
        }
        sizes.insert(found);
    }
    assert_eq!(sizes.len(), 1, "{sizes:?}");
    // On a path of 1500: IP, UDP, the link's session, a cell's header, two tags.
    const { assert!(20 + 8 + 32 + Cell::HEADER_LEN + 2 * TAG_LEN <= 104) };
    assert_eq!(crate::frame_len(room(3) + 2 * TAG_LEN), Cell::HEADER_LEN + 1408);
}

/// Every hop's own messages and every link are searched for what they must not hold.
#[test]
fn nobody_but_the_ends_sees_who_talks_to_whom() {
    let mut net = Net::new(4);
    let id = net.opened(&[1, 2, 3]);
    carries(&mut net, id, 3, 300);
    let client = [net.keys[0].0.to_vec(), net.local(id).octets().to_vec()];
    let beyond = [SERVER.octets().to_vec(), MARKER.to_vec()];
    let has = |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).any(|part| part == what);
    let mut bodies: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    for frame in &net.seen {
        for what in client.iter().chain(&beyond) {
            // What stands here is inside a link's session: not even who holds its keys sees it.
            assert!(!has(&frame.bytes, what), "{} to {}: {what:02x?}", frame.from, frame.to);
        }
        if !(frame.from.min(frame.to) == 0 || frame.from.max(frame.to) == 1) {
            for part in frame.bytes[Cell::HEADER_LEN..].chunks_exact(16).map(<[u8]>::to_vec) {
                if part.iter().any(|byte| *byte != 0) {
                    *bodies.entry(part).or_default() += 1;
                }
            }
        }
    }
    assert!(bodies.len() > 20 && bodies.values().all(|count| *count == 1), "bytes in common");
    // The key of a hop is told to the one before it, and to nobody else.
    for hop in 1..4 {
        assert!(!net.seen.iter().any(|frame| has(&frame.bytes, &net.keys[hop].0)));
    }
}

#[test]
fn ci_01_what_a_hop_changes_is_dropped_by_the_next_and_nothing_else_happens() {
    let mut net = Net::new(4);
    let id = net.opened(&[1, 2, 3]);
    carries(&mut net, id, 3, 20);
    let (from, to) = ((net.local(id), 4000), (SERVER, 443));
    // Behind the entry the second hop notices, behind the second the third.
    for (link, notices) in [((1, 2), 2), ((2, 3), 3)] {
        let mut before = 0;
        for byte in 6..Cell::HEADER_LEN + 192 {
            net.send(id, &udp(from, to, MARKER)).expect("open");
            let mut frame = net.queue.pop_front().expect("sent");
            while (frame.from, frame.to) != link {
                net.step(frame);
                frame = net.queue.pop_front().expect("relayed");
            }
            let body = usize::from(frame.bytes[1]) * 16;
            frame.bytes[byte] ^= 0x40;
            net.got.clear();
            net.step(frame);
            net.run();
            if byte >= Cell::HEADER_LEN + body {
                continue; // padding of the frame, which is nobody's
            }
            assert!(net.got.is_empty(), "byte {byte} of {link:?}");
            let bad = [Drop::Tampered, Drop::Replayed, Drop::NoNext, Drop::Malformed];
            let sum = bad.map(|reason| net.dropped(notices, reason)).iter().sum();
            assert_eq!(sum, before + 1, "byte {byte} of {link:?}");
            before = sum;
        }
        net.got.clear();
    }
    // And on the way back the client notices what either did.
    net.send(id, &udp(from, to, MARKER)).expect("open");
    net.run();
    let (_, out) = net.got.pop().expect("arrived");
    let (outer, _) = ends(&out);
    for link in [(3, 2), (2, 1), (1, 0)] {
        let before = net.dropped(0, Drop::Tampered);
        net.answer(3, udp(to, outer, MARKER)).expect("a flow");
        let mut frame = net.queue.pop_front().expect("sent");
        while (frame.from, frame.to) != link {
            net.step(frame);
            frame = net.queue.pop_front().expect("relayed");
        }
        frame.bytes[Cell::HEADER_LEN + 40] ^= 1;
        net.got.clear();
        net.step(frame);
        net.run();
        assert!(net.got.is_empty());
        assert_eq!(net.dropped(0, Drop::Tampered), before + 1, "{link:?}");
    }
    carries(&mut net, id, 3, 20);
}

#[test]
fn ci_02_a_cell_that_comes_again_is_dropped_on_every_link_both_ways() {
    let mut net = Net::new(4);
    let id = net.opened(&[1, 2, 3]);
    net.seen.clear();
    carries(&mut net, id, 3, 100);
    net.got.clear();
    let again: Vec<_> = net.seen.drain(..).collect();
    assert_eq!(again.len(), 6);
    for frame in again {
        let (to, before) = (frame.to, net.dropped(frame.to, Drop::Replayed));
        net.step(frame);
        assert_eq!(net.dropped(to, Drop::Replayed), before + 1);
    }
    net.run();
    assert!(net.got.is_empty());
}

#[test]
fn ci_03_cells_of_a_closed_circuit_and_of_another_neighbour_belong_to_nothing() {
    let mut net = Net::new(5);
    let id = net.opened(&[1, 2, 3]);
    net.seen.clear();
    carries(&mut net, id, 3, 100);
    let frames: Vec<_> = net.seen.drain(..).collect();
    net.got.clear();
    for frame in &frames {
        let bytes = frame.bytes.clone();
        let before = net.dropped(frame.to, Drop::UnknownIndex);
        net.step(Sent { from: 4, to: frame.to, bytes });
        assert_eq!(net.dropped(frame.to, Drop::UnknownIndex), before + 1, "of another neighbour");
    }
    net.with(0, |client, world| client.close(id, false, world.now));
    net.run();
    assert_eq!(net.state(id), State::Closed(End::Closed));
    for frame in frames {
        let before = net.dropped(frame.to, Drop::UnknownIndex);
        let to = frame.to;
        net.step(frame);
        assert_eq!(net.dropped(to, Drop::UnknownIndex), before + 1, "of a closed one");
    }
    assert!(net.got.is_empty() && net.queue.is_empty());
    let mut seen = BTreeSet::new();
    for _ in 0..2000 {
        let index = net.machines[1].neighbours.allocate(PeerId(0), Owner::Forth(9)).expect("free");
        assert!(seen.insert(index), "an index came again");
        net.machines[1].neighbours.free(PeerId(0), index);
    }
}

#[test]
fn ci_16_only_a_neighbour_ends_its_own_circuit() {
    let mut net = Net::new(5);
    let id = net.opened(&[1, 2, 3]);
    let indices: Vec<_> = net.seen.iter().map(|f| (f.to, f.bytes[2..6].to_vec())).collect();
    for (to, index) in indices {
        let index = u32::from_le_bytes([index[0], index[1], index[2], index[3]]);
        let bytes = Build::Destroy { index, reason: 1 }.build().to_vec();
        net.step(Sent { from: 4, to, bytes });
    }
    net.run();
    carries(&mut net, id, 3, 10);
    net.with(2, |hop, _| hop.forget_peer(PeerId(3)));
    net.run();
    assert_eq!(net.state(id), State::Closed(End::Unreachable), "a hop lost the next one");
    assert!(net.machines[1..3].iter().all(|machine| machine.carried().0 == 0));
    // The one behind it, whom nobody could tell, forgets it.
    net.pass(IDLE + Duration::from_secs(11));
    assert_eq!(net.machines[3].carried().0, 0);
}

#[test]
fn ci_15_ten_thousand_circuits_of_one_client_leave_room_for_others() {
    let mut net = Net::new(5);
    let standing = Standing { uses: true, hop: false };
    net.with(1, |hop, world| hop.set_standing(PeerId(4), standing, world.random));
    let (mut refused, hop) = (0, net.keys[1]);
    for index in 0..10_000u32 {
        let ephemeral = PrivateKey::generate(&mut net.random);
        let (_, message) = crate::handshake::Offer::new(&hop, ephemeral).expect("good");
        let build = Build::Create { index, layered: false, mask: [0; 32], message };
        net.step(Sent { from: 4, to: 1, bytes: build.build().to_vec() });
        refused += net.queue.drain(..).filter(|frame| frame.bytes[1] == 3).count();
        net.now = net.now.after(Duration::from_millis(10));
    }
    let (circuits, _) = net.machines[1].carried();
    assert!(circuits <= PER_CLIENT_MAX && refused >= 10_000 - PER_CLIENT_MAX, "{circuits}");
    let id = net.opened(&[1, 2, 3]);
    carries(&mut net, id, 3, 100);
    net.pass(IDLE + Duration::from_secs(11));
    assert_eq!(net.machines[1].carried().0, 1, "what nobody uses is forgotten");
    assert_eq!(net.state(id), State::Open);
}

#[test]
fn ci_10_a_path_has_no_hop_twice_and_only_hops_are_hops() {
    let mut net = Net::new(5);
    let keys = net.keys.clone();
    for (path, why) in [
        (vec![], Refused::Length),
        (vec![keys[1]; 9], Refused::Length),
        (vec![keys[1], keys[2], keys[1]], Refused::Repeated),
        (vec![keys[1], keys[0]], Refused::Repeated),
        (vec![PublicKey([9; 32]), keys[1]], Refused::NoEntry),
    ] {
        let opened = net.with(0, |client, world| client.open(&path, None, world));
        assert_eq!(opened, Err(why));
    }
    // Of two hops, each of which is none in the eyes of the other, none is made the next.
    net.with(1, |hop, world| hop.set_standing(PeerId(2), Standing::default(), world.random));
    let id = net.open(&[1, 2, 3]);
    net.run();
    assert_eq!(net.state(id), State::Closed(End::Unreachable));
    // Who is in no list may nothing.
    net.with(3, |hop, world| hop.set_standing(PeerId(0), Standing::default(), world.random));
    let id = net.open(&[3, 4]);
    net.run();
    assert_eq!(net.state(id), State::Closed(End::Forbidden));
    // The last hop must be an exit, and says so under its own key.
    net.machines[4].set_roles(true, None);
    let id = net.open(&[2, 4]);
    net.run();
    assert_eq!(net.state(id), State::Closed(End::NotAnExit));
    assert_eq!(net.machines.iter().map(Circuits::indices).sum::<usize>(), 0);
}

#[test]
fn a_hop_that_is_another_than_it_says_is_found_out() {
    let mut net = Net::new(5);
    // Hop 1 sends on to 4 what was meant for 2.
    net.keys.swap(2, 4);
    let path = [net.keys[1], net.keys[4], net.keys[3]];
    let id = net.with(0, |client, world| client.open(&path, None, world)).expect("good");
    net.run();
    net.pass(BUILD_WITHIN + Duration::from_millis(300));
    assert!(matches!(net.state(id), State::Closed(End::Silent | End::NotTheHop)));
    assert!(net.dropped(4, Drop::Tampered) > 0, "the other hop cannot read it");
}

#[test]
fn lost_messages_cost_a_quarter_of_a_second_each() {
    let mut net = Net::new(4);
    let id = net.open(&[1, 2, 3]);
    let mut lost = 0;
    // Of everything that is sent the first copy is lost.
    let mut known: BTreeSet<(usize, usize, u8, usize)> = BTreeSet::new();
    let start = net.now;
    while net.state(id) != State::Open {
        while let Some(frame) = net.queue.pop_front() {
            let stage = match net.state(id) {
                State::Building(stage) => stage,
                _ => 9,
            };
            if known.insert((frame.from, frame.to, frame.bytes[0], stage)) {
                lost += 1;
            } else {
                net.step(frame);
            }
        }
        net.now = net.now.after(BUILD_AGAIN);
        for at in 0..4 {
            net.with(at, |machine, world| machine.handle_timeout(world.now, world.random));
        }
        assert!(net.now.since(start) < BUILD_WITHIN * 3);
    }
    assert!(lost >= 6 && net.now.since(start) <= BUILD_AGAIN * (lost + 2));
    net.run();
    carries(&mut net, id, 3, 10);
}

#[test]
fn a_killed_hop_is_told_within_three_seconds_whichever_it_is() {
    for killed in 1..=3 {
        let mut net = Net::new(4);
        let id = net.opened(&[1, 2, 3]);
        net.pass(Duration::from_secs(20));
        assert_eq!(net.state(id), State::Open);
        net.dead.insert(killed);
        net.pass(Duration::from_secs(3));
        assert_eq!(net.state(id), State::Closed(End::Silent), "hop {killed}");
        let status = net.machines[0].status(id).expect("known");
        assert_eq!(status.silent, Some(killed - 1), "it is known who is silent");
        assert!(DEAD_AFTER < Duration::from_secs(3));
        // A new one over others, in the same place: programs keep their address.
        let local = net.local(id);
        net.dead.clear();
        let path = [net.keys[1], net.keys[3]];
        let again = net.with(0, |client, world| client.open(&path, Some(id), world));
        net.run();
        assert_eq!((again, net.state(id), net.local(id)), (Ok(id), State::Open, local));
        carries(&mut net, id, 3, 10);
    }
}

#[test]
fn keys_rotate_under_traffic_without_a_lost_packet() {
    let mut net = Net::new(4);
    let id = net.opened(&[1, 2, 3]);
    for _ in 0..40 {
        carries(&mut net, id, 3, 10);
        net.pass(Duration::from_secs(60));
    }
    assert_eq!(net.state(id), State::Open);
    for machine in &net.machines {
        assert_eq!(machine.counters().drops().count(), 0);
    }
}

#[test]
fn two_circuits_of_two_clients_never_mix() {
    let mut net = Net::new(4);
    let one = net.opened(&[1, 2, 3]);
    let two = net.opened(&[2, 1, 3]);
    for _ in 0..10 {
        carries(&mut net, one, 3, 30);
        carries(&mut net, two, 3, 60);
    }
    let forged = udp((net.local(two), 1), (SERVER, 2), b"");
    net.send(one, &forged).expect("its source is made its circuit's");
    net.run();
    assert_eq!(net.got.len(), 2);
    let stranger = udp((SERVER, 443), (EXIT_ADDRESS, 7), b"");
    assert_eq!(net.answer(3, stranger), Err(Drop::NoFlow));
}

#[test]
fn an_exit_does_not_lead_into_its_own_network() {
    let mut net = Net::new(4);
    let own = "203.0.113.0/24".parse().expect("a prefix");
    net.machines[3].set_roles(true, Some(ExitRules { refused: vec![own], ..Default::default() }));
    let id = net.opened(&[1, 2, 3]);
    let local = (net.local(id), 4000);
    for to in [SERVER, Ipv4Addr::new(100, 64, 0, 3), Ipv4Addr::LOCALHOST, EXIT_ADDRESS] {
        net.send(id, &udp(local, (to, 80), b"in")).expect("open");
        net.run();
    }
    assert!(net.got.is_empty());
    assert_eq!(net.dropped(3, Drop::ExitRefused), 4);
}
