//! Routes for the resolvers of other names.

use std::net::IpAddr;

use serde::Deserialize;
use serde_json::json;

use super::handlers::Answer;
use super::{Call, Problem, Reply};
use crate::resolvers::{Record, Resolvers, Zone};

/// What somebody wants. Who says nothing of records leaves them as they are.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Wanted {
    upstreams: Vec<IpAddr>,
    zones: Vec<Zone>,
    records: Option<Vec<Record>>,
}

fn shown(call: &Call, resolvers: &Resolvers) -> Answer {
    Ok(Reply::Json(json!({
        "schema": 1,
        "domain": call.app.network().domain(),
        "upstreams": resolvers.upstreams,
        "zones": resolvers.zones,
        "records": resolvers.records,
    })))
}

pub(super) fn resolvers(call: &Call) -> Answer {
    let resolvers = call.app.store().resolvers()?;
    shown(call, &resolvers)
}

/// All of them at once; who leaves out a resolver takes it away.
pub(super) fn set_resolvers(call: &Call) -> Answer {
    let Wanted { upstreams, zones, records } = call.json()?;
    let records = match records {
        Some(records) => records,
        None => call.app.store().resolvers()?.records,
    };
    let resolvers = Resolvers { upstreams, zones, records };
    let domain = call.app.network().domain().to_owned();
    let checked = resolvers.checked(&domain);
    let new = checked.map_err(|why| Problem::new(400, "the resolvers are refused", why))?;
    call.app.set_resolvers(&new, &call.actor)?;
    shown(call, &new)
}
