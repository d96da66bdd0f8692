//! Names, resolvers, gateways and exits with real clients between network namespaces: `dig` asks,
//! `ping` and `curl` go through, `nft`, `ip` and files are looked at before and after.

#[path = "gate/aliases.rs"]
mod aliases;
#[path = "gate/auto.rs"]
mod auto;
#[path = "gate/boxes.rs"]
mod boxes;
#[path = "gate/doctor.rs"]
mod doctor;
#[path = "gate/exits.rs"]
mod exits;
#[path = "gate/forged.rs"]
mod forged;
#[path = "gate/names.rs"]
mod names;
#[path = "gate/phones.rs"]
mod phones;
#[path = "gate/robots.rs"]
mod robots;
#[path = "gate/rogue.rs"]
mod rogue;
#[path = "gate/routes.rs"]
mod routes;
#[path = "gate/set.rs"]
mod set;
mod support;
#[path = "gate/taken.rs"]
mod taken;
#[path = "gate/world.rs"]
mod world;
