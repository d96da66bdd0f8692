//! Routes for the resolvers of other names.

use serde_json::json;

use super::handlers::Answer;
use super::{Call, Problem, Reply};
use crate::resolvers::Resolvers;

fn shown(call: &Call, resolvers: &Resolvers) -> Answer {
    Ok(Reply::Json(json!({
        "schema": 1,
        "domain": call.app.network().domain(),
        "upstreams": resolvers.upstreams,
        "zones": resolvers.zones,
    })))
}

pub(super) fn resolvers(call: &Call) -> Answer {
    let resolvers = call.app.store().resolvers()?;
    shown(call, &resolvers)
}

/// All of them at once; who leaves something out takes it away.
pub(super) fn set_resolvers(call: &Call) -> Answer {
    let resolvers: Resolvers = call.json()?;
    let domain = call.app.network().domain().to_owned();
    let checked = resolvers.checked(&domain);
    let new = checked.map_err(|why| Problem::new(400, "the resolvers are refused", why))?;
    call.app.set_resolvers(&new, &call.actor)?;
    shown(call, &new)
}
