//! A month of the paths between gateways of sites.

use serde_json::json;

use super::handlers::Answer;
use super::{Call, Problem, Reply};
use crate::paths::{DAYS, Hour};

/// Hours in one answer, about 3 MB of JSON.
const TOLD_MAX: u32 = 20_000;

/// Every hour of the last `days`, one if nothing is said, the newest first; gateways that are gone
/// are left out.
pub(super) fn paths(call: &Call) -> Answer {
    let days = call.number("days")?.unwrap_or(1);
    if !(1..=DAYS).contains(&days) {
        let why = format!("days is a number from 1 to {DAYS}");
        return Err(Problem::new(400, "the query is wrong", why));
    }
    let store = call.app.store();
    let there: Vec<u64> = store.nodes()?.iter().map(|node| node.id).collect();
    let from = call.app.now().saturating_sub(days * 86_400);
    let mut hours = store.hours(from, TOLD_MAX + 1)?;
    drop(store);
    let is_cut = hours.len() > TOLD_MAX as usize;
    let running = call.app.hours();
    hours.splice(0..0, running.running().cloned());
    drop(running);
    let is_there = |id: u64| there.binary_search(&id).is_ok();
    hours.retain(|hour: &Hour| is_there(hour.node) && is_there(hour.peer));
    let is_cut = is_cut || hours.len() > TOLD_MAX as usize;
    hours.truncate(TOLD_MAX as usize);
    Ok(Reply::Json(json!({ "schema": 1, "hours": hours, "older_left_out": is_cut })))
}
