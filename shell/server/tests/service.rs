//! The service as its users meet it: a real server, real TLS, real connections.

#![expect(clippy::unwrap_used, reason = "all of it is tests, also what they share")]

#[path = "service/api.rs"]
mod api;
#[path = "service/backup.rs"]
mod backup;
#[path = "service/badinput.rs"]
mod badinput;
#[path = "service/browser.rs"]
mod browser;
#[path = "service/clock.rs"]
mod clock;
#[path = "service/hostile.rs"]
mod hostile;
#[path = "service/limits.rs"]
mod limits;
#[path = "service/loopback.rs"]
mod loopback;
#[path = "service/matrix.rs"]
mod matrix;
#[path = "service/nodes.rs"]
mod nodes;
#[path = "service/people.rs"]
mod people;
#[path = "service/policy.rs"]
mod policy;
#[path = "service/provider.rs"]
mod provider;
#[path = "service/quic.rs"]
mod quic;
#[path = "service/races.rs"]
mod races;
#[path = "service/relay.rs"]
mod relay;
#[path = "service/restore.rs"]
mod restore;
#[path = "service/signin.rs"]
mod signin;
#[path = "service/sql.rs"]
mod sql;
#[path = "service/stage.rs"]
mod stage;
#[path = "service/surface.rs"]
mod surface;
#[path = "service/trust.rs"]
mod trust;
#[path = "service/websocket.rs"]
mod websocket;

/// Books in the server's own folder, unlike those of tests/postgres.rs.
const fn store(_: u32) -> Option<String> {
    None
}
