//! The frames of RFC 6455, section 5.7, and what is none.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// All payload of `bytes`, read in pieces of `cut`.
fn read(reader: &mut Reader, bytes: &[u8], cut: usize) -> Result<Vec<u8>, BadFrame> {
    let mut all = Vec::new();
    for piece in bytes.chunks(cut) {
        let mut piece = piece.to_vec();
        let len = reader.open(&mut piece)?;
        all.extend_from_slice(&piece[..len]);
    }
    Ok(all)
}

#[test]
fn the_examples_of_rfc_6455_are_read_as_it_says() {
    // "Hello" there is text; the same frames as bytes have another kind.
    for cut in 1..12 {
        let mut server = Reader::new(Side::Server);
        let whole = [&[0x82, 0x05][..], b"Hello"].concat();
        assert_eq!(read(&mut server, &whole, cut).unwrap(), b"Hello");
        let parts = [0x02, 0x03, 0x48, 0x65, 0x6c, 0x80, 0x02, 0x6c, 0x6f];
        assert_eq!(read(&mut server, &parts, cut).unwrap(), b"Hello");
        let ping = [&[0x89, 0x05][..], b"Hello"].concat();
        assert_eq!(read(&mut server, &ping, cut).unwrap(), b"");
        assert_eq!(server.poll_pong(), Some(&b"Hello"[..]));
        assert_eq!(server.poll_pong(), None, "once");
        let mut client = Reader::new(Side::Client);
        let masked = [0x82, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
        assert_eq!(read(&mut client, &masked, cut).unwrap(), b"Hello");
    }
    assert_eq!(Head::new(Kind::Binary, 256, None).bytes(), [0x82, 0x7e, 0x01, 0x00]);
    let long = [0x82, 0x7f, 0, 0, 0, 0, 0, 1, 0, 0];
    assert_eq!(Head::new(Kind::Binary, 65_536, None).bytes(), long);
    assert_eq!(Head::new(Kind::Pong, 5, Some([1, 2, 3, 4])).bytes(), [0x8a, 0x85, 1, 2, 3, 4]);
}

#[test]
fn a_ping_in_a_message_is_answered_and_what_follows_a_close_is_left() {
    let mut reader = Reader::new(Side::Server);
    let bytes = [&[0x02, 1, b'a', 0x89, 1, b'p', 0x80, 1, b'b', 0x88, 0, 0x82, 1, b'c'][..]];
    assert_eq!(read(&mut reader, &bytes.concat(), 3).unwrap(), b"ab");
    assert_eq!(reader.poll_pong(), Some(&b"p"[..]));
    assert!(reader.is_closed());
    // Of two pings the last one counts.
    let mut reader = Reader::new(Side::Server);
    read(&mut reader, &[0x89, 2, 1, 2, 0x89, 0, 0x8a, 1, 9], 4).unwrap();
    assert_eq!(reader.poll_pong(), Some(&[][..]));
}

#[test]
fn rl_18_what_is_no_websocket_ends_the_stream_and_nothing_is_held_for_it() {
    let eight = |high: u8, low: [u8; 2]| [0x82, 0x7f, high, 0, 0, 0, 0, 0, low[0], low[1]].to_vec();
    for (bytes, why) in [
        (vec![0xc2, 0], BadFrame::Reserved),
        (vec![0x81, 0], BadFrame::Text),
        (vec![0x83, 0], BadFrame::Kind(3)),
        (vec![0x8f, 0], BadFrame::Kind(15)),
        (vec![0x80, 0], BadFrame::Order),
        (vec![0x02, 0, 0x82, 0], BadFrame::Order),
        (vec![0x09, 0], BadFrame::Control),
        (vec![0x89, 0x7e], BadFrame::Control),
        (vec![0x82, 0x80], BadFrame::Mask),
        (vec![0x82, 0x7e, 0, 125], BadFrame::Length),
        (eight(0, [255, 255]), BadFrame::Length),
        (eight(0x80, [0, 0]), BadFrame::Length),
    ] {
        for cut in [1, 100] {
            let mut reader = Reader::new(Side::Server);
            assert_eq!(read(&mut reader, &bytes, cut), Err(why), "{bytes:?}");
        }
    }
    let unmasked = Reader::new(Side::Client).open(&mut [0x82, 1, 9]);
    assert_eq!(unmasked, Err(BadFrame::Mask));
    // A frame of 2^62 bytes costs what is there of it, and no more.
    let mut reader = Reader::new(Side::Server);
    assert_eq!(read(&mut reader, &eight(0x40, [0, 0]), 3).unwrap(), b"");
    assert_eq!(read(&mut reader, &[7; 1000], 300).unwrap(), [7; 1000]);
}

proptest! {
    #[test]
    fn what_is_written_is_read_however_it_is_cut(
        messages in vec((vec(any::<u8>(), 0..300), any::<[u8; 4]>()), 0..6),
        long in 65_000_usize..66_000,
        cut in 1_usize..100,
        from_client: bool,
    ) {
        let (mut wire, mut sent) = (Vec::new(), Vec::new());
        let long = (vec![0x5a; long], [9, 8, 7, 6]);
        for (body, key) in messages.into_iter().chain([long]) {
            sent.extend_from_slice(&body);
            let key = from_client.then_some(key);
            wire.extend_from_slice(Head::new(Kind::Binary, body.len(), key).bytes());
            let at = wire.len();
            wire.extend_from_slice(&body);
            if let Some(key) = key {
                mask(&mut wire[at..], key, 0);
            }
        }
        let mut reader = Reader::new(if from_client { Side::Client } else { Side::Server });
        prop_assert_eq!(read(&mut reader, &wire, cut).unwrap(), sent);
    }
}
