//! One circuit cannot starve another: what ten floods leave of a line whose rate the hop knows.

use super::*;

/// What the line takes, and what each flood sends.
const LINE_BPS: u64 = 10_000_000;
const FLOOD_BPS: u64 = 5_000_000;
const FLOODS: usize = 10;
/// What the eleventh circuit sends: four fifths of its share, which is a 22nd, for each circuit has
/// answers as well, and a cell is a quarter longer than what it carries.
const QUIET_BPS: u64 = 270_000;
const LEN: usize = 1_200;
/// Client, entry, middle, exit: both circuits' clients share the line behind the entry.
const PATH: [usize; 3] = [2, 3, 4];

/// Shares of what the quiet circuit and of what all floods sent that left at the exit, and the
/// longest that a packet of the former took.
fn shares(knows_rate: bool, seed: u64) -> (f64, f64, Duration) {
    let mut world = World::new(seed);
    let ids: Vec<CircuitId> = (0..FLOODS).map(|_| world.built(0, &PATH)).collect();
    let quiet = world.built(1, &PATH);
    // Nothing is lost elsewhere.
    for pipe in world.pipes.values_mut() {
        let clear = Impairment { delay_us: 1_000, ..Impairment::NONE };
        *pipe = Pipe::new(clear, seed).expect("good");
    }
    // A modem with 100 ms of queue, which drops what comes when it is full.
    let waiting = (LINE_BPS / 80 / 1_500) as usize;
    let line = Impairment { rate_bps: LINE_BPS, limit_packets: waiting, ..Impairment::LINE };
    world.pipes.insert((PATH[0], PATH[1]), Pipe::new(line, seed).expect("good"));
    if knows_rate {
        let rate = format!("{}kbit", LINE_BPS * 95 / 100_000).parse().expect("a rate");
        world.nodes[PATH[0]].set_line_rate(rate);
    }
    let before = world.sent.len();
    let (mut flooded, mut asked) = (0, 0);
    let mut took = Duration::ZERO;
    for ms in 1..=4_000u64 {
        let due = |bps: u64| (bps * ms / 8_000) as usize / LEN;
        while flooded < due(FLOOD_BPS) {
            flooded += 1;
            for id in &ids {
                world.send_len(0, *id, PATH[2], LEN);
            }
        }
        while asked < due(QUIET_BPS) {
            asked += 1;
            world.send_len(1, quiet, PATH[2], LEN);
        }
        world.run(Duration::from_millis(1));
        let late = world.sent.values().filter(|sent| sent.client == 1).filter_map(|s| s.took);
        took = late.max().unwrap_or_default().max(took);
    }
    world.run(Duration::from_secs(1));
    let share = |client: usize| {
        let own = || world.sent.iter().filter(|(number, _)| **number >= before as u32);
        let all = own().filter(|(_, sent)| sent.client == client).count();
        let left = own().filter(|(_, sent)| sent.client == client && sent.left).count();
        left as f64 / all as f64
    };
    let crowded = world.nodes[PATH[0]].circuits().counters().dropped(Drop::Crowded);
    assert_eq!(crowded > 0, knows_rate, "what is dropped is counted");
    (share(1), share(0), took)
}

#[test]
fn ten_floods_leave_an_eleventh_circuit_its_share_of_a_line() {
    for seed in 1..=2 {
        let (quiet, flood, took) = shares(true, seed);
        assert!(quiet > 0.98, "seed {seed}: {quiet:.3} of the quiet circuit, {flood:.3} of floods");
        // The rest of the line is used.
        assert!(flood > 0.06, "seed {seed}: {flood:.3} of the floods");
        assert!(took < Duration::from_millis(180), "seed {seed}: {took:?}");
    }
    // The control: where nobody said how fast the line is, its queue knows no circuits.
    let (quiet, ..) = shares(false, 1);
    assert!(quiet < 0.6, "{quiet:.3}");
}

#[test]
fn where_a_hops_socket_is_full_cells_wait_and_leave_in_turns() {
    let mut world = World::new(3);
    let flood = world.built(0, &PATH);
    let quiet = world.built(1, &PATH);
    let weather = Impairment { delay_us: 1_000, ..Impairment::NONE };
    let hop = PATH[0];
    for pair in [(0, hop), (1, hop), (hop, PATH[1]), (PATH[1], PATH[2])] {
        world.pipes.insert(pair, Pipe::new(weather, 1).expect("good"));
    }
    world.run(Duration::from_secs(1));
    world.rooms.insert(hop, 0);
    let first = world.sent.len() as u32;
    (0..100).for_each(|_| world.send_len(0, flood, PATH[2], LEN));
    (0..4).for_each(|_| world.send_len(1, quiet, PATH[2], LEN));
    world.run(Duration::from_millis(10));
    let waiting = world.nodes[hop].circuits().waiting();
    assert!(waiting >= 104, "{waiting} wait");
    for _ in 0..10 {
        world.rooms.insert(hop, 1);
        world.run(Duration::from_millis(3));
    }
    let left = |world: &World, client: usize| {
        let own = world.sent.range(first..).filter(|(_, sent)| sent.client == client);
        own.filter(|(_, sent)| sent.left).count()
    };
    let some = [0, 1].map(|client| left(&world, client));
    assert!(some[1] == 4 && (4..=6).contains(&some[0]), "turn by turn: {some:?}");
    world.rooms.clear();
    world.run(Duration::from_secs(1));
    assert_eq!([0, 1].map(|client| left(&world, client)), [100, 4], "and nothing is lost");
}
