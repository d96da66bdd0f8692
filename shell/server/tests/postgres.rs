//! The service with its books in PostgreSQL: the tests of the API, of nodes and of policies again,
//! and what only such a server does.

#![expect(clippy::unwrap_used, reason = "all of it is tests, also what they share")]
#![allow(dead_code, reason = "shared with tests/service.rs, which uses all of it")]

#[path = "service/api.rs"]
mod api;
#[path = "service/away.rs"]
mod away;
#[path = "service/cluster.rs"]
mod cluster;
#[path = "service/nodes.rs"]
mod nodes;
#[path = "service/policy.rs"]
mod policy;
#[path = "service/races.rs"]
mod races;
#[path = "service/sql.rs"]
mod sql;
#[path = "service/stage.rs"]
mod stage;

/// The URL of a new database for a new stage.
fn store(number: u32) -> Option<String> {
    Some(cluster::SHARED.database(&format!("stage_{number}")))
}
