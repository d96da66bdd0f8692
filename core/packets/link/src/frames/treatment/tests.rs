//! The tables, row by row.

use super::*;

/// A packet that fits, of one segment.
const ONE: Size =
    Size { segments: 1, len: 1_000, segment_len: 960, header_len: 40, is_plain: true };
/// Bytes of the largest plaintext in these tests.
const ROOM: usize = 1_400;

fn treated(loss: Loss, class: Class, is_unit: bool, tells_delay: bool) -> Treatment {
    Treatment::of(loss, class, is_unit, || tells_delay)
}

#[test]
fn what_is_lost_says_what_is_done_for_whom() {
    use Class::{Opening, Ordered, Other};
    use Treatment::{Bare, Protected};
    let table = [
        // Nothing is lost: what has an order keeps it.
        (Loss::None, [Treatment::Ordered, Bare, Bare]),
        // Something is: all is protected.
        (Loss::Measured, [Protected, Protected, Protected]),
        // Nothing is known: what is in flows, and what opens them.
        (Loss::Assumed, [Protected, Protected, Bare]),
    ];
    for (loss, expected) in table {
        let found = [Ordered, Opening, Other].map(|class| treated(loss, class, false, false));
        assert_eq!(found, expected, "{loss:?}");
    }
    assert_eq!(treated(Loss::Assumed, Other, true, false), Protected, "a unit is of a flow");
}

#[test]
fn a_delay_is_told_where_nothing_else_tells_it() {
    for class in [Class::Ordered, Class::Opening, Class::Other] {
        assert_eq!(treated(Loss::None, class, false, true), Treatment::Told, "{class:?}");
        let asks = |loss, is_unit| {
            let mut asked = false;
            Treatment::of(loss, class, is_unit, || {
                asked = true;
                true
            });
            asked
        };
        assert!(asks(Loss::None, false), "{class:?}");
        assert!(!asks(Loss::None, true), "its head tells it, {class:?}");
        assert!(!asks(Loss::Measured, false) && !asks(Loss::Assumed, false), "{class:?}");
    }
    let in_block = [Treatment::Bare, Treatment::Ordered, Treatment::Told, Treatment::Protected];
    assert_eq!(in_block.map(Treatment::is_in_block), [false, false, true, true]);
}

#[test]
fn a_unit_has_segments_enough_and_says_all_of_them() {
    let unit = |size: Size, loss, class| size.is_unit(loss, class, ROOM, &Tuning::DEFAULT);
    let of = |segments| Size { segments, ..ONE };
    for (segments, expected) in
        [(1, false), (5, false), (6, true), (CHUNKS_MAX, true), (CHUNKS_MAX + 1, false)]
    {
        assert_eq!(unit(of(segments), Loss::None, Class::Ordered), expected, "{segments}");
    }
    assert!(!unit(Size { is_plain: false, ..of(6) }, Loss::None, Class::Ordered));
    assert!(!unit(
        Size { header_len: Head::HEADER_LEN_MAX + 1, ..of(6) },
        Loss::None,
        Class::Other
    ));
    let most = ROOM - Chunk::FIXED_LEN - Repair::FIXED_LEN;
    assert!(unit(Size { segment_len: most, ..of(6) }, Loss::None, Class::Other));
    assert!(!unit(Size { segment_len: most + 1, ..of(6) }, Loss::None, Class::Other));
}

#[test]
fn two_segments_are_a_unit_where_each_would_be_cut() {
    let pair = Size { segments: 2, len: limit(true, ROOM) + 1, ..ONE };
    let unit = |loss, class| pair.is_unit(loss, class, ROOM, &Tuning::DEFAULT);
    assert!(unit(Loss::Measured, Class::Ordered) && unit(Loss::Measured, Class::Other));
    assert!(unit(Loss::Assumed, Class::Ordered));
    assert!(!unit(Loss::Assumed, Class::Opening) && !unit(Loss::Assumed, Class::Other));
    assert!(!unit(Loss::None, Class::Ordered));
    let fitting = Size { len: limit(true, ROOM), ..pair };
    assert!(!fitting.is_unit(Loss::Measured, Class::Ordered, ROOM, &Tuning::DEFAULT));
}

#[test]
fn small_ones_wait_for_each_other_where_the_peer_reads_bundles() {
    let shape =
        |size, is_unit, treatment, bundles| Shape::of(size, is_unit, treatment, ROOM, bundles);
    let small = Size { len: 100, ..ONE };
    assert_eq!(shape(small, false, Treatment::Bare, true), Shape::Small);
    assert_eq!(shape(small, false, Treatment::Bare, false), Shape::Lone);
    assert_eq!(shape(ONE, false, Treatment::Bare, true), Shape::Lone, "two do not fit");
    let many = Size { segments: 6, ..small };
    assert_eq!(shape(many, true, Treatment::Protected, true), Shape::Unit);
    assert_eq!(shape(many, false, Treatment::Protected, true), Shape::Lone);
    // In a block there is room for less.
    let largest = (100..ROOM).rfind(|len| gather::is_small(*len, ROOM)).expect("some fit");
    let size = Size { len: largest, ..ONE };
    assert_eq!(shape(size, false, Treatment::Ordered, true), Shape::Small);
    assert_eq!(shape(size, false, Treatment::Protected, true), Shape::Lone);
}

#[test]
fn a_segment_alone_is_bare_whole_or_cut() {
    let alone = |tag: Option<u8>, protect: bool, len| {
        let upper = repair::table::Upper::Tcp;
        let manner = Manner {
            tag,
            upper,
            is_tcp: true,
            protect,
            ticket: None,
            now_us: 0,
            mtu: 0,
            room: ROOM,
        };
        Alone::of(&manner, len)
    };
    assert_eq!(alone(None, false, 9_000), Alone::Bare);
    for (tag, protect, most) in [
        (None, true, ROOM - Repair::FIXED_LEN),
        (Some(1), false, ROOM - Ordered::FIXED_LEN),
        (Some(1), true, ROOM - Ordered::FIXED_LEN - Repair::FIXED_LEN),
    ] {
        assert_eq!(alone(tag, protect, most), Alone::Whole, "{tag:?} {protect}");
        assert_eq!(alone(tag, protect, most + 1), Alone::Cut, "{tag:?} {protect}");
    }
}
