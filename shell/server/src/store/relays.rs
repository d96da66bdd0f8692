//! Relays of their own that the network has beside the server's: few, so one list among the
//! settings holds them.

use control::Relay;
use control::limits::RELAYS_MAX;
use serde_json::json;

use super::audit::record;
use super::{Store, StoreError, Stored, set, setting, to_json};

/// The name of the list among the settings.
const SETTING: &str = "relays";

impl Store {
    /// All relays but the server's own, by number.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]; [`StoreError::Damaged`] if the list is none.
    pub fn relays(&self) -> Stored<Vec<Relay>> {
        read(setting(&self.db, SETTING)?)
    }

    /// Enters a relay, or what is new of one that is known by its key: the relay with its number,
    /// and whether anything changed. Numbers begin with 1 and are not given twice while a relay is
    /// entered.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if there is no room for more.
    pub fn put_relay(&mut self, relay: Relay, actor: &str, now: u64) -> Stored<(Relay, bool)> {
        let known = self.relays()?.into_iter().find(|known| known.key == relay.key);
        let is_same = |known: &Relay| {
            (&known.url, &known.stun, known.quic) == (&relay.url, &relay.stun, relay.quic)
        };
        if let Some(known) = known.filter(is_same) {
            return Ok((known, false));
        }
        let key = relay.key;
        self.write(|tx| {
            let mut relays = read(setting(tx, SETTING)?)?;
            let last = relays.iter().map(|relay| relay.id).max().unwrap_or(0);
            let known = relays.iter().find(|relay| relay.key == key).map(|relay| relay.id);
            let relay = Relay { id: known.unwrap_or(last + 1), ..relay };
            relays.retain(|relay| relay.key != key);
            relays.push(relay.clone());
            relays.sort_unstable_by_key(|relay| relay.id);
            // One place is the server's own.
            if relays.len() >= RELAYS_MAX {
                return Err(StoreError::Conflict(format!(
                    "a network has at most {RELAYS_MAX} relays; remove one first"
                )));
            }
            set(tx, SETTING, &to_json(&relays))?;
            let object = format!("relay:{}", relay.id);
            let detail = json!({
                "url": relay.url.to_string(),
                "key": key.to_string(),
                "stun": relay.stun,
                "quic": relay.quic,
            });
            record(tx, now, actor, "relay.put", &object, &detail)?;
            Ok((relay, true))
        })
    }

    /// Takes a relay out of the network.
    ///
    /// # Errors
    /// [`StoreError::Missing`].
    pub fn remove_relay(&mut self, id: u32, actor: &str, now: u64) -> Stored<()> {
        self.write(|tx| {
            let mut relays = read(setting(tx, SETTING)?)?;
            let before = relays.len();
            relays.retain(|relay| relay.id != id);
            if relays.len() == before {
                return Err(StoreError::Missing(format!("relay {id}")));
            }
            set(tx, SETTING, &to_json(&relays))?;
            record(tx, now, actor, "relay.remove", &format!("relay:{id}"), &json!({}))
        })
    }
}

fn read(text: Option<String>) -> Stored<Vec<Relay>> {
    let Some(text) = text else { return Ok(Vec::new()) };
    serde_json::from_str(&text)
        .map_err(|why| StoreError::Damaged(format!("the list of relays: {why}; restore a backup")))
}
