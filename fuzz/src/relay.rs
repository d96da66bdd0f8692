//! Three connections of a relay, and anything at all on their streams.

use carrier::switch::Handled;
use carrier::{ConnectionId, Switch};
use noise::{Instant, PublicKey};
use wire::relay::{BadStream, Decoder, Frame, MEMORY_LEN_MAX};

/// The first byte says whose stream this is and how it is cut; the rest is the stream.
///
/// The same frames come out however it is cut; a good frame is what it says when it is written
/// again; what a switch takes of it, it passes on once, keeps, or counts (threats RL-02, RL-03,
/// RL-05).
pub fn relay(data: &[u8]) {
    let Some((first, stream)) = data.split_first() else { return };
    let whole = frames(stream, usize::MAX);
    let cut = usize::from(first >> 2) + 1;
    assert_eq!(frames(stream, cut), whole, "cut into {cut}");
    let mut switch = Switch::new();
    let keys = [1, 2, 3].map(|number| PublicKey([number; 32]));
    let ids = keys.map(|key| switch.admit(key, Instant::ZERO).expect("there is room").id);
    let from = ids[usize::from(first & 3).min(2)];
    for bytes in &whole.0 {
        let mut decoder = Decoder::default();
        decoder.room();
        feed(&mut decoder, bytes, usize::MAX, |frame| {
            let handled = switch.handle_frame(from, frame, Instant::ZERO);
            if let Handled::Absent(key) = handled {
                assert!(!keys.contains(&key));
                switch.handle_absent(from, &key, Instant::ZERO);
            }
        })
        .expect("it was written by us");
    }
    drain(&mut switch, &ids, &keys);
}

fn drain(switch: &mut Switch, ids: &[ConnectionId], keys: &[PublicKey]) {
    let mut out = Vec::new();
    for id in ids {
        while switch.poll_frames(*id, &mut out, usize::MAX, Instant::ZERO) {}
    }
    let mut received = 0;
    let mut decoder = Decoder::default();
    feed(&mut decoder, &out, usize::MAX, |frame| {
        if let Frame::Received { from, .. } = frame {
            received += 1;
            assert!(keys.contains(&PublicKey(**from)), "a key that nobody proved");
        }
    })
    .expect("a relay writes frames");
    let counters = switch.counters();
    assert_eq!((received, switch.queued()), (counters.sent, 0));
    assert_eq!(counters.received, counters.sent + counters.dropped_all());
}

/// Every frame that can be written again, written again, and how the stream ended.
fn frames(stream: &[u8], cut: usize) -> (Vec<Vec<u8>>, Result<(), BadStream>) {
    let mut all = Vec::new();
    let mut decoder = Decoder::default();
    let end = feed(&mut decoder, stream, cut, |frame| {
        let mut bytes = Vec::new();
        if frame.write(&mut bytes) {
            all.push(bytes);
        }
    });
    (all, end)
}

fn feed(
    decoder: &mut Decoder,
    mut rest: &[u8],
    cut: usize,
    mut take: impl FnMut(&Frame<'_>),
) -> Result<(), BadStream> {
    while !rest.is_empty() {
        let room = decoder.room();
        let len = cut.min(room.len()).min(rest.len());
        room[..len].copy_from_slice(&rest[..len]);
        decoder.fill(len);
        rest = &rest[len..];
        assert!(decoder.memory_len() <= MEMORY_LEN_MAX);
        while let Some(place) = decoder.poll_frame()? {
            take(&decoder.frame(&place));
        }
    }
    Ok(())
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let to = [2; 32];
    let mut long = vec![0];
    for datagram in [&[4; 100][..], &[4; 1400], &[4; 9000]] {
        Frame::Send { to: &to, datagram }.write(&mut long);
    }
    let mut others = vec![0x0d];
    Frame::Open(&[1; 96]).write(&mut others);
    Frame::Confirm(&[2; 36]).write(&mut others);
    Frame::Ping(&[3; 8]).write(&mut others);
    Frame::Send { to: &[9; 32], datagram: &[4; 32] }.write(&mut others);
    Frame::KeepAlive.write(&mut others);
    Frame::Received { from: &to, datagram: &[4; 32] }.write(&mut others);
    vec![long, others]
}
