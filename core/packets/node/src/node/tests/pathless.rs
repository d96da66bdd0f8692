//! A session without a path: packets wait, nothing turns in circles, and they go when there is one.

use link::Candidate;

use crate::node::tests::{Machine, address, packet_to, settle};
use crate::reach::Reach;

impl Machine {
    fn manage(&mut self, other: &Self, candidates: &[Candidate]) {
        let now = self.now;
        self.node.set_candidates(&other.public(), candidates, now);
    }

    /// Networks in which no candidate can be.
    fn set_overlay(&mut self, overlay: &[&str]) {
        let overlay = overlay.iter().map(|text| text.parse().expect("a prefix")).collect();
        let now = self.now;
        self.node.set_reach(Reach { overlay, ..Reach::default() }, now);
    }
}

#[test]
fn dp_22_what_waits_for_a_path_is_sent_when_there_is_one() {
    let (mut a, mut b) = (Machine::new(1), Machine::new(2));
    a.knows(&b, &["10.0.0.2/32"]);
    b.knows(&a, &["10.0.0.1/32"]);
    let direct = [Candidate::Udp(address(2))];
    a.manage(&b, &direct);
    a.send(&packet_to(1, 2, 7));
    for _ in 0..3 {
        settle(&mut a, &mut b);
        a.wait(1);
    }
    assert_eq!(b.delivered.len(), 1);
    // The path in use is one no longer, and the other does not answer. The session lives.
    a.set_overlay(&["192.0.2.0/24"]);
    a.manage(&b, &[Candidate::Relay(7)]);
    for mark in 0..3 {
        a.send(&packet_to(1, 2, mark));
    }
    assert_eq!(a.node.staged(), 3);
    for _ in 0..5 {
        a.wait(3);
    }
    assert_eq!(a.node.staged(), 3);
    a.set_overlay(&[]);
    a.manage(&b, &direct);
    for _ in 0..10 {
        a.wait(1);
        b.wait(1);
        settle(&mut a, &mut b);
    }
    assert_eq!((a.node.staged(), b.delivered.len()), (0, 4));
}
