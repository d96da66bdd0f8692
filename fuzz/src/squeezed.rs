//! Blocks that a peer says are compressed.

use wire::frame::{self, Frame, Squeezed};

/// Any bytes as a frame behind its kind (threat BC-01).
///
/// What opens has the length that was declared and may stand in a block; nothing is written behind
/// it, and what does not open writes nothing behind that length either.
pub fn squeezed(data: &[u8]) {
    let plain = [&[0x8c], data].concat();
    let Ok(Frame::Squeezed(squeezed)) = frame::parse(&plain) else { return };
    let declared = usize::from(squeezed.opened_len);
    assert!((1..=Squeezed::OPENED_LEN_MAX).contains(&declared) && !squeezed.block.is_empty());
    let mut memory = [0xee; Squeezed::OPENED_LEN_MAX];
    if let Some(opened) = link::open_squeezed(&squeezed, &mut memory) {
        assert_eq!(opened.len(), declared);
        assert!(Squeezed::may_hold(opened), "a frame that must not be there");
    }
    assert!(memory[declared..].iter().all(|&byte| byte == 0xee), "written behind the end");
}

/// A frame behind its kind: literals, then a run of their last byte.
pub(crate) fn block(literals: &[u8], run: usize) -> Vec<u8> {
    let opened = literals.len() + run + if run > 0 { 5 } else { 0 };
    let [low, high] = (opened as u16).to_le_bytes();
    let mut bytes = vec![0, low, high];
    let token = (literals.len().min(15) << 4) as u8;
    bytes.push(token | if run > 0 { 15 } else { 0 });
    if let Some(more) = literals.len().checked_sub(15) {
        bytes.extend(vec![255; more / 255]);
        bytes.push((more % 255) as u8);
    }
    bytes.extend(literals);
    if let Some(more) = run.checked_sub(19) {
        bytes.extend([1, 0]);
        bytes.extend(vec![255; more / 255]);
        bytes.extend([(more % 255) as u8, 0x50, 0, 0, 0, 0, 0]);
    }
    bytes
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let packet = crate::machine::inner(1, 2, 30);
    let mut chunk = vec![7; 40];
    frame::Chunk::write_fixed(1, 0, &mut chunk);
    let good = block(&packet, 0);
    vec![
        good.clone(),
        block(&packet, 400),
        block(&[0x45; 20], 1_475),
        block(&chunk, 0),
        block(&[&[0x8c], &good[..]].concat(), 0),
        [&block(&packet, 19)[..], &[0; 9]].concat(),
    ]
}
