//! Plain peers: machines that speak WireGuard and have no daemon of ours, as phones and routers.
//!
//! Each is a node of the books that never asks for a map. Its machine key is one that nobody has:
//! a digest, so whoever has its WireGuard key cannot open a channel by it. Another node, its
//! gateway, carries it, and when that goes it goes too.

use control::HostInfo;
use control::limits::PEERS_MAX;
use noise::PublicKey;
use ring::digest::{Context, SHA256};
use serde_json::json;

use super::audit::record;
use super::keys::check_tags;
use super::life::Life;
use super::naming::check_name;
use super::nodes::{by_id, object};
use super::row::values;
use super::{Node, Store, StoreError, Stored, released, to_json, users};

/// Plain peers that one node carries, at most.
pub const CARRIED_MAX: u64 = 256;

/// What a new plain peer is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewPeer {
    /// Its name.
    pub name: String,
    /// Its WireGuard key.
    pub key: PublicKey,
    /// The node that carries it.
    pub gateway: u64,
    /// The name of the user whose it is.
    pub user: Option<String>,
    /// Its tags.
    pub tags: Vec<String>,
    /// Seconds from now until its key ends.
    pub lifetime_s: Option<u64>,
}

/// The machine key of a plain peer: the same for the same WireGuard key, so that it gets its
/// address again, and nobody's.
fn machine_of(key: &PublicKey) -> PublicKey {
    let mut context = Context::new(&SHA256);
    context.update(b"warren plain peer, which has no machine key\0");
    context.update(&key.0);
    let mut machine = [0; 32];
    machine.copy_from_slice(context.finish().as_ref());
    PublicKey(machine)
}

impl Store {
    /// Puts a plain peer into the books.
    ///
    /// # Errors
    /// [`StoreError::Missing`] for an unknown gateway or user; [`StoreError::Invalid`] for a name,
    /// tag or gateway that is none; [`StoreError::Conflict`] if name or key are taken;
    /// [`StoreError::Full`].
    pub fn add_peer(&mut self, new: &NewPeer, actor: &str, now: u64) -> Stored<Node> {
        check_name(&new.name)?;
        check_tags(&new.tags)?;
        if new.key.has_top_bit() {
            let why = "this public key has its top bit set, as no key that was computed has; make \
                       a new key pair";
            return Err(StoreError::Invalid(why.to_owned()));
        }
        let pool = self.pool;
        self.write(|tx| {
            let gateway = by_id(tx, new.gateway)?;
            if gateway.gateway.is_some() {
                return Err(StoreError::Invalid(format!(
                    "{} is a plain WireGuard peer itself and carries nobody; name a node with a \
                     daemon",
                    gateway.name
                )));
            }
            let sql = "SELECT count(*) FROM nodes WHERE gateway = $1";
            if tx.value::<u64>(sql, values![new.gateway])? >= CARRIED_MAX {
                return Err(StoreError::Conflict(format!(
                    "{} carries {CARRIED_MAX} plain peers already; choose another gateway",
                    gateway.name
                )));
            }
            if tx.value::<u64>("SELECT count(*) FROM nodes", &[])? > PEERS_MAX as u64 {
                return Err(StoreError::Full);
            }
            let machine = machine_of(&new.key);
            let taken = "SELECT EXISTS (SELECT 1 FROM nodes WHERE node_key = $1)";
            if tx.value(taken, values![&new.key.0[..]])? {
                let why = "another node has this public key; make a new key pair";
                return Err(StoreError::Conflict(why.to_owned()));
            }
            released::forget(tx, now)?;
            if released::is_taken(tx, &new.name, &machine, 0)? {
                return Err(StoreError::Conflict(format!(
                    "another node is called {:?}, or was until lately",
                    new.name
                )));
            }
            let user = new.user.as_deref().map(|name| users::id_of(tx, name)).transpose()?;
            let number = released::number(tx, pool, &machine)?;
            let host = HostInfo { hostname: new.name.clone(), ..HostInfo::default() };
            let life = Life::new(new.lifetime_s, now);
            let sql = "INSERT INTO nodes (machine_key, node_key, name, number, \"user\", tags,
                       ephemeral, approved, created, begun, expires, host, gateway)
                       VALUES ($1, $2, $3, $4, $5, $6, 0, 1, $7, $7, $8, $9, $10)
                       RETURNING id";
            let values = values![
                &machine.0[..],
                &new.key.0[..],
                new.name.as_str(),
                number,
                user,
                to_json(&new.tags),
                now,
                life.expires,
                to_json(&host),
                new.gateway
            ];
            let id: u64 = tx.value(sql, values)?;
            let detail = json!({ "name": new.name, "key": new.key.to_string(),
                                 "gateway": gateway.name, "user": new.user, "tags": new.tags });
            record(tx, now, actor, "peer.add", &object(id), &detail)?;
            by_id(tx, id)
        })
    }
}
