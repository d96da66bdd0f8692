//! Whether one node may reach another, and which rule says so.

use ::policy::{Explanation, in_family, pair};
use serde::Deserialize;
use serde_json::json;

use super::{Call, Problem, Reply};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    source: String,
    destination: String,
    protocol: u8,
    #[serde(default)]
    port: u16,
}

pub(super) fn explain(call: &Call) -> Result<Reply, Problem> {
    let Question { source, destination, protocol, port } = call.json()?;
    let now = call.app.now();
    let mut network = call.app.network();
    let addresses = |named: &str| {
        let found = network.called(named);
        let text = format!(
            "there is no node {named:?} and no user who has one, and it is no address and no name \
             of the policy's hosts"
        );
        if found.is_empty() { Err(Problem::new(404, "no such node", text)) } else { Ok(found) }
    };
    let from = addresses(&source)?;
    let to = addresses(&destination)?;
    let Some((source, destination)) = pair(&from, &to) else {
        let why = "the two have no address of the same family";
        return Err(Problem::new(400, "these never meet", why));
    };
    let protocol = in_family(protocol, destination);
    let found = network.explain((source, destination), (protocol, port), now);
    let (allowed, why, ends) = match found {
        None => (false, "the policy cannot be read, so nothing may pass".to_owned(), None),
        Some(Explanation::Denied(why)) => (false, why.to_string(), None),
        Some(Explanation::Allowed { rule, sender, receiver }) => {
            (true, rule.to_string(), Some([sender.0, receiver.0]))
        }
    };
    let [sender, receiver] = ends.map_or([None; 2], |[from, to]| [Some(from), Some(to)]);
    Ok(Reply::Json(json!({
        "schema": 1,
        "source": { "address": source, "node": sender },
        "destination": { "address": destination, "node": receiver },
        "protocol": protocol,
        "port": port,
        "policy": { "allowed": allowed, "why": why },
    })))
}
