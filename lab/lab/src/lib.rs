//! # lab: networks to test on, made of namespaces
//!
//! The life of one lab. A test, a benchmark or `warren-lab up` asks [`netns::Net`] for a set of
//! network namespaces under one prefix. Each [`netns::Host`] is one namespace with its loopback
//! up, IPv6 on, CUBIC as its congestion control and its own `/etc`: what a program inside writes
//! to `/etc/resolv.conf` lands in the host's directory under `/run/warren-lab` and never in the
//! machine's. Hosts are joined by plain `veth` pairs, which cost nothing and change nothing, or
//! by a [`wire::Wire`], which is one pump moving real frames between two TAP devices through the
//! model of `sim::impair`: a line of a stated rate, delay, jitter, loss and reordering, seeded,
//! so that the same bad weather can be had twice.
//!
//! [`topology`] reads the same things from a file: hosts, routers with a kind of NAT, switches,
//! links, what is blocked and what is shaped. A mistake in the file is told with its line,
//! its column and how to mend it, before anything is created.
//!
//! Everything that is made is recorded in `/run/warren-lab/<prefix>` *before* it is made. So it
//! can be removed by whoever comes next: [`netns::Net`] on drop, the command line on SIGINT and
//! SIGTERM, and the next start under the same prefix when a run was killed outright. Only
//! recorded namespaces are touched, and only processes inside them are ended.
//!
//! What the lab is not: it simulates nothing (that is `sim`, in virtual time); it knows no VPN
//! (a program under test is just a command run in a host); and it is no isolation against
//! hostile programs: namespaces here keep tests apart, they do not jail them.
//!
//! A [`guest`] is a whole Linux in an emulator, with a kernel of its own; a [`machine`] is a host
//! with a systemd of its own on this kernel, for units and packages.
//!
//! In order of use: [`netns`] makes hosts, [`process`] holds what runs in them, [`topology`]
//! plans and builds whole networks, [`wire`] impairs them, [`proxy`] reads what passes, [`tls`] has
//! both ends of what is secret to nobody in particular, [`room`] gives hosts folders and runs what
//! a user would type, [`sites`] has clouds that are played, [`standing`] leaves labs up between two
//! commands, [`sys`] is the few system calls that the standard library lacks, and the only place
//! with unsafe code.

pub mod guest;
pub mod machine;
pub mod netns;
pub mod process;
pub mod proxy;
pub mod room;
pub mod sites;
pub mod standing;
pub mod sys;
pub mod tls;
pub mod topology;
pub mod wire;

pub use machine::Machine;
pub use netns::{Host, Net};
pub use process::Process;
