//! Anything at all as the frames of a WebSocket.

use wire::websocket::{BadFrame, CONTROL_LEN_MAX, Head, Kind, Reader, Side, mask};

/// The first byte says whose frames these are and how they are cut; the rest is the stream.
///
/// The same payload comes out however it is cut, and is written again as it is read; what is asked
/// with a ping is never longer than it may be (threat RL-18).
pub fn websocket(data: &[u8]) {
    let Some((first, stream)) = data.split_first() else { return };
    let side = if first & 1 == 0 { Side::Client } else { Side::Server };
    let (payload, end) = read(side, stream, stream.len().max(1));
    let (in_parts, end_in_parts) = read(side, stream, usize::from(first >> 1) + 1);
    assert_eq!(end_in_parts, end);
    // What stands before a frame that is none is lost with it where both came at once.
    assert!(in_parts == payload || end.is_err() && in_parts.starts_with(&payload));
    let key = (side == Side::Client).then_some([first.wrapping_mul(7), 2, 3, 4]);
    let mut written = Head::new(Kind::Binary, payload.len(), key).bytes().to_vec();
    let at = written.len();
    written.extend_from_slice(&payload);
    if let Some(key) = key {
        mask(&mut written[at..], key, 0);
    }
    assert_eq!(read(side, &written, 700), (payload, Ok(())));
}

/// All payload until the end, or until what is no frame.
fn read(side: Side, stream: &[u8], cut: usize) -> (Vec<u8>, Result<(), BadFrame>) {
    let mut reader = Reader::new(side);
    let mut payload = Vec::new();
    for piece in stream.chunks(cut) {
        let mut bytes = piece.to_vec();
        match reader.open(&mut bytes) {
            Ok(len) => payload.extend_from_slice(&bytes[..len]),
            Err(why) => return (payload, Err(why)),
        }
        let pong = reader.poll_pong().map_or(0, <[u8]>::len);
        assert!(pong <= CONTROL_LEN_MAX);
    }
    (payload, Ok(()))
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let frame = |kind, body: &[u8], key: Option<[u8; 4]>| {
        let mut bytes = Head::new(kind, body.len(), key).bytes().to_vec();
        let at = bytes.len();
        bytes.extend_from_slice(body);
        if let Some(key) = key {
            mask(&mut bytes[at..], key, 0);
        }
        bytes
    };
    let all = |key| {
        let mut ping = frame(Kind::Pong, b"ping", key);
        ping[0] = 0x89;
        let mut begun = frame(Kind::Binary, b"one ", key);
        begun[0] = 0x02;
        let mut rest = frame(Kind::Binary, &[9; 200], key);
        rest[0] = 0x80;
        [begun, ping, rest, frame(Kind::Binary, b"whole", key), frame(Kind::Close, &[], key)]
            .concat()
    };
    let client = [&[6][..], &all(Some([9, 8, 7, 6]))].concat();
    let server = [&[7][..], &all(None)].concat();
    vec![client, server]
}
