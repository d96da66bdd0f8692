//! Joining: which key lets a machine in, and what it becomes by that.
//!
//! Rights come from the key that is used now. A machine that is in the books with a key of its
//! own that is not over needs no join key, and stays what it is. One whose key is over comes by a
//! join key, and becomes what that key says: its user, its tags, its approval (threat CO-03).

use control::limits::PEERS_MAX;
use control::{HostInfo, name};
use noise::PublicKey;
use ring::hmac;
use serde_json::json;

use super::audit::record;
use super::db::Tx;
use super::hostname::follow;
use super::life::Life;
use super::nodes::{by_id, by_machine, object};
use super::row::values;
use super::{Node, Store, StoreError, Stored, keys, released, to_json};

/// A request to join, its machine proven by the channel.
pub struct Joining<'a> {
    /// The machine.
    pub machine_key: PublicKey,
    /// Its WireGuard key.
    pub node_key: PublicKey,
    /// The join key's look-up name.
    pub lookup: [u8; 8],
    /// The join key's secret.
    pub secret: &'a [u8; 16],
    /// What it says of itself.
    pub host: &'a HostInfo,
}

/// A machine that a user lets in, both proven.
pub struct Admission<'a> {
    /// The machine.
    pub machine_key: PublicKey,
    /// Its WireGuard key.
    pub node_key: PublicKey,
    /// What it says of itself.
    pub host: &'a HostInfo,
    /// The number of the user.
    pub user: u64,
}

/// Who a machine is let in by, and as what.
struct Rights<'a> {
    /// The join key, if it is one.
    key: Option<u64>,
    user: Option<u64>,
    tags: &'a str,
    ephemeral: bool,
}

/// What a network gives to those who join.
#[derive(Clone, Copy, Debug, Default)]
pub struct Enrolment {
    /// New nodes wait for an administrator.
    pub needs_approval: bool,
    /// How long a node's key lasts, in seconds.
    pub lifetime_s: Option<u64>,
}

/// What became of a request to join.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Registered {
    /// The node.
    pub node: Node,
    /// Whether the join key was used for it, rather than the machine's own.
    pub is_new: bool,
}

impl Store {
    /// Lets a machine in, or tells again that it is in. The join key is used up in the same
    /// transaction (threat CO-02). A machine that is in the books needs no join key: its own key,
    /// which the channel proves, is worth more (threat CO-03); if its time was over, it does, and
    /// has what that key gives.
    ///
    /// # Errors
    /// [`StoreError::Key`], [`StoreError::Full`], [`StoreError::WrongKey`] if another machine has
    /// this WireGuard key.
    pub fn enrol(
        &mut self,
        joining: &Joining<'_>,
        terms: Enrolment,
        now: u64,
    ) -> Stored<Registered> {
        let pool = self.pool;
        let pepper = self.pepper.clone();
        self.write(|tx| {
            let known = by_machine(tx, &joining.machine_key)?;
            let sql =
                "SELECT EXISTS (SELECT 1 FROM nodes WHERE node_key = $1 AND machine_key <> $2)";
            if tx.value(sql, values![&joining.node_key.0[..], &joining.machine_key.0[..]])? {
                return Err(StoreError::WrongKey);
            }
            if let Some(node) = known.as_ref().filter(|node| !node.is_expired(now)) {
                refresh(tx, node, joining, now)?;
                return Ok(Registered { node: by_id(tx, node.id)?, is_new: false });
            }
            let key = used(tx, &pepper, joining, now)?;
            let rights = Rights {
                key: Some(key.id),
                user: key.user,
                tags: &key.tags,
                ephemeral: key.ephemeral,
            };
            let node = let_in(tx, known, joining, &rights, terms, now, pool)?;
            Ok(Registered { node, is_new: true })
        })
    }

    /// Lets a machine in as a node of the user who says so: the same node as before if it comes
    /// back, with that user's rights and no others (threats CO-03, CO-04).
    ///
    /// # Errors
    /// [`StoreError::Full`]; [`StoreError::WrongKey`] if another machine has this WireGuard key;
    /// [`StoreError::Missing`] if there is no such user any more.
    pub fn admit(&mut self, admission: &Admission<'_>, terms: Enrolment, now: u64) -> Stored<Node> {
        let pool = self.pool;
        self.write(|tx| {
            let Admission { machine_key, node_key, host, user } = *admission;
            super::users::by_id(tx, user)?;
            let known = by_machine(tx, &machine_key)?;
            let sql =
                "SELECT EXISTS (SELECT 1 FROM nodes WHERE node_key = $1 AND machine_key <> $2)";
            if tx.value(sql, values![&node_key.0[..], &machine_key.0[..]])? {
                return Err(StoreError::WrongKey);
            }
            let joining = Joining { machine_key, node_key, lookup: [0; 8], secret: &[0; 16], host };
            let rights = Rights { key: None, user: Some(user), tags: "[]", ephemeral: false };
            let_in(tx, known, &joining, &rights, terms, now, pool)
        })
    }
}

/// Lets a machine in, new or as it comes back.
fn let_in(
    tx: &Tx<'_>,
    known: Option<Node>,
    joining: &Joining<'_>,
    by: &Rights<'_>,
    terms: Enrolment,
    now: u64,
    pool: control::address::Pool,
) -> Stored<Node> {
    let life = Life::new(terms.lifetime_s, now);
    let id = match &known {
        Some(node) => {
            readmit(tx, node, joining, by, terms, life)?;
            node.id
        }
        None => insert(tx, joining, by, terms, life, pool)?,
    };
    let node = by_id(tx, id)?;
    let before = known.map(|node| rights(&node));
    let actor = by.user.filter(|_| by.key.is_none()).map(|user| format!("user:{user}"));
    let detail = json!({ "name": node.name, "key": by.key, "tags": node.tags,
                         "before": before, "after": rights(&node) });
    record(tx, now, &actor.unwrap_or_else(|| object(id)), "node.enrol", &object(id), &detail)?;
    Ok(node)
}

/// What a key gives, as the log tells it.
fn rights(node: &Node) -> serde_json::Value {
    json!({ "user": node.user, "tags": node.tags, "ephemeral": node.ephemeral,
            "approved": node.approved, "routes": node.approved_routes })
}

/// The join key, used now.
fn used(tx: &Tx<'_>, pepper: &hmac::Key, joining: &Joining<'_>, now: u64) -> Stored<keys::Found> {
    let key = keys::find(tx, joining.lookup)?.filter(|key| {
        let parts = [&joining.lookup[..], joining.secret].concat();
        hmac::verify(pepper, &parts, key.hash()).is_ok()
    });
    control::join::judge(key.as_ref().map(|key| &key.record), now).map_err(StoreError::Key)?;
    let key = key.ok_or(StoreError::Key(control::join::Refused::Unknown))?;
    let sql = "UPDATE join_keys SET used = coalesce(used, $2)
               WHERE id = $1 AND revoked IS NULL AND (reusable = 1 OR used IS NULL)";
    if tx.execute(sql, values![key.id, now])? != 1 {
        return Err(StoreError::Key(control::join::Refused::Used));
    }
    Ok(key)
}

/// A machine that is in says again who it is.
fn refresh(tx: &Tx<'_>, node: &Node, joining: &Joining<'_>, now: u64) -> Stored<()> {
    if node.node_key == joining.node_key && node.host == *joining.host {
        return Ok(());
    }
    follow(tx, &node.called(), joining.host, now)?;
    let sql = "UPDATE nodes SET node_key = $2, host = $3 WHERE id = $1";
    tx.execute(sql, values![node.id, &joining.node_key.0[..], to_json(joining.host)])?;
    if node.node_key == joining.node_key {
        return Ok(());
    }
    let before = node.node_key.to_string();
    let after = joining.node_key.to_string();
    let at = object(node.id);
    let detail = json!({ "before": before, "after": after });
    record(tx, now, &at, "node.rotate", &at, &detail)
}

/// A machine that was in and is over comes back by a join key, as what that key makes it.
fn readmit(
    tx: &Tx<'_>,
    before: &Node,
    joining: &Joining<'_>,
    by: &Rights<'_>,
    terms: Enrolment,
    life: Life,
) -> Stored<()> {
    follow(tx, &before.called(), joining.host, life.begun)?;
    let sql = "UPDATE nodes SET node_key = $2, host = $3, begun = $4, expires = $5, renewable = $6,
               \"user\" = $7, join_key = $8, tags = $9, ephemeral = $10, approved = $11
               WHERE id = $1";
    let values = values![
        before.id,
        &joining.node_key.0[..],
        to_json(joining.host),
        life.begun,
        life.expires,
        life.renewable,
        by.user,
        by.key,
        by.tags,
        by.ephemeral,
        !terms.needs_approval
    ];
    tx.execute(sql, values)?;
    let after = by_id(tx, before.id)?;
    if (&before.user, &before.tags) != (&after.user, &after.tags) {
        // They were approved of somebody else.
        tx.execute("DELETE FROM approved_routes WHERE node = $1", values![before.id])?;
        tx.execute("UPDATE nodes SET ways = NULL WHERE id = $1", values![before.id])?;
    }
    Ok(())
}

fn insert(
    tx: &Tx<'_>,
    joining: &Joining<'_>,
    by: &Rights<'_>,
    terms: Enrolment,
    life: Life,
    pool: control::address::Pool,
) -> Stored<u64> {
    let count: u64 = tx.value("SELECT count(*) FROM nodes", &[])?;
    if count > PEERS_MAX as u64 {
        return Err(StoreError::Full);
    }
    released::forget(tx, life.begun)?;
    let (kept, kept_name) = released::redeem(tx, by.key.unwrap_or(0))?.unzip();
    let kept_name = kept_name.flatten();
    let label = kept_name.unwrap_or_else(|| name::label_of(&joining.host.hostname));
    let mut failed = None;
    let name = name::unique(&label, |name| {
        released::is_taken(tx, name, &joining.machine_key, by.key.unwrap_or(0)).unwrap_or_else(
            |error| {
                failed = Some(error);
                false
            },
        )
    });
    if let Some(error) = failed {
        return Err(error);
    }
    let number = match kept {
        Some(number) => number,
        None => released::number(tx, pool, &joining.machine_key)?,
    };
    let sql = "INSERT INTO nodes (machine_key, node_key, name, number, \"user\", join_key, tags,
               ephemeral, approved, created, begun, last_seen, expires, renewable, host)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10, $10, $11, $12, $13)
               RETURNING id";
    tx.value(
        sql,
        values![
            &joining.machine_key.0[..],
            &joining.node_key.0[..],
            name,
            number,
            by.user,
            by.key,
            by.tags,
            by.ephemeral,
            !terms.needs_approval,
            life.begun,
            life.expires,
            life.renewable,
            to_json(joining.host)
        ],
    )
}
