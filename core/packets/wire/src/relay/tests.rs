//! Round trips, truncation, hostile lengths, and how much is moved.

use proptest::prelude::*;

use super::*;

const KEY: [u8; KEY_LEN] = [7; KEY_LEN];

/// Every frame of `bytes`, fed in pieces of the lengths that `cut` gives.
fn decode(bytes: &[u8], mut cut: impl FnMut() -> usize) -> (Vec<Vec<u8>>, Result<(), BadStream>) {
    let (mut decoder, mut rest, mut frames) = (Decoder::default(), bytes, Vec::new());
    loop {
        loop {
            match decoder.poll_frame() {
                Ok(Some(place)) => {
                    let mut printed = Vec::new();
                    decoder.frame(&place).write(&mut printed);
                    frames.push(printed);
                }
                Ok(None) => break,
                Err(why) => return (frames, Err(why)),
            }
        }
        if rest.is_empty() {
            return (frames, Ok(()));
        }
        let room = decoder.room();
        let len = cut().clamp(1, room.len()).min(rest.len());
        room[..len].copy_from_slice(&rest[..len]);
        decoder.fill(len);
        rest = &rest[len..];
        assert!(decoder.memory_len() <= MEMORY_LEN_MAX, "bounded");
    }
}

fn printed(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    assert!(frame.write(&mut bytes), "{frame:?}");
    bytes
}

#[test]
fn every_frame_comes_back_however_the_stream_is_cut() {
    let large = vec![9; DATAGRAM_LEN_MAX];
    let frames = [
        Frame::Send { to: &KEY, datagram: &[1, 2, 3] },
        Frame::Received { from: &KEY, datagram: &large },
        Frame::Ping(&[1; 8]),
        Frame::Pong(&[2; 8]),
        Frame::Gone(&KEY),
        Frame::Notice(Notice::Quarantined),
        Frame::KeepAlive,
        Frame::Open(&[5; 96]),
        Frame::Answer(&[6; 60]),
        Frame::Confirm(&[]),
    ];
    let bytes: Vec<Vec<u8>> = frames.iter().map(printed).collect();
    for cut in [1, 2, 7, 1000, 70_000] {
        let (got, end) = decode(&bytes.concat(), || cut);
        assert_eq!((got.len(), end), (bytes.len(), Ok(())), "pieces of {cut}");
        assert!(got == bytes, "pieces of {cut}");
    }
}

#[test]
fn the_header_of_a_datagram_is_that_of_the_frame() {
    let datagram = [5; 1400];
    let send = printed(&Frame::Send { to: &KEY, datagram: &datagram });
    assert_eq!(send[..DATAGRAM_HEADER_LEN], datagram_header(true, &KEY, 1400).unwrap());
    let received = printed(&Frame::Received { from: &KEY, datagram: &datagram });
    assert_eq!(received[..DATAGRAM_HEADER_LEN], datagram_header(false, &KEY, 1400).unwrap());
    assert_eq!(datagram_header(true, &KEY, 0), None);
    assert_eq!(datagram_header(true, &KEY, DATAGRAM_LEN_MAX + 1), None);
    assert!(datagram_header(true, &KEY, DATAGRAM_LEN_MAX).is_some());
}

#[test]
fn rl_05_a_length_above_64_kib_ends_the_stream_before_anything_is_held_for_it() {
    let (frames, end) = decode(&[KIND_SEND, 0xff, 0xff, 0, 0], || 5);
    assert_eq!((frames.len(), end), (0, Err(BadStream::Long)));
    let mut decoder = Decoder::default();
    let head = [KIND_SEND, 0xfd, 0xff];
    decoder.room()[..3].copy_from_slice(&head);
    decoder.fill(3);
    assert_eq!(decoder.poll_frame(), Ok(None));
    decoder.room();
    assert!(decoder.memory_len() <= FRAME_LEN_MAX, "as much as the longest frame");
}

#[test]
fn bodies_that_do_not_fit_their_kind_end_the_stream() {
    for (kind, len) in [
        (KIND_SEND, 0),
        (KIND_SEND, KEY_LEN),
        (KIND_RECEIVED, KEY_LEN),
        (KIND_PING, 7),
        (KIND_PONG, 9),
        (KIND_GONE, 31),
        (KIND_NOTICE, 0),
    ] {
        let bytes = [vec![kind, len as u8, 0], vec![0; len]].concat();
        assert_eq!(decode(&bytes, || 100).1, Err(BadStream::Body(kind)), "{kind} {len}");
    }
    for bytes in [vec![99, 2, 0, 1, 1], vec![KIND_NOTICE, 1, 0, 200]] {
        assert_eq!(decode(&bytes, || 100), (vec![vec![]], Ok(())), "passed over");
    }
}

#[test]
fn a_frame_that_is_cut_off_is_moved_once_and_memory_is_given_back() {
    let mut decoder = Decoder::default();
    let bytes = printed(&Frame::Send { to: &KEY, datagram: &[3; 1500] }).repeat(200);
    let mut rest = &bytes[..];
    let (mut count, mut moved) = (0, 0);
    while !rest.is_empty() {
        let before = decoder.start;
        let room = decoder.room();
        let len = room.len().min(rest.len());
        room[..len].copy_from_slice(&rest[..len]);
        moved += usize::from(decoder.start < before && decoder.end > 0);
        decoder.fill(len);
        rest = &rest[len..];
        while decoder.poll_frame().unwrap().is_some() {
            count += 1;
        }
    }
    assert_eq!(count, 200);
    assert!(moved <= 12, "{moved} pieces of 307,600 bytes: memory grows with what comes");
    assert!(decoder.memory_len() > 32 * 1024);
    decoder.release();
    assert_eq!(decoder.memory_len(), 0);
}

proptest! {
    /// Whatever comes is frames or a reason, the same ones however it is cut.
    #[test]
    fn any_bytes_are_read_the_same_in_any_pieces(
        bytes in prop::collection::vec(prop_oneof![4 => 0_u8..12, 1 => any::<u8>()], 0..600),
        cuts in prop::collection::vec(1_usize..40, 1..20),
    ) {
        let mut at = 0;
        let cut = || { at += 1; cuts[at % cuts.len()] };
        prop_assert_eq!(decode(&bytes, cut), decode(&bytes, || 1000));
    }

    /// What fills a datagram is one frame exactly when a stream of these bytes would be.
    #[test]
    fn rl_15_a_datagram_is_one_whole_frame_or_nothing(
        bytes in prop::collection::vec(prop_oneof![4 => 0_u8..12, 1 => any::<u8>()], 0..80),
    ) {
        let (frames, end) = decode(&bytes, || 1000);
        let first = split_first(&bytes).is_some_and(|(_, behind)| behind.is_empty());
        let is_one = frames.len() == 1 && end.is_ok() && first;
        prop_assert_eq!(whole(&bytes).is_some(), is_one);
        if let Some(frame) = whole(&bytes).filter(|frame| !matches!(frame, Frame::Unknown(_))) {
            prop_assert_eq!(printed(&frame), &bytes[..bytes.len().min(printed(&frame).len())]);
        }
    }
}
