//! Addresses and names of nodes that are gone. They wait, so that nobody is taken for the one
//! before: an address for all others, a name for all who come neither as the same machine nor by
//! the same join key, which was good for that name before.
//!
//! There is always an address as long as fewer nodes are there than addresses: where none is free
//! the wait that began first ends.

use core::net::Ipv4Addr;

use control::address::Pool;
use noise::PublicKey;
use ring::digest::{Context, SHA256};

use super::db::Tx;
use super::naming::check_name;
use super::row::values;
use super::{StoreError, Stored, set, setting};

/// How long an address and a name wait after their node is gone, in seconds.
const QUARANTINE_S: u64 = 7 * 86_400;
/// The setting with the number after the last that was given.
const NEXT: &str = "next_number";

/// Keeps what the node `id` had, which is about to go.
pub(super) fn release(tx: &Tx<'_>, id: u64, now: u64) -> Stored<()> {
    let sql = "INSERT INTO released (number, until, name, machine, join_key)
               SELECT number, CAST($2 AS BIGINT), name, machine_key, join_key
               FROM nodes WHERE id = $1
               ON CONFLICT (number) DO UPDATE SET until = excluded.until, name = excluded.name,
                 machine = excluded.machine, join_key = excluded.join_key";
    tx.execute(sql, values![id, now.saturating_add(QUARANTINE_S)])?;
    Ok(())
}

/// Whether a machine that comes by this join key cannot have this name.
pub(super) fn is_taken(tx: &Tx<'_>, name: &str, machine: &PublicKey, key: u64) -> Stored<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM nodes WHERE name = $1)
                   OR EXISTS (SELECT 1 FROM released WHERE name = $1
                              AND machine <> $2 AND (join_key IS NULL OR join_key <> $3))";
    tx.value(sql, values![name, &machine.0[..], key])
}

/// Lets anybody have a name that waits.
pub(super) fn free_name(tx: &Tx<'_>, name: &str) -> Stored<()> {
    tx.execute("UPDATE released SET name = NULL WHERE name = $1", values![name])?;
    Ok(())
}

/// The machine that a place is kept for as long as it was not taken: nobody's key.
fn place_of(key: u64) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    context.update(b"warren place of a join key\0");
    context.update(&key.to_be_bytes());
    let mut machine = [0; 32];
    machine.copy_from_slice(context.finish().as_ref());
    machine
}

/// Keeps a name and an address for the node that will come by a join key, until then at most.
pub(super) fn reserve(
    tx: &Tx<'_>,
    pool: Pool,
    key: u64,
    place: (Option<&str>, Option<Ipv4Addr>),
    times: (u64, u64),
) -> Stored<()> {
    let (name, address) = place;
    let (now, until) = times;
    forget(tx, now)?;
    let machine = PublicKey(place_of(key));
    if let Some(name) = name {
        check_name(name)?;
        if is_taken(tx, name, &machine, 0)? {
            let why = format!("another node is called {name:?}, or was, or will be");
            return Err(StoreError::Conflict(why));
        }
    }
    let number = match address {
        None => number(tx, pool, &machine)?,
        Some(address) => {
            let number = pool.number(address).ok_or_else(|| {
                let range = pool.v4();
                StoreError::Invalid(format!(
                    "no node has {address}: the network's range is {range}"
                ))
            })?;
            if free(tx, pool, number, number)? != Some(number) {
                let why = format!("{address} is another node's, or waits for one");
                return Err(StoreError::Conflict(why));
            }
            number
        }
    };
    let sql = "INSERT INTO released (number, until, name, machine, join_key)
               VALUES ($1, $2, $3, $4, $5)";
    tx.execute(sql, values![number, until, name.map(str::to_owned), &machine.0[..], key])?;
    Ok(())
}

/// Takes what was kept for who comes by this join key: its number, and its name if it has one.
pub(super) fn redeem(tx: &Tx<'_>, key: u64) -> Stored<Option<(u32, Option<String>)>> {
    let sql = "DELETE FROM released WHERE machine = $1 RETURNING number, name";
    let row = tx.row(sql, values![&place_of(key)[..]])?;
    row.map(|row| Ok((row.read(0)?, row.read(1)?))).transpose()
}

/// Forgets what has waited for long enough.
pub(super) fn forget(tx: &Tx<'_>, now: u64) -> Stored<()> {
    tx.execute("DELETE FROM released WHERE until <= $1", values![now])?;
    Ok(())
}

/// A number for a node that is new: that which its machine had, else the next one in sequence.
pub(super) fn number(tx: &Tx<'_>, pool: Pool, machine: &PublicKey) -> Stored<u32> {
    let sql = "SELECT number FROM released WHERE machine = $1 ORDER BY until DESC LIMIT 1";
    if let Some(row) = tx.row(sql, values![&machine.0[..]])? {
        let number: u32 = row.read(0)?;
        tx.execute("DELETE FROM released WHERE number = $1", values![number])?;
        return Ok(number);
    }
    let from = setting(tx, NEXT)?.and_then(|text| text.parse().ok()).unwrap_or(1);
    let from = if (1..=pool.last()).contains(&from) { from } else { 1 };
    let free = match free(tx, pool, from, pool.last())? {
        Some(number) => Some(number),
        None => free(tx, pool, 1, from - 1)?,
    };
    if let Some(number) = free {
        set(tx, NEXT, &number.saturating_add(1).to_string())?;
        return Ok(number);
    }
    let sql = "DELETE FROM released WHERE number =
                 (SELECT number FROM released ORDER BY until, number LIMIT 1) RETURNING number";
    tx.row(sql, &[])?.ok_or(StoreError::Full)?.read(0)
}

/// The first number that is free, of these.
fn free(tx: &Tx<'_>, pool: Pool, first: u32, last: u32) -> Stored<Option<u32>> {
    let mut at = first;
    while at <= last {
        let sql = "SELECT EXISTS (SELECT 1 FROM nodes WHERE number = $1)
                       OR EXISTS (SELECT 1 FROM released WHERE number = $1)";
        if pool.is_reserved(at) {
            at += 1;
            continue;
        }
        if !tx.value::<bool>(sql, values![at])? {
            return Ok(Some(at));
        }
        // Behind the taken ones that follow each other: by the index, not one by one.
        let sql = "SELECT min(number) + 1 FROM
                     (SELECT number FROM nodes UNION ALL SELECT number FROM released) t
                   WHERE number >= $1 AND number < $2
                     AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.number = t.number + 1)
                     AND NOT EXISTS (SELECT 1 FROM released r WHERE r.number = t.number + 1)";
        let Some(next) = tx.value::<Option<u32>>(sql, values![at, last])? else { return Ok(None) };
        at = next;
    }
    Ok(None)
}
