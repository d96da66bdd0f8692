//! Cells that are held back, and cells that carry nothing: what they do, and what they cost.

use super::*;
use crate::WAITING_MAX;

#[test]
fn ci_06_cells_of_several_circuits_leave_a_hop_together_in_an_order_of_chance() {
    let mut net = Net::new(4);
    net.machines[1].set_batch(Duration::from_millis(40));
    let ids = [(); 2].map(|()| {
        let id = net.open(&[1, 2, 3]);
        net.pass(Duration::from_secs(1));
        assert_eq!(net.state(id), State::Open, "it is built through a hop that holds cells back");
        id
    });
    let mut firsts = BTreeSet::new();
    for round in 0..20u8 {
        net.pass(Duration::from_millis(100));
        net.got.clear();
        for (of, id) in ids.into_iter().enumerate() {
            for number in 0..3u8 {
                let payload = [round, of as u8, number];
                let packet = udp((net.local(id), 4000), (SERVER, 443), &payload);
                net.send(id, &packet).expect("open");
            }
        }
        net.run();
        assert_eq!(net.got.len(), 0, "they wait at the first hop");
        net.pass(Duration::from_millis(50));
        let came: Vec<[u8; 3]> =
            net.got.iter().map(|(_, packet)| [28, 29, 30].map(|at| packet[at])).collect();
        assert_eq!(came.len(), 6);
        for of in 0..2 {
            let own = came.iter().filter(|payload| payload[1] == of);
            let own: Vec<u8> = own.map(|payload| payload[2]).collect();
            assert_eq!(own, [0, 1, 2], "each circuit's cells keep their order");
        }
        firsts.insert(came[0][1]);
    }
    assert_eq!(firsts.len(), 2, "now one circuit is first, now the other");
    // What does not fit is dropped and counted.
    for _ in 0..=WAITING_MAX {
        net.send(ids[0], &udp((net.local(ids[0]), 1), (SERVER, 2), b"")).expect("open");
    }
    net.run();
    assert_eq!(net.dropped(1, Drop::Crowded), 1);
}

#[test]
fn ci_06_cells_that_carry_nothing_fill_silence_and_nothing_else() {
    let mut net = Net::new(4);
    let id = net.opened(&[1, 2, 3]);
    let frames = |net: &mut Net, seconds: u64| {
        net.seen.clear();
        net.pass(Duration::from_secs(seconds));
        let of =
            |from, to| net.seen.iter().filter(|sent| (sent.from, sent.to) == (from, to)).count();
        [of(0, 1), of(1, 2), of(2, 3), of(3, 2), of(2, 1), of(1, 0)]
    };
    assert_eq!(frames(&mut net, 4), [8; 6], "two questions a second, and their answers");
    net.machines[0].set_cover(10);
    let covered = frames(&mut net, 4);
    assert!(covered.iter().all(|count| (40..=48).contains(count)), "{covered:?}");
    assert!(covered.iter().all(|count| *count == covered[0]), "as many on each line, each way");
    let sizes: BTreeSet<usize> = net.seen.iter().map(|sent| sent.bytes.len()).collect();
    assert_eq!(sizes.len(), 2, "questions, and cells of the middle length: {sizes:?}");
    // Where packets go anyway nothing is added.
    net.seen.clear();
    for _ in 0..40 {
        let packet = udp((net.local(id), 4000), (SERVER, 443), &[0; 300]);
        net.send(id, &packet).expect("open");
        net.pass(Duration::from_millis(50));
    }
    let forth = net.seen.iter().filter(|sent| (sent.from, sent.to) == (0, 1)).count();
    assert!((40..=44).contains(&forth), "{forth} cells for 40 packets and four questions");
    carries(&mut net, id, 3, 40);
}
