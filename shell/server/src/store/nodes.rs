//! Nodes: joining, what becomes of them, and leaving.

use std::collections::BTreeSet;

use control::limits::WAYS_MAX;
use control::{Alias, HostInfo, Prefix, Ways};
use noise::PublicKey;
use serde_json::json;

use super::audit::record;
use super::db::{Db, Tx};
use super::hostname::{Called, follow};
use super::keys::check_tags;
use super::life::Life;
use super::naming::check_name;
use super::row::{Row, values};
use super::{Store, StoreError, Stored, list, released, to_json, users};

/// A key that ends within this time, in seconds, is told of: a week.
const EXPIRES_SOON_S: u64 = 7 * 86_400;

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
    /// When the life of its key began, in Unix seconds, if that is known.
    pub begun: Option<u64>,
    /// When its key ends, in Unix seconds.
    pub expires: Option<u64>,
    /// Until when its machine may renew the key although it is over, in Unix seconds.
    pub renewable: Option<u64>,
    /// When it was last in touch, as far as that was recorded, in Unix seconds.
    pub last_seen: Option<u64>,
    /// What it says of itself.
    pub host: HostInfo,
    /// Prefixes that may be routed through it, if it offers them.
    pub approved_routes: Vec<Prefix>,
    /// The node that carries it, if it is a plain peer.
    pub gateway: Option<u64>,
    /// Its place among gateways of sites, as it is told.
    pub ways: Ways,
}

impl Node {
    pub(super) const fn called(&self) -> Called<'_> {
        Called {
            id: self.id,
            name: self.name.as_str(),
            machine: &self.machine_key,
            host: &self.host,
        }
    }

    /// The routes that others are told: offered and approved.
    #[must_use]
    pub fn routes(&self) -> Vec<Prefix> {
        let offered: BTreeSet<_> = self.host.routes.iter().collect();
        self.approved_routes.iter().filter(|prefix| offered.contains(prefix)).copied().collect()
    }

    /// Which of these lead nowhere now, by its own word.
    #[must_use]
    pub fn down(&self) -> Vec<Prefix> {
        let is_approved = |route: &&Prefix| self.approved_routes.contains(route);
        self.host.down.iter().filter(is_approved).copied().collect()
    }

    /// Which of these stand for others, by its own word.
    #[must_use]
    pub fn aliases(&self) -> Vec<Alias> {
        let is_approved = |one: &&Alias| self.approved_routes.contains(&one.alias);
        self.host.aliases.iter().filter(is_approved).copied().collect()
    }

    /// Whether its key is over.
    #[must_use]
    pub fn is_expired(&self, now: u64) -> bool {
        self.expires.is_some_and(|expires| now >= expires)
    }

    /// Whether its own machine may give it another key: it is not over, or not for long and by
    /// nothing but its time.
    #[must_use]
    pub fn is_renewable(&self, now: u64) -> bool {
        !self.is_expired(now) || self.renewable.is_some_and(|until| now < until)
    }

    /// How long the key lasts in all, in seconds, if it ends and that is known.
    #[must_use]
    pub fn life_s(&self) -> Option<u64> {
        Some(self.expires?.saturating_sub(self.begun?))
    }

    /// Whether people are to be told that the key ends: within a week, unless it is over, or a week
    /// is half of its life and more.
    #[must_use]
    pub fn ends_soon(&self, now: u64) -> bool {
        let is_near = |end: u64| end <= now.saturating_add(EXPIRES_SOON_S);
        let is_short = self.life_s().is_some_and(|life_s| life_s <= 2 * EXPIRES_SOON_S);
        self.expires.is_some_and(is_near) && !is_short && !self.is_expired(now)
    }
}

/// The question about nodes, with its end.
macro_rules! nodes {
    ($end:literal) => {
        concat!(
            "SELECT n.id, machine_key, node_key, n.name, number, u.name, tags, ephemeral, approved,
             n.created, begun, expires, renewable, last_seen, host,
             (SELECT string_agg(prefix, ' ' ORDER BY prefix) FROM approved_routes
              WHERE node = n.id),
             n.gateway, ways
             FROM nodes n LEFT JOIN users u ON u.id = n.\"user\" ",
            $end
        )
    };
}

fn take_out(tx: &Tx<'_>, id: u64, actor: &str, now: u64) -> Stored<Node> {
    let node = by_id(tx, id)?;
    released::release(tx, id, now)?;
    tx.execute("DELETE FROM nodes WHERE id = $1", values![id])?;
    let detail = json!({ "name": node.name, "key": node.node_key.to_string() });
    record(tx, now, actor, "node.remove", &object(id), &detail)?;
    Ok(node)
}

fn read(row: &Row) -> Stored<Node> {
    let host: String = row.read(14)?;
    let routes: Option<String> = row.read(15)?;
    let ways: Option<String> = row.read(17)?;
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
        begun: row.read(10)?,
        expires: row.read(11)?,
        renewable: row.read(12)?,
        last_seen: row.read(13)?,
        host: serde_json::from_str(&host).unwrap_or_default(),
        approved_routes: routes.split(' ').filter_map(|text| text.parse().ok()).collect(),
        gateway: row.read(16)?,
        ways: ways.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default(),
    })
}

pub(super) fn by_id(db: &Db, id: u64) -> Stored<Node> {
    let found = db.row(nodes!("WHERE n.id = $1"), values![id])?;
    read(&found.ok_or_else(|| StoreError::Missing(format!("node {id}")))?)
}

pub(super) fn by_machine(db: &Db, key: &PublicKey) -> Stored<Option<Node>> {
    let found = db.row(nodes!("WHERE machine_key = $1"), values![&key.0[..]])?;
    found.as_ref().map(read).transpose()
}

pub(super) fn object(id: u64) -> String {
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

    /// Records what a node says of itself.
    ///
    /// # Errors
    /// [`StoreError::Missing`].
    pub fn report(&mut self, id: u64, host: &HostInfo, now: u64) -> Stored<Node> {
        self.write(|tx| {
            follow(tx, &by_id(tx, id)?.called(), host, now)?;
            let sql = "UPDATE nodes SET host = $2, last_seen = $3 WHERE id = $1";
            tx.execute(sql, values![id, to_json(host), now])?;
            by_id(tx, id)
        })
    }

    /// Gives a node another WireGuard key, and a new lifetime.
    ///
    /// # Errors
    /// [`StoreError::Missing`]; [`StoreError::WrongKey`] if another machine has that key;
    /// [`StoreError::Expired`] if the one before is over for too long.
    pub fn rotate(
        &mut self,
        id: u64,
        key: PublicKey,
        lifetime_s: Option<u64>,
        now: u64,
    ) -> Stored<Node> {
        self.write(|tx| {
            let before = by_id(tx, id)?;
            if !before.is_renewable(now) {
                return Err(StoreError::Expired);
            }
            let sql = "SELECT EXISTS (SELECT 1 FROM nodes WHERE node_key = $1 AND id <> $2)";
            if tx.value(sql, values![&key.0[..], id])? {
                return Err(StoreError::WrongKey);
            }
            let sql = "UPDATE nodes SET node_key = $2 WHERE id = $1";
            tx.execute(sql, values![id, &key.0[..]])?;
            if lifetime_s.is_some() || before.is_expired(now) {
                let life = Life::new(lifetime_s, now);
                let sql = "UPDATE nodes SET begun = $2, expires = $3, renewable = $4 WHERE id = $1";
                tx.execute(sql, values![id, life.begun, life.expires, life.renewable])?;
            }
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
        check_name(name)?;
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

    /// Gives a node to another user, or to nobody.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if there is no such node or user.
    pub fn give(&mut self, id: u64, user: Option<&str>, actor: &str, now: u64) -> Stored<Node> {
        self.write(|tx| {
            let before = by_id(tx, id)?;
            let owner = user.map(|name| users::id_of(tx, name)).transpose()?;
            tx.execute("UPDATE nodes SET \"user\" = $2 WHERE id = $1", values![id, owner])?;
            let detail = json!({ "before": before.user, "after": user });
            record(tx, now, actor, "node.move", &object(id), &detail)?;
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

    /// Ends a node's key now; the node stays in the books and may join again with a join key, and
    /// by nothing else.
    ///
    /// # Errors
    /// [`StoreError::Missing`].
    pub fn expire(&mut self, id: u64, actor: &str, now: u64) -> Stored<Node> {
        self.write(|tx| {
            let before = by_id(tx, id)?;
            tx.execute(
                "UPDATE nodes SET expires = $2, renewable = NULL WHERE id = $1",
                values![id, now],
            )?;
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

    /// Tells a node, if it is a gateway of sites, through whom it reaches others and whether it
    /// passes on.
    ///
    /// # Errors
    /// [`StoreError::Missing`]; [`StoreError::Invalid`] for too many words.
    pub fn set_ways(&mut self, id: u64, ways: &Ways, actor: &str, now: u64) -> Stored<Node> {
        if ways.through.len() > WAYS_MAX {
            return Err(StoreError::Invalid(format!("at most {WAYS_MAX} ways for a node")));
        }
        self.write(|tx| {
            let before = by_id(tx, id)?;
            let text = (!ways.is_empty()).then(|| to_json(ways));
            tx.execute("UPDATE nodes SET ways = $2 WHERE id = $1", values![id, text])?;
            let detail = json!({ "before": before.ways, "after": ways });
            record(tx, now, actor, "node.ways", &object(id), &detail)?;
            by_id(tx, id)
        })
    }

    /// Takes a node out of the books. Its address and its name wait before another gets them.
    ///
    /// # Errors
    /// [`StoreError::Missing`].
    pub fn remove(&mut self, id: u64, actor: &str, now: u64) -> Stored<()> {
        self.write(|tx| take_out(tx, id, actor, now).map(drop))
    }

    /// Takes a node out of the books by an administrator's word, who may give its name to another
    /// machine at once. Its address waits.
    ///
    /// # Errors
    /// [`StoreError::Missing`].
    pub fn dismiss(&mut self, id: u64, actor: &str, now: u64) -> Stored<()> {
        self.write(|tx| {
            let node = take_out(tx, id, actor, now)?;
            released::free_name(tx, &node.name)
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
