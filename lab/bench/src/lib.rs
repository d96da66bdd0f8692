//! # bench: what Warren does beside others, measured by one command
//!
//! The life of one figure. `warren-lab bench link` gives [`link::run`] its settings and the path of
//! the program that is measured. The contestants are looked up ([`vpn`]): Warren, each rival that
//! is on this machine, and no VPN at all; one that is absent is skipped and named, with a hint
//! how to get it. Then rounds begin, and in each round every [`scenario`] is measured for every
//! contestant in turn (A B C A B C …), so that a change in the machine's mood hits all of them.
//!
//! One measurement is one new lab: [`ground`] makes two hosts and a veth, or the impaired wire,
//! and takes the offloads off where the scenario says so; the contestant starts a process in
//! each host and says when it is ready; [`load`] runs iperf3 or ping through it, with a limit of
//! time; processor time and memory of the daemons are read before and after. Nothing is left
//! for the next measurement to inherit: no cached TCP metrics, no warm daemon. A measurement that
//! fails is kept as a failure with its reason and never averaged away.
//!
//! The raw samples become figures in [`ratio`] (the ratio of two contestants is taken within
//! each round; what is reported is the median of these ratios, the smallest and the largest) and
//! [`row`] sets each beside the bound that is required. [`report`] holds all of that,
//! with the machine, the versions, the commit and the command line ([`facts`]), and writes it as
//! JSON; `sheet` writes it for people, as it does every page of every kind of run. A run that
//! proves nothing, because the machine was busy, the run too short or the build unfit, is marked
//! so in both.
//!
//! `warren-lab bench run` leads the same life on larger ground: [`ring`] has three hosts on one
//! wire, four kinds of weather and thirteen tests, and every VPN that is on the machine. Its
//! samples lie in a folder, one line each ([`ring::sample`]), so that hours of work survive an
//! interrupt, and [`page`] makes the report of them: cells that a failure empties, verdicts,
//! tables, charts; and a page of it for strangers.
//! docs/bench.md says what each test does and which traps are avoided.
//!
//! `warren-lab bench network` is about a whole network of ours ([`network`]): how long it takes to
//! be there, how it bears changes, what its relay carries; and what a server has to do for a
//! thousand nodes that are members and nothing else ([`crowd`]).
//!
//! `warren-lab bench carriers` sets the carriers of a link beside each other ([`carriers`]), and
//! `warren-lab bench nest` repeats source 004's two tests on its own line ([`nest`]).
//! `warren-lab bench sites` brings sites up and has their gateways die ([`sites`]), and
//! `warren-lab bench bandwidth` holds what `warren bandwidth` says against the truth
//! ([`bandwidth`]).
//!
//! What it is not: it makes no claim about other machines (all hosts share one), it judges no
//! protocol by its handshake, and it never tunes a contestant: each runs as its documentation
//! recommends.
//!
//! Room is left for more contestants: an adapter is a value of the trait [`vpn::Vpn`] with its
//! name, version, install hint and what it needs in each host, and nothing else here knows a VPN;
//! and for more tests: one is a variant of [`ring::Test`] and a method that measures it.

pub mod bandwidth;
pub mod carriers;
pub mod circuit;
pub mod crowd;
mod end;
pub mod facts;
pub mod ground;
mod iperf;
pub mod link;
pub mod load;
pub mod nest;
pub mod network;
pub mod page;
mod ping;
pub mod progress;
pub mod ratio;
pub mod report;
pub mod ring;
mod rounds;
pub mod row;
pub mod scenario;
mod sheet;
pub mod sites;
mod unread;
pub mod vpn;
