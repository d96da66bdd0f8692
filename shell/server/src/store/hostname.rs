//! A node's name follows what the node calls itself.

use control::{HostInfo, name};
use noise::PublicKey;
use serde_json::json;

use super::audit::record;
use super::db::Tx;
use super::row::values;
use super::{Stored, released};

/// A node, as far as its name goes.
pub(super) struct Called<'a> {
    pub(super) id: u64,
    pub(super) name: &'a str,
    pub(super) machine: &'a PublicKey,
    /// What it said of itself before.
    pub(super) host: &'a HostInfo,
}

/// Has a node's name follow its hostname, if it did before: a name that an administrator or a join
/// key gave stays.
pub(super) fn follow(tx: &Tx<'_>, node: &Called<'_>, host: &HostInfo, now: u64) -> Stored<()> {
    let [was, is] = [node.host, host].map(|host| name::label_of(&host.hostname));
    if was == is || !name::is_made_of(node.name, &was) {
        return Ok(());
    }
    let key: Option<u64> =
        tx.value("SELECT join_key FROM nodes WHERE id = $1", values![node.id])?;
    let mut failed = None;
    let name = name::unique(&is, |name| {
        let taken = released::is_taken(tx, name, node.machine, key.unwrap_or(0));
        name != node.name
            && taken.unwrap_or_else(|error| {
                failed = Some(error);
                false
            })
    });
    if let Some(error) = failed {
        return Err(error);
    }
    if name == node.name {
        return Ok(());
    }
    tx.execute("UPDATE nodes SET name = $2 WHERE id = $1", values![node.id, name.clone()])?;
    let at = format!("node:{}", node.id);
    let detail = json!({ "before": node.name, "after": name });
    record(tx, now, &at, "node.rename", &at, &detail)
}
