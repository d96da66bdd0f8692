//! Nanoseconds per segment of the hot paths, on this machine.
//!
//! `cargo run --release -p warren-wire --example speed`

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    clippy::print_stdout,
    reason = "a bench asks the clock and prints its table; it is no part of the core"
)]

use std::hint::black_box;
use std::time::Instant;

use wire::checksum::Sum;
use wire::{coalesce, superpacket, virtio};

const SEGMENTS: usize = 45;
const PAYLOAD: usize = 1368;
const HEADERS: usize = 52;
const ROUNDS: usize = 20_000;

fn main() {
    let bytes = vec![0x5a; 1400];
    report("checksum 1400 B", 1, || {
        black_box(Sum::of(black_box(&bytes)).fold());
    });

    let (header, mut large) = tcp_superpacket();
    let mut arena = vec![0; SEGMENTS * (HEADERS + PAYLOAD)];
    let mut copy = arena.clone();
    report("copy 1420 B", SEGMENTS, || {
        for (to, from) in copy.chunks_exact_mut(1420).zip(arena.chunks_exact(1420)) {
            to.copy_from_slice(from);
        }
        black_box(&mut copy);
    });
    report("parse + write_segment 1368 B", SEGMENTS, || {
        let cut = superpacket::parse(header, &mut large).expect("it is well formed");
        let mut at = 0;
        for index in 0..cut.segments() {
            at += cut.write_segment(index, &mut arena[at..]);
        }
        black_box(&mut arena);
    });

    let first: Vec<u8> = arena[..HEADERS].to_vec();
    let mut coalescer = coalesce::Coalescer::new(SEGMENTS);
    report("coalesce push + flush", SEGMENTS, || {
        // The flush rewrote the first header.
        arena[..HEADERS].copy_from_slice(&first);
        for index in 0..SEGMENTS {
            let at = index * (HEADERS + PAYLOAD);
            coalescer.push(&mut arena, at..at + HEADERS + PAYLOAD).expect("there is room");
        }
        let mut groups = 0;
        coalescer.flush(&mut arena, |header, _, ranges| {
            groups += 1;
            black_box((header, ranges));
        });
        assert_eq!(groups, 1, "the segments must be merged");
    });
}

fn report(what: &str, parts: usize, mut once: impl FnMut()) {
    let mut best = f64::MAX;
    for _ in 0..7 {
        let rounds = ROUNDS / parts;
        let start = Instant::now();
        for _ in 0..rounds {
            once();
        }
        let ns = start.elapsed().as_nanos() as f64 / (rounds * parts) as f64;
        best = best.min(ns);
    }
    println!("{what:<32} {best:>8.1} ns");
}

fn tcp_superpacket() -> (virtio::Header, Vec<u8>) {
    let total = HEADERS + SEGMENTS * PAYLOAD;
    let mut bytes = vec![0x5a; total];
    bytes[..HEADERS].fill(0);
    bytes[0] = 0x45;
    bytes[2..4].copy_from_slice(&(total as u16).to_be_bytes());
    bytes[6] = 0x40;
    bytes[8..10].copy_from_slice(&[64, 6]);
    bytes[12..24].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2, 0x80, 0, 0x14, 0x51]);
    bytes[32..34].copy_from_slice(&[0x80, 0x10]);
    let header = virtio::Header {
        flags: virtio::FLAG_NEEDS_CSUM,
        gso_type: virtio::GSO_TCPV4,
        hdr_len: HEADERS as u16,
        gso_size: PAYLOAD as u16,
        csum_start: 20,
        csum_offset: 16,
    };
    (header, bytes)
}
