//! The service as its users meet it: a real server, real TLS, real connections.

#![expect(clippy::unwrap_used, reason = "all of it is tests, also what they share")]

#[path = "service/api.rs"]
mod api;
#[path = "service/limits.rs"]
mod limits;
#[path = "service/nodes.rs"]
mod nodes;
#[path = "service/stage.rs"]
mod stage;
#[path = "service/trust.rs"]
mod trust;
