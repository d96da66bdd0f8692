//! # sim: a virtual internet
//!
//! The life of one packet here. A world of simulated machines hands it to a link. The link's
//! direction is a [`impair::Pipe`]: a line with a rate and a queue, and behind it the weather,
//! which delays, loses, doubles and reorders as an [`impair::Impairment`] says. The pipe does
//! not hold the packet: it answers with a [`impair::Verdict`], the time of arrival or the
//! reason why there is none, and whoever asked keeps the packet until then.
//!
//! What others send over the same line comes as [`cross`] says: evenly, by chance, or in bursts.
//!
//! On its way it may meet a [`nat::Nat`], which rewrites its addresses as the translators in
//! homes and mobile networks do: each combination of mapping and filtering behaviour that
//! RFC 4787 names, with expiry, port allocation and hairpinning.
//!
//! The machines are `node::Node`s, the same values that the daemon drives, and a
//! [`world::World`] is their driver in virtual time: it hands them packets, carries their
//! datagrams, and holds what they deliver against what was sent. [`world::storm`] makes one from
//! nothing but a seed, and lets go wrong what can.
//!
//! Time is a [`clock::Clock`] that moves only when it is told, and can jump or suspend as real
//! clocks do. Chance is a [`rng::Rng`]: a world with the same seed takes the same course, so a
//! failure found among ten thousand seeds is a number that anyone can run again.
//!
//! [`profile`] gives impairments their names (`low`, `medium`, `high`) and reads them as
//! people write them.
//!
//! The model is used twice. In virtual time it drives simulations; in real time `lab` pumps
//! real frames between network namespaces by the verdicts of the same [`impair::Pipe`]. What
//! holds in one can so be checked in the other.
//!
//! What this is not: it opens no socket and reads no clock, it knows no congestion control
//! (that is the business of whoever sends), and its generator is fit for no secret.

#![forbid(unsafe_code)]

pub mod clock;
pub mod cross;
pub mod impair;
pub mod nat;
pub mod profile;
pub mod rng;
pub mod stream;
pub mod tcp;
pub mod world;
