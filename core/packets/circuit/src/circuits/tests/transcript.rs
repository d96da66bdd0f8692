//! A transcript of one circuit over three hops: every frame of building it, one packet there and
//! one back, and its end. `tests/circuit/transcript.py`, which was written from the documents
//! alone, reads it too.

use std::fmt::Write as _;

use super::*;

const KEPT: &str = include_str!("transcript.txt");
/// What is drawn while it is built, in order: the client's mask and key; each hop's key, then the
/// client's next key and the hop's mask; and the token of the first question.
const DRAWS: [usize; 10] = [32, 32, 32, 32, 32, 32, 32, 32, 32, 8];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn made() -> String {
    let mut text = String::new();
    let mut net = Net::new(4);
    // The machines' keys were the first that this generator drew.
    let mut again = Seeded(4);
    for at in 0..4 {
        let private = PrivateKey::generate(&mut again);
        assert_eq!(private.public(), net.keys[at]);
        let _ = writeln!(text, "private {at} {}", hex(private.as_bytes()));
    }
    let mut draws = Seeded(net.random.0);
    for len in DRAWS {
        let mut drawn = vec![0; len];
        draws.fill(&mut drawn);
        let _ = writeln!(text, "draw {}", hex(&drawn));
    }
    let id = net.opened(&[1, 2, 3]);
    assert_eq!(net.random.0, draws.0, "nothing else was drawn");
    let write = |net: &mut Net, text: &mut String| {
        for Sent { from, to, bytes } in std::mem::take(&mut net.seen) {
            let _ = writeln!(text, "frame {from} {to} {}", hex(&bytes));
        }
    };
    write(&mut net, &mut text);
    let packet = udp((net.local(id), 4000), (SERVER, 443), b"there");
    let _ = writeln!(text, "sends {}", hex(&packet));
    net.got.clear();
    net.send(id, &packet).expect("open");
    net.run();
    write(&mut net, &mut text);
    let (_, left) = net.got.pop().expect("it left");
    let _ = writeln!(text, "leaves {}", hex(&left));
    let (from, to) = ends(&left);
    net.answer(3, udp(to, from, b"and back")).expect("a flow");
    net.run();
    write(&mut net, &mut text);
    let (_, back) = net.got.pop().expect("it came back");
    let _ = writeln!(text, "comes {}", hex(&back));
    let now = net.now;
    net.with(0, |client, _| client.close(id, true, now));
    net.run();
    write(&mut net, &mut text);
    text
}

#[test]
fn a_transcript_of_three_hops_is_what_it_was() {
    let made = made();
    for (at, (new, kept)) in made.lines().zip(KEPT.lines()).enumerate() {
        assert_eq!(new, kept, "line {}; if that is meant to be, keep this:\n{made}", at + 1);
    }
    assert_eq!(made.lines().count(), KEPT.lines().count());
}
