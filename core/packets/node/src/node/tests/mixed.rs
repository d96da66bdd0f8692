//! Peers that can do some of what there is: each gets that, and nothing else.

use std::time::Duration;

use wire::frame::{self, Features, Frame};

use super::squeezed::{Inner, Other, text};
use crate::node::tests::Machine;

const ALL: [Features; 5] =
    [Features::REPAIR, Features::PATHS, Features::BUNDLES, Features::SQUEEZED, Features::ELSEWHERE];

/// Adds what a peer has to be able to do to read this.
fn note_needed(plain: &[u8], needed: &mut Vec<Features>) {
    if !frame::is_frame(plain) {
        return;
    }
    match frame::parse(plain).expect("a frame of ours") {
        Frame::Hello(_) => {}
        Frame::Protected(protected) => {
            needed.push(Features::REPAIR);
            note_needed(protected.inner, needed);
        }
        Frame::Bundle(bundle) => {
            needed.push(Features::BUNDLES);
            bundle.entries().for_each(|(_, entry)| note_needed(entry, needed));
        }
        Frame::Head(_)
        | Frame::Chunk(_)
        | Frame::Repair(_)
        | Frame::Ordered(_)
        | Frame::Report(_) => needed.push(Features::REPAIR),
        Frame::Elsewhere(_) => needed.push(Features::ELSEWHERE),
        Frame::Squeezed(_) => needed.push(Features::SQUEEZED),
        Frame::Probe(_) | Frame::ProbeAnswer(_) | Frame::Candidates(_) => {
            needed.push(Features::PATHS);
        }
        Frame::Cell(_) | Frame::Build(_) => panic!("a frame of circuits, of which there are none"),
        Frame::Sounding(_) => panic!("a sounding, and nobody measures"),
        Frame::Unknown(kind) => panic!("a frame of kind {kind:#x}"),
    }
}

#[test]
fn every_set_of_features_gets_what_it_reads_and_nothing_else() {
    for set in 0..1_u8 << ALL.len() {
        let among = ALL.iter().enumerate().filter(|(bit, _)| set >> bit & 1 == 1);
        let features = among.fold(Features::default(), |set, (_, one)| set.with(*one));
        let mut machine = Machine::new(100 + set);
        machine.node.set_frames(true);
        machine.node.set_compress(true);
        let mut peer = Other::with_features(&mut machine, features, 500 + u64::from(set));
        let long = (0..20).map(|_| Inner::tcp(2, (9, 4_000), text(1_300)).build());
        let short = (0..20).map(|_| Inner::udp(2, (9, 4_000), vec![7; 40]).build());
        machine.send_together(&long.chain(short).collect::<Vec<_>>());
        machine.pass(Duration::from_millis(20));
        let mut needed = Vec::new();
        for datagram in machine.sent() {
            note_needed(&peer.open(&datagram), &mut needed);
        }
        let what = format!("{features:?} is sent what needs {needed:?}");
        assert!(needed.iter().all(|one| features.has(*one)), "{what}");
        // Without repair there are no frames at all; else what can be used is.
        let has = |one| features.has(one) && features.has(Features::REPAIR);
        for one in [Features::REPAIR, Features::SQUEEZED] {
            assert_eq!(needed.contains(&one), has(one), "{what}");
        }
        // What was compressed may have been a bundle.
        if !features.has(Features::SQUEEZED) {
            assert_eq!(needed.contains(&Features::BUNDLES), has(Features::BUNDLES), "{what}");
        }
    }
}
