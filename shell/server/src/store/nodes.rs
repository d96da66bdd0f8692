//! Nodes: joining, what becomes of them, and leaving.

use std::collections::BTreeSet;

use control::limits::{LABEL_LEN_MAX, PEERS_MAX};
use control::{HostInfo, Prefix, name};
use noise::PublicKey;
use serde_json::json;

use super::audit::record;
use super::db::{Db, Row, Tx, values};
use super::keys::check_tags;
use super::{Store, StoreError, Stored, keys, list, to_json};

/// How long an address waits after its node is gone, so that nobody is taken for the one before.
const QUARANTINE_S: u64 = 7 * 86_400;

/// A node as it is in the books.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Its number in the books; never given twice.
    pub id: u64,
    /// The key that its channel proves.
    pub machine_key: PublicKey,
    /// Its WireGuard key.
    pub node_key: PublicKey,
    /// Its name.
    pub name: String,
    /// Its place in the ranges.
    pub number: u32,
    /// Whose it is.
    pub user: Option<String>,
    /// Its tags.
    pub tags: Vec<String>,
    /// It is removed when it was away for a while.
    pub ephemeral: bool,
    /// An administrator, or its key, let it in.
    pub approved: bool,
    /// When it joined, in Unix seconds.
    pub created: u64,
    /// When its key ends, in Unix seconds.
    pub expires: Option<u64>,
    /// When it was last in touch, as far as that was recorded, in Unix seconds.
    pub last_seen: Option<u64>,
    /// What it says of itself.
    pub host: HostInfo,
    /// Prefixes that may be routed through it, if it offers them.
    pub approved_routes: Vec<Prefix>,
}

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

impl Node {
    /// The routes that others are told: offered and approved.
    #[must_use]
    pub fn routes(&self) -> Vec<Prefix> {
        let offered: BTreeSet<_> = self.host.routes.iter().collect();
        self.approved_routes.iter().filter(|prefix| offered.contains(prefix)).copied().collect()
    }

    /// Whether its key is over.
    #[must_use]
    pub fn is_expired(&self, now: u64) -> bool {
        self.expires.is_some_and(|expires| now >= expires)
    }
}

/// The question about nodes, with its end.
macro_rules! nodes {
    ($end:literal) => {
        concat!(
            "SELECT n.id, machine_key, node_key, n.name, number, u.name, tags, ephemeral, approved,
             n.created, expires, last_seen, host,
             (SELECT string_agg(prefix, ' ' ORDER BY prefix) FROM approved_routes
              WHERE node = n.id)
             FROM nodes n LEFT JOIN users u ON u.id = n.\"user\" ",
            $end
        )
    };
}

fn read(row: &Row) -> Stored<Node> {
    let host: String = row.read(12)?;
    let routes: Option<String> = row.read(13)?;
    let routes = routes.unwrap_or_default();
    Ok(Node {
        id: row.read(0)?,
        machine_key: PublicKey(row.read(1)?),
        node_key: PublicKey(row.read(2)?),
        name: row.read(3)?,
        number: row.read(4)?,
        user: row.read(5)?,
        tags: list(&row.read::<String>(6)?),
        ephemeral: row.read(7)?,
        approved: row.read(8)?,
        created: row.read(9)?,
        expires: row.read(10)?,
        last_seen: row.read(11)?,
        host: serde_json::from_str(&host).unwrap_or_default(),
        approved_routes: routes.split(' ').filter_map(|text| text.parse().ok()).collect(),
    })
}

fn by_id(db: &Db, id: u64) -> Stored<Node> {
    let found = db.row(nodes!("WHERE n.id = $1"), values![id])?;
    read(&found.ok_or_else(|| StoreError::Missing(format!("node {id}")))?)
}

fn by_machine(db: &Db, key: &PublicKey) -> Stored<Option<Node>> {
    let found = db.row(nodes!("WHERE machine_key = $1"), values![&key.0[..]])?;
    found.as_ref().map(read).transpose()
}

fn object(id: u64) -> String {
    format!("node:{id}")
}

impl Store {
    /// All nodes in ascending order.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub fn nodes(&self) -> Stored<Vec<Node>> {
        self.db.rows(nodes!("ORDER BY n.id"), &[])?.iter().map(read).collect()
    }

    /// One node.
    ///
    /// # Errors
    /// [`StoreError::Missing`].
    pub fn node(&self, id: u64) -> Stored<Node> {
        by_id(&self.db, id)
    }

    /// Lets a machine in, or tells again that it is in. The join key is used up in the same
    /// transaction (threat CO-02). A machine that is in the books needs no join key: its own key,
    /// which the channel proves, is worth more (threat CO-03); if its time was over, it does.
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
                refresh(tx, node.id, joining, node.expires)?;
                return Ok(Registered { node: by_id(tx, node.id)?, is_new: false });
            }
            let key = keys::find(tx, joining.lookup)?.filter(|key| {
                let parts = [&joining.lookup[..], joining.secret].concat();
                ring::hmac::verify(&pepper, &parts, key.hash()).is_ok()
            });
            control::join::judge(key.as_ref().map(|key| &key.record), now)
                .map_err(StoreError::Key)?;
            let key = key.ok_or(StoreError::Key(control::join::Refused::Unknown))?;
            let sql = "UPDATE join_keys SET used = coalesce(used, $2)
                       WHERE id = $1 AND revoked IS NULL AND (reusable = 1 OR used IS NULL)";
            if tx.execute(sql, values![key.id, now])? != 1 {
                return Err(StoreError::Key(control::join::Refused::Used));
            }
            let expires = terms.lifetime_s.map(|s| now.saturating_add(s));
            let id = if let Some(node) = known {
                refresh(tx, node.id, joining, expires)?;
                node.id
            } else {
                insert(tx, joining, &key, (terms, expires), pool, now)?
            };
            let node = by_id(tx, id)?;
            let detail = json!({ "name": node.name, "key": key.id, "tags": node.tags });
            record(tx, now, &object(id), "node.enrol", &object(id), &detail)?;
            Ok(Registered { node, is_new: true })
        })
    }

    /// Records what a node says of itself.
    ///
    /// # Errors
    /// [`StoreError::Missing`].
    pub fn report(&mut self, id: u64, host: &HostInfo, now: u64) -> Stored<Node> {
        self.write(|tx| {
            let sql = "UPDATE nodes SET host = $2, last_seen = $3 WHERE id = $1";
            tx.execute(sql, values![id, to_json(host), now])?;
            by_id(tx, id)
        })
    }

    /// Gives a node another WireGuard key, and a new lifetime.
    ///
    /// # Errors
    /// [`StoreError::Missing`]; [`StoreError::WrongKey`] if another machine has that key.
    pub fn rotate(
        &mut self,
        id: u64,
        key: PublicKey,
        lifetime_s: Option<u64>,
        now: u64,
    ) -> Stored<Node> {
        self.write(|tx| {
            let before = by_id(tx, id)?;
            let sql = "SELECT EXISTS (SELECT 1 FROM nodes WHERE node_key = $1 AND id <> $2)";
            if tx.value(sql, values![&key.0[..], id])? {
                return Err(StoreError::WrongKey);
            }
            let expires = lifetime_s.map(|s| now.saturating_add(s)).or(before.expires);
            let sql = "UPDATE nodes SET node_key = $2, expires = $3 WHERE id = $1";
            tx.execute(sql, values![id, &key.0[..], expires])?;
            let detail = json!({ "before": before.node_key.to_string(), "after": key.to_string() });
            record(tx, now, &object(id), "node.rotate", &object(id), &detail)?;
            by_id(tx, id)
        })
    }

    /// Gives a node another name.
    ///
    /// # Errors
    /// [`StoreError::Missing`]; [`StoreError::Invalid`] if it is no label, [`StoreError::Conflict`]
    /// if another node has it.
    pub fn rename(&mut self, id: u64, name: &str, actor: &str, now: u64) -> Stored<Node> {
        if !name::is_label(name) {
            return Err(StoreError::Invalid(format!(
                "{name:?} is no name for a node; one is 1 to {LABEL_LEN_MAX} lower-case letters, \
                 digits and hyphens"
            )));
        }
        self.write(|tx| {
            let before = by_id(tx, id)?;
            let sql = "SELECT EXISTS (SELECT 1 FROM nodes WHERE name = $1 AND id <> $2)";
            if tx.value(sql, values![name, id])? {
                return Err(StoreError::Conflict(format!("another node is called {name:?}")));
            }
            tx.execute("UPDATE nodes SET name = $2 WHERE id = $1", values![id, name])?;
            let detail = json!({ "before": before.name, "after": name });
            record(tx, now, actor, "node.rename", &object(id), &detail)?;
            by_id(tx, id)
        })
    }

    /// Gives a node these tags and no others.
    ///
    /// # Errors
    /// [`StoreError::Missing`]; [`StoreError::Invalid`] for what is no tag.
    pub fn tag(&mut self, id: u64, tags: &[String], actor: &str, now: u64) -> Stored<Node> {
        check_tags(tags)?;
        self.write(|tx| {
            let before = by_id(tx, id)?;
            tx.execute("UPDATE nodes SET tags = $2 WHERE id = $1", values![id, to_json(&tags)])?;
            let detail = json!({ "before": before.tags, "after": tags });
            record(tx, now, actor, "node.tag", &object(id), &detail)?;
            by_id(tx, id)
        })
    }

    /// Lets a waiting node in.
    ///
    /// # Errors
    /// [`StoreError::Missing`].
    pub fn approve(&mut self, id: u64, actor: &str, now: u64) -> Stored<Node> {
        self.write(|tx| {
            let before = by_id(tx, id)?;
            tx.execute("UPDATE nodes SET approved = 1 WHERE id = $1", values![id])?;
            let detail = json!({ "before": before.approved, "after": true });
            record(tx, now, actor, "node.approve", &object(id), &detail)?;
            by_id(tx, id)
        })
    }

    /// Ends a node's key now; the node stays in the books and may join again with a join key.
    ///
    /// # Errors
    /// [`StoreError::Missing`].
    pub fn expire(&mut self, id: u64, actor: &str, now: u64) -> Stored<Node> {
        self.write(|tx| {
            let before = by_id(tx, id)?;
            tx.execute("UPDATE nodes SET expires = $2 WHERE id = $1", values![id, now])?;
            let detail = json!({ "before": before.expires, "after": now });
            record(tx, now, actor, "node.expire", &object(id), &detail)?;
            by_id(tx, id)
        })
    }

    /// Approves exactly these routes of a node, whether it offers them yet or not.
    ///
    /// # Errors
    /// [`StoreError::Missing`]; [`StoreError::Invalid`] for too many.
    pub fn approve_routes(
        &mut self,
        id: u64,
        routes: &[Prefix],
        actor: &str,
        now: u64,
    ) -> Stored<Node> {
        if routes.len() > control::limits::ROUTES_MAX {
            return Err(StoreError::Invalid("at most 256 routes for a node".to_owned()));
        }
        let pool = self.pool;
        let inside = |route: &&Prefix| {
            !route.is_default() && (route.overlaps(&pool.v4()) || route.overlaps(&pool.v6()))
        };
        if let Some(route) = routes.iter().find(inside) {
            return Err(StoreError::Invalid(format!(
                "{route} overlaps the network's own range; a route leads elsewhere"
            )));
        }
        self.write(|tx| {
            let before = by_id(tx, id)?;
            tx.execute("DELETE FROM approved_routes WHERE node = $1", values![id])?;
            for route in routes {
                let sql = "INSERT INTO approved_routes (node, prefix) VALUES ($1, $2)
                           ON CONFLICT DO NOTHING";
                tx.execute(sql, values![id, route.to_string()])?;
            }
            let detail = json!({ "before": before.approved_routes, "after": routes });
            record(tx, now, actor, "route.approve", &object(id), &detail)?;
            by_id(tx, id)
        })
    }

    /// Approves these routes of a node beside those that are approved.
    ///
    /// # Errors
    /// [`StoreError::Missing`]; [`StoreError::Invalid`] for too many, or inside the own range.
    pub fn add_routes(
        &mut self,
        id: u64,
        routes: &[Prefix],
        actor: &str,
        now: u64,
    ) -> Stored<Node> {
        let mut all = self.node(id)?.approved_routes;
        all.extend(routes.iter().filter(|route| !all.contains(route)).copied().collect::<Vec<_>>());
        self.approve_routes(id, &all, actor, now)
    }

    /// Takes a node out of the books. Its address waits before another node gets it.
    ///
    /// # Errors
    /// [`StoreError::Missing`].
    pub fn remove(&mut self, id: u64, actor: &str, now: u64) -> Stored<()> {
        self.write(|tx| {
            let node = by_id(tx, id)?;
            tx.execute("DELETE FROM nodes WHERE id = $1", values![id])?;
            let sql = "INSERT INTO released (number, until) VALUES ($1, $2)
                       ON CONFLICT (number) DO UPDATE SET until = excluded.until";
            tx.execute(sql, values![node.number, now.saturating_add(QUARANTINE_S)])?;
            let detail = json!({ "name": node.name, "key": node.node_key.to_string() });
            record(tx, now, actor, "node.remove", &object(id), &detail)
        })
    }

    /// Records when nodes were last in touch. Not audited; nothing depends on it.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub fn note_seen(&mut self, ids: &[u64], now: u64) -> Stored<()> {
        self.write(|tx| {
            for id in ids {
                tx.execute("UPDATE nodes SET last_seen = $2 WHERE id = $1", values![*id, now])?;
            }
            Ok(())
        })
    }
}

fn refresh(tx: &Tx<'_>, id: u64, joining: &Joining<'_>, expires: Option<u64>) -> Stored<()> {
    let sql = "UPDATE nodes SET node_key = $2, host = $3, expires = $4 WHERE id = $1";
    tx.execute(sql, values![id, &joining.node_key.0[..], to_json(joining.host), expires])?;
    Ok(())
}

fn insert(
    tx: &Tx<'_>,
    joining: &Joining<'_>,
    key: &keys::Found,
    (terms, expires): (Enrolment, Option<u64>),
    pool: control::address::Pool,
    now: u64,
) -> Stored<u64> {
    let count: u64 = tx.value("SELECT count(*) FROM nodes", &[])?;
    if count > PEERS_MAX as u64 {
        return Err(StoreError::Full);
    }
    let label = name::label_of(&joining.host.hostname);
    let mut failed = None;
    let name = name::unique(&label, |name| {
        let sql = "SELECT EXISTS (SELECT 1 FROM nodes WHERE name = $1)";
        tx.value(sql, values![name]).unwrap_or_else(|error| {
            failed = Some(error);
            false
        })
    });
    if let Some(error) = failed {
        return Err(error);
    }
    let number = next_number(tx, pool, now)?;
    let sql = "INSERT INTO nodes (machine_key, node_key, name, number, \"user\", join_key, tags,
               ephemeral, approved, created, expires, last_seen, host)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $10, $12) RETURNING id";
    tx.value(
        sql,
        values![
            &joining.machine_key.0[..],
            &joining.node_key.0[..],
            name,
            number,
            key.user,
            key.id,
            key.tags.as_str(),
            key.ephemeral,
            !terms.needs_approval,
            now,
            expires,
            to_json(joining.host)
        ],
    )
}

/// Addresses are given in sequence: the one after the last that was given, then around.
fn next_number(tx: &Tx<'_>, pool: control::address::Pool, now: u64) -> Stored<u32> {
    tx.execute("DELETE FROM released WHERE until <= $1", values![now])?;
    let sql = "SELECT number FROM nodes UNION SELECT number FROM released ORDER BY 1";
    let taken: Vec<u32> =
        tx.rows(sql, &[])?.iter().map(|row| row.read(0)).collect::<Stored<_>>()?;
    let from = super::setting(tx, "next_number")?.and_then(|text| text.parse().ok()).unwrap_or(1);
    let number = pool.allocate(from, &taken).ok_or(StoreError::Full)?;
    super::set(tx, "next_number", &number.saturating_add(1).to_string())?;
    Ok(number)
}
