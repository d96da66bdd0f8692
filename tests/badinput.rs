//! What is wrong outside must be told and must not hurt: devices, capabilities, names, ports,
//! requests, datagrams, signals.
//!
//! Each refusal is checked three ways: the program ends soon and with a failure, what it prints
//! names the thing that is wrong, and nothing of it is left behind. What is wrong at run time
//! (a request, a datagram) must leave everything else working.

#![allow(unreachable_pub, reason = "modules of one test program")]

#[path = "badinput/datagrams.rs"]
mod datagrams;
#[path = "badinput/ending.rs"]
mod ending;
#[path = "badinput/links.rs"]
mod links;
#[path = "badinput/refusals.rs"]
mod refusals;
#[path = "badinput/requests.rs"]
mod requests;
#[path = "badinput/secrets.rs"]
mod secrets;
mod support;
