//! Resolvers for names that are not the network's: a row each, in the order in which they are
//! asked. The zone without a name is everything else.

use serde_json::json;

use super::audit::record;
use super::db::Db;
use super::row::values;
use super::{Store, StoreError, Stored, set, setting};
use crate::resolvers::{Resolvers, Zone};

const EVERYTHING: &str = "";
/// The setting that has names which are no node's, as JSON: a server of 0.1.0 passes it over.
const RECORDS: &str = "dns_records";

impl Store {
    /// What nodes are told.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]; [`StoreError::Damaged`] if an address is none.
    pub fn resolvers(&self) -> Stored<Resolvers> {
        read(&self.db)
    }

    /// Exchanges all of them; whether anything changed.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub fn set_resolvers(&mut self, new: &Resolvers, actor: &str, now: u64) -> Stored<bool> {
        self.write(|tx| {
            let before = read(tx)?;
            if before == *new {
                return Ok(false);
            }
            tx.execute("DELETE FROM resolvers", &[])?;
            let sql = "INSERT INTO resolvers (zone, place, address) VALUES ($1, $2, $3)";
            let general = (EVERYTHING, &new.upstreams);
            let zones = new.zones.iter().map(|zone| (zone.zone.as_str(), &zone.resolvers));
            for (zone, resolvers) in std::iter::once(general).chain(zones) {
                for (place, address) in resolvers.iter().enumerate() {
                    tx.execute(sql, values![zone, place as u64, address.to_string()])?;
                }
            }
            if before.records != new.records {
                set(tx, RECORDS, &json!(new.records).to_string())?;
            }
            let detail = json!({ "before": before, "after": new });
            record(tx, now, actor, "dns.set", "dns", &detail)?;
            Ok(true)
        })
    }
}

fn read(db: &Db) -> Stored<Resolvers> {
    let mut found = Resolvers::default();
    let sql = "SELECT zone, address FROM resolvers ORDER BY zone, place";
    for row in db.rows(sql, &[])? {
        let (zone, text): (String, String) = (row.read(0)?, row.read(1)?);
        let address = text.parse().map_err(|_| {
            StoreError::Damaged(format!(
                "the resolver {text:?} is no address; set others: warren dns set"
            ))
        })?;
        match found.zones.last_mut() {
            _ if zone == EVERYTHING => found.upstreams.push(address),
            Some(last) if last.zone == zone => last.resolvers.push(address),
            _ => found.zones.push(Zone { zone, resolvers: vec![address] }),
        }
    }
    if let Some(text) = setting(db, RECORDS)? {
        found.records = serde_json::from_str(&text).map_err(|why| {
            StoreError::Damaged(format!(
                "names that are no node's cannot be read ({why}); set them again: warren dns add"
            ))
        })?;
    }
    Ok(found)
}
