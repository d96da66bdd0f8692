//! Join keys and API tokens: a public look-up name and a keyed hash of the secret. The secret is in
//! the answer that made it and nowhere else (threats CO-01, WB-08).
//!
//! What a token made ends no later than the token does, and is taken back with it.

use core::net::Ipv4Addr;

use control::join::Record;
use control::name::is_tag;
use control::{Secret, SecretId};
use serde::Serialize;
use serde_json::json;

use super::audit::record;
use super::db::{Db, Tx};
use super::row::{Row, values};
use super::{Store, StoreError, Stored, list, relays, released, to_json, users};
use crate::roles::Role;

/// Join keys, and API tokens, that are kept; the oldest dead ones are no reason to refuse new ones.
const KEYS_MAX: u64 = 100_000;

/// What a new join key is to be.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NewJoinKey {
    /// For more than one node.
    pub reusable: bool,
    /// Its nodes are removed when they have been away for a while.
    pub ephemeral: bool,
    /// Seconds from now.
    pub lifetime_s: Option<u64>,
    /// Tags of its nodes.
    pub tags: Vec<String>,
    /// The name of the user to whom its nodes belong.
    pub user: Option<String>,
    /// The API token that makes it, if one does.
    pub maker: Option<u64>,
    /// The name that its one node gets.
    pub name: Option<String>,
    /// The IPv4 address that its one node gets.
    pub address: Option<Ipv4Addr>,
    /// The user who makes it, if one does.
    pub giver: Option<u64>,
}

/// What a new API token is to be.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NewApiToken {
    /// What it may do.
    pub scopes: Vec<String>,
    /// Seconds from now.
    pub lifetime_s: Option<u64>,
    /// The API token that makes it, if one does.
    pub maker: Option<u64>,
    /// The user who makes it, if one does: it may never do more than that user.
    pub giver: Option<u64>,
}

/// A secret that was made: what the books say of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Made {
    /// Its number.
    pub id: u64,
    /// When it ends, in Unix seconds: no later than what made it.
    pub expires: Option<u64>,
}

/// Who bears an API token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bearer {
    /// The token's number.
    pub id: u64,
    /// What it may do.
    pub scopes: Vec<String>,
}

/// A join key as it is listed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct JoinKey {
    /// Its number.
    pub id: u64,
    /// Its look-up name, which is in the token too.
    pub prefix: String,
    /// For more than one node.
    pub reusable: bool,
    /// Its nodes are removed when they have been away for a while.
    pub ephemeral: bool,
    /// Tags of its nodes.
    pub tags: Vec<String>,
    /// To whom its nodes belong.
    pub user: Option<String>,
    /// When it was made, RFC 3339.
    pub created: String,
    /// When it ends.
    pub expires: Option<String>,
    /// When it was first used.
    pub used: Option<String>,
    /// Whether it was taken back.
    pub revoked: bool,
}

/// An API token as it is listed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ApiToken {
    /// Its number.
    pub id: u64,
    /// Its look-up name, which is in the token too.
    pub prefix: String,
    /// What it may do.
    pub scopes: Vec<String>,
    /// When it was made, RFC 3339.
    pub created: String,
    /// When it ends.
    pub expires: Option<String>,
    /// When it was last used, to the minute.
    pub last_used: Option<String>,
    /// Whether it was taken back.
    pub revoked: bool,
}

/// What enrolment needs of a join key.
pub(super) struct Found {
    pub(super) id: u64,
    pub(super) record: Record,
    pub(super) user: Option<u64>,
    pub(super) tags: String,
    pub(super) ephemeral: bool,
    hash: Vec<u8>,
}

fn hex(lookup: &[u8]) -> String {
    lookup.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn time(row: &Row, column: usize) -> Stored<Option<String>> {
    Ok(row.read::<Option<u64>>(column)?.map(control::text::rfc3339))
}

fn room(db: &Db, sql: &'static str) -> Stored<()> {
    let count: u64 = db.value(sql, &[])?;
    if count < KEYS_MAX {
        Ok(())
    } else {
        Err(StoreError::Conflict(format!("there are {KEYS_MAX} of them; no more are kept")))
    }
}

/// The join key with this look-up name, whatever its state.
pub(super) fn find(db: &Db, lookup: [u8; 8]) -> Stored<Option<Found>> {
    let sql = "SELECT id, hash, \"user\", reusable, ephemeral, tags, expires, used, revoked
               FROM join_keys WHERE lookup = $1";
    let read = |row: Row| {
        let record = Record {
            reusable: row.read(3)?,
            expires_unix_s: row.read(6)?,
            used_unix_s: row.read(7)?,
            revoked: row.read::<Option<u64>>(8)?.is_some(),
        };
        Ok(Found {
            id: row.read(0)?,
            hash: row.read(1)?,
            user: row.read(2)?,
            ephemeral: row.read(4)?,
            tags: row.read(5)?,
            record,
        })
    };
    db.row(sql, values![&lookup[..]])?.map(read).transpose()
}

impl Found {
    pub(super) fn hash(&self) -> &[u8] {
        &self.hash
    }
}

impl Store {
    /// Records a join key whose secret the caller shows once.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] for a tag that is none or too many; [`StoreError::Missing`] for an
    /// unknown user; [`StoreError::Conflict`] if its maker has ended.
    pub fn add_join_key(
        &mut self,
        new: &NewJoinKey,
        id: SecretId,
        secret: &Secret,
        actor: &str,
        now: u64,
    ) -> Stored<Made> {
        check_tags(&new.tags)?;
        let place = (new.name.as_deref(), new.address);
        let is_placed = place != (None, None);
        if is_placed && new.reusable {
            let why = "a name or an address is for one node; leave reusable out";
            return Err(StoreError::Invalid(why.to_owned()));
        }
        let hash = self.hash(id, secret);
        let pool = self.pool;
        let made = self.write(|tx| {
            room(tx, "SELECT count(*) FROM join_keys")?;
            let expires = end(tx, new.lifetime_s, new.maker, now)?;
            let user = new.user.as_deref().map(|name| users::id_of(tx, name)).transpose()?;
            let key: u64 = tx.value(
                "INSERT INTO join_keys (lookup, hash, \"user\", reusable, ephemeral, tags, \
                 created, expires, maker, giver) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, \
                 coalesce($10, (SELECT giver FROM api_tokens WHERE id = $9))) RETURNING id",
                values![
                    id.0.as_slice(),
                    hash.as_slice(),
                    user,
                    new.reusable,
                    new.ephemeral,
                    to_json(&new.tags),
                    now,
                    expires,
                    new.maker,
                    new.giver
                ],
            )?;
            if is_placed {
                let until = expires.unwrap_or(u64::MAX);
                released::reserve(tx, pool, key, place, (now, until))?;
            }
            let detail = json!({ "reusable": new.reusable, "ephemeral": new.ephemeral,
                                 "tags": new.tags, "user": new.user, "expires": expires,
                                 "name": new.name, "address": new.address });
            record(tx, now, actor, "key.create", &format!("key:{key}"), &detail)?;
            Ok(Made { id: key, expires })
        })?;
        self.secrets.add(id.0, hash);
        Ok(made)
    }

    /// All join keys, the newest first.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub fn join_keys(&self) -> Stored<Vec<JoinKey>> {
        let sql =
            "SELECT k.id, lookup, reusable, ephemeral, tags, u.name, k.created, expires, used,
                   revoked FROM join_keys k LEFT JOIN users u ON u.id = k.\"user\"
             ORDER BY k.id DESC";
        let read = |row: &Row| {
            Ok(JoinKey {
                id: row.read(0)?,
                prefix: hex(&row.read::<Vec<u8>>(1)?),
                reusable: row.read(2)?,
                ephemeral: row.read(3)?,
                tags: list(&row.read::<String>(4)?),
                user: row.read(5)?,
                created: control::text::rfc3339(row.read(6)?),
                expires: time(row, 7)?,
                used: time(row, 8)?,
                revoked: row.read::<Option<u64>>(9)?.is_some(),
            })
        };
        self.db.rows(sql, &[])?.iter().map(read).collect()
    }

    /// Takes a join key back; nodes that it let in stay.
    ///
    /// # Errors
    /// [`StoreError::Missing`].
    pub fn revoke_join_key(&mut self, id: u64, actor: &str, now: u64) -> Stored<()> {
        self.write(|tx| {
            let sql = "UPDATE join_keys SET revoked = coalesce(revoked, $2) WHERE id = $1";
            if tx.execute(sql, values![id, now])? == 0 {
                return Err(StoreError::Missing(format!("join key {id}")));
            }
            released::redeem(tx, id)?;
            record(tx, now, actor, "key.expire", &format!("key:{id}"), &json!({}))
        })
    }

    /// Records an API token whose secret the caller shows once.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if its maker has ended.
    pub fn add_api_token(
        &mut self,
        new: &NewApiToken,
        id: SecretId,
        secret: &Secret,
        actor: &str,
        now: u64,
    ) -> Stored<Made> {
        let hash = self.hash(id, secret);
        let made = self.write(|tx| {
            room(tx, "SELECT count(*) FROM api_tokens")?;
            let expires = end(tx, new.lifetime_s, new.maker, now)?;
            let scopes = to_json(&new.scopes);
            let token: u64 = tx.value(
                "INSERT INTO api_tokens (lookup, hash, scopes, created, expires, maker, giver)
                 VALUES ($1, $2, $3, $4, $5, $6,
                         coalesce($7, (SELECT giver FROM api_tokens WHERE id = $6))) RETURNING id",
                values![
                    id.0.as_slice(),
                    hash.as_slice(),
                    scopes,
                    now,
                    expires,
                    new.maker,
                    new.giver
                ],
            )?;
            let detail = json!({ "scopes": new.scopes, "expires": expires });
            record(tx, now, actor, "token.create", &format!("token:{token}"), &detail)?;
            Ok(Made { id: token, expires })
        })?;
        self.secrets.add(id.0, hash);
        Ok(made)
    }

    /// All API tokens, the newest first.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub fn api_tokens(&self) -> Stored<Vec<ApiToken>> {
        let sql = "SELECT id, lookup, scopes, created, expires, last_used, revoked FROM api_tokens
                   ORDER BY id DESC";
        let read = |row: &Row| {
            Ok(ApiToken {
                id: row.read(0)?,
                prefix: hex(&row.read::<Vec<u8>>(1)?),
                scopes: list(&row.read::<String>(2)?),
                created: control::text::rfc3339(row.read(3)?),
                expires: time(row, 4)?,
                last_used: time(row, 5)?,
                revoked: row.read::<Option<u64>>(6)?.is_some(),
            })
        };
        self.db.rows(sql, &[])?.iter().map(read).collect()
    }

    /// Takes an API token back, with all that it made: tokens and theirs, join keys, and relays
    /// that it entered. Returns whether relays were among them.
    ///
    /// # Errors
    /// [`StoreError::Missing`]; [`StoreError::Denied`] if the token has a scope that is not in
    /// `within`, where that is given.
    pub fn revoke_api_token(
        &mut self,
        id: u64,
        within: Option<&[String]>,
        actor: &str,
        now: u64,
    ) -> Stored<bool> {
        self.write(|tx| {
            let found = tx.row("SELECT scopes FROM api_tokens WHERE id = $1", values![id])?;
            let found = found.ok_or_else(|| StoreError::Missing(format!("API token {id}")))?;
            let scopes = list(&found.read::<String>(0)?);
            if let Some(own) = within
                && let Some(scope) = scopes.iter().find(|scope| !own.contains(scope))
            {
                return Err(StoreError::Denied(format!(
                    "your own token lacks {scope}, which that one has"
                )));
            }
            let tokens = made_by(tx, id)?;
            let mut keys = 0;
            for token in &tokens {
                let sql = "UPDATE api_tokens SET revoked = coalesce(revoked, $2) WHERE id = $1";
                tx.execute(sql, values![*token, now])?;
                let sql = "UPDATE join_keys SET revoked = $2 WHERE maker = $1 AND revoked IS NULL";
                keys += tx.execute(sql, values![*token, now])?;
            }
            let relays = relays::end_those_of(tx, &tokens)?;
            let others: Vec<&u64> = tokens.iter().filter(|token| **token != id).collect();
            let detail = json!({ "tokens": others, "join_keys": keys, "relays": relays });
            record(tx, now, actor, "token.expire", &format!("token:{id}"), &detail)?;
            Ok(!relays.is_empty())
        })
    }

    /// Who bears this secret; `None` if the token is unknown, expired or revoked.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub fn bearer(&self, id: [u8; 8], secret: &[u8; 16], now: u64) -> Stored<Option<Bearer>> {
        let sql = "SELECT hash, scopes, t.expires, revoked, last_used, t.id, giver, u.role
                   FROM api_tokens t LEFT JOIN users u ON u.id = t.giver WHERE lookup = $1";
        let Some(found) = self.db.row(sql, values![&id[..]])? else { return Ok(None) };
        let (hash, scopes): (Vec<u8>, String) = (found.read(0)?, found.read(1)?);
        let (expires, revoked): (Option<u64>, Option<u64>) = (found.read(2)?, found.read(3)?);
        let (last_used, row): (Option<u64>, u64) = (found.read(4)?, found.read(5)?);
        let is_over = expires.is_some_and(|expires| now >= expires) || revoked.is_some();
        if is_over || !self.is_hash(&hash, id, secret) {
            return Ok(None);
        }
        // To the minute, so that reading is not one write each.
        if last_used.is_none_or(|last| now >= last.saturating_add(60)) {
            let sql = "UPDATE api_tokens SET last_used = $2 WHERE id = $1";
            if let Err(error) = self.db.execute(sql, values![row, now]) {
                tracing::warn!(%error, "cannot note the use of an API token");
            }
        }
        let (giver, role): (Option<u64>, Option<String>) = (found.read(6)?, found.read(7)?);
        let mut scopes = list(&scopes);
        if giver.is_some() {
            // Never more than who made it may do now; nothing if there is no such user any more.
            let role = role.and_then(|word| Role::parse(&word));
            let may = role.map(Role::scopes).unwrap_or_default();
            scopes.retain(|scope| may.contains(&scope.as_str()));
        }
        Ok(Some(Bearer { id: row, scopes }))
    }
}

/// When what is made now ends: as is wanted, and no later than its maker does.
fn end(tx: &Tx<'_>, lifetime_s: Option<u64>, maker: Option<u64>, now: u64) -> Stored<Option<u64>> {
    let wanted = lifetime_s.map(|s| now.saturating_add(s).min(i64::MAX as u64));
    let Some(maker) = maker else { return Ok(wanted) };
    let sql = "SELECT expires FROM api_tokens WHERE id = $1 AND revoked IS NULL
               AND (expires IS NULL OR expires > $2)";
    let ended = || StoreError::Conflict("the token that asks has just ended".to_owned());
    let last: Option<u64> = tx.row(sql, values![maker, now])?.ok_or_else(ended)?.read(0)?;
    Ok(wanted.into_iter().chain(last).min())
}

/// This token, those that it made, and theirs.
fn made_by(tx: &Tx<'_>, id: u64) -> Stored<Vec<u64>> {
    let sql = "WITH RECURSIVE tree (id) AS (
                 SELECT id FROM api_tokens WHERE id = $1
                 UNION SELECT t.id FROM api_tokens t JOIN tree ON t.maker = tree.id)
               SELECT id FROM tree ORDER BY id";
    tx.rows(sql, values![id])?.iter().map(|row| row.read(0)).collect()
}

/// Whether all are tags, and not too many.
pub(super) fn check_tags(tags: &[String]) -> Stored<()> {
    if tags.len() > control::limits::TAGS_MAX {
        return Err(StoreError::Invalid("at most 32 tags".to_owned()));
    }
    match tags.iter().find(|tag| !is_tag(tag)) {
        None => Ok(()),
        Some(tag) => Err(StoreError::Invalid(format!(
            "{tag:?} is no tag; one is tag: and up to 59 lower-case letters, digits and hyphens"
        ))),
    }
}
