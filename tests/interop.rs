//! Against implementations that are not ours, and as one link of two of ours.
//!
//! [`foreign`] is the matrix: the program under test against wireguard-go (the newest on PATH)
//! and against boringtun (the crate, in a thread of this test with a TUN of its own), in both
//! roles, over both outer families, with and without a preshared key; then what changes a
//! running link: roaming, new sessions, keepalives, new keys. [`link`] is what source 004 asks of
//! a link of two nodes, statement by statement (004.5 numbers 1, 10 to 14). [`clock`] is
//! the part of it that is about time, [`keys`] what is about keys that change by a schedule, and
//! [`carriers`] the part about networks without UDP (3 to 8, 16). [`translate`] is about rewritten
//! addresses, and [`quick`] is wg-quick, which knows us by a name only.

#![allow(unreachable_pub, reason = "modules of one test program")]

#[path = "interop/boring.rs"]
mod boring;
#[path = "interop/carriers.rs"]
mod carriers;
#[path = "interop/clock.rs"]
mod clock;
#[path = "interop/compress.rs"]
mod compress;
#[path = "interop/foreign.rs"]
mod foreign;
#[path = "interop/keys.rs"]
mod keys;
#[path = "interop/link.rs"]
mod link;
#[path = "interop/quick.rs"]
mod quick;
#[path = "interop/replays.rs"]
mod replays;
#[path = "interop/rotation.rs"]
mod rotation;
mod support;
#[path = "interop/translate.rs"]
mod translate;
