//! Sites: clouds and edges that are joined through gateways, from one file.
//!
//! A user writes which sites there are. This crate says what has to be true of them, compares that
//! with what the providers report, and gives the steps from one to the other, in order and each
//! with its reason. It calls no provider, reads no clock and keeps nothing: what is tagged as ours
//! at a provider is the only memory, so a lost laptop loses nothing.
//!
//! The life of one `apply`:
//!
//! 1. [`File::read`] reads the TOML file. Every mistake is told at once, with line and column.
//! 2. [`Numbering::new`] gives each site its network: `10.A.B.C`, where A is the provider, B the
//!    deployment and C the machine; the gateway is 254. It refuses networks that overlap, by the
//!    names of their sites. It is told which numbers are taken already, so that a site that goes
//!    moves nobody else.
//! 3. [`links`] lists which sites are joined: all pairs, a tree, or a star. [`through`] says of a
//!    tree and a star through whom a site reaches those with whom it is not joined itself.
//! 4. [`desired`] makes resources of it: what must exist at each provider, with its properties,
//!    and what each needs before it.
//! 5. The shell asks the providers what is there and gives a [`Report`]. Only what bears our tag
//!    is in it as ours.
//! 6. [`steps`] is the difference: what to create, change and delete, what comes first, and why.
//!    If everything is as it should be, there is no step.
//!
//! Destroying is the same with nothing desired: everything of ours goes, in the reverse order.
//!
//! Two promises hold for every input and are tested as properties. What is not ours is never in a
//! step. When all steps are done, the next difference is empty.
//!
//! Gateways may run strongSwan or OpenVPN instead of Warren; [`texts`] are their files, out of the
//! same plan.
//!
//! A site whose network collides with another one may join under an alias: it keeps its addresses,
//! and others know it by a network from the plan. The gateway rewrites one into the other.
//!
//! Bounds: [`SITES_MAX`] sites, [`FILE_BYTES_MAX`] bytes, [`MISTAKES_MAX`] mistakes told.

#![forbid(unsafe_code)]

mod aws;
mod azure;
mod backend;
mod desired;
mod file;
mod foreign;
mod graph;
mod mistake;
mod month;
mod number;
mod openstack;
mod prices;
mod ssh;
mod steps;
mod table;
mod through;

pub use backend::Backend;
pub use desired::desired;
pub use file::{FILE_BYTES_MAX, File, Host, Provider, SITES_MAX, Site, Topology};
pub use foreign::{Text, config, foreign_ends, made, mark, openvpn_folder, texts, unknown_end};
pub use graph::{Id, Kind, Known, Link, Properties, Resource, links, node_name, yes_or_no};
pub use mistake::{MISTAKES_MAX, Mistake};
pub use month::{MONTH_H, Month, month};
pub use number::{Capacity, Numbering, Place, Taken};
pub use openstack::DMZ;
pub use prices::Prices;
pub use ssh::{PROTOCOL, TAG_FILE};
pub use steps::{Action, Found, Report, Step, steps};
pub use through::{is_hub, through};

#[cfg(test)]
mod tests;
