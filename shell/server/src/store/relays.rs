//! Relays of their own that the network has beside the server's: few, so one list among the
//! settings holds them.

use control::Relay;
use control::limits::RELAYS_MAX;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::audit::record;
use super::db::Tx;
use super::{Store, StoreError, Stored, set, setting, to_json};

/// The name of the list among the settings.
const SETTING: &str = "relays";
/// Relays that one token may enter.
const OF_TOKEN_MAX: usize = 8;

/// A relay, and whose token entered it last.
#[derive(Clone, Serialize, Deserialize)]
struct Entered {
    #[serde(flatten)]
    relay: Relay,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
}

impl Store {
    /// All relays but the server's own, by number.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]; [`StoreError::Damaged`] if the list is none.
    pub fn relays(&self) -> Stored<Vec<Relay>> {
        Ok(read(setting(&self.db, SETTING)?)?.into_iter().map(|entered| entered.relay).collect())
    }

    /// Enters a relay, or what is new of one that is known by its key: the relay with its number,
    /// and whether anything changed. Numbers begin with 1 and are not given twice while a relay is
    /// entered. It is the token's that says so; `is_proven` if who says so proved that it holds the
    /// relay's key, without which nothing of an entry changes (threat RL-17).
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if there is no room for more; [`StoreError::Denied`] for what is
    /// not proven.
    pub fn put_relay(
        &mut self,
        relay: Relay,
        token: Option<u64>,
        is_proven: bool,
        actor: &str,
        now: u64,
    ) -> Stored<(Relay, bool)> {
        let entered = read(setting(&self.db, SETTING)?)?;
        let known = entered.into_iter().find(|known| known.relay.key == relay.key);
        let is_same = |Entered { relay: known, .. }: &Entered| {
            let ways = |of: &Relay| (of.quic, of.icmp);
            (&known.url, &known.stun, ways(known)) == (&relay.url, &relay.stun, ways(&relay))
        };
        if let Some(known) = known.filter(|known| is_same(known))
            && (known.token == token || !is_proven)
        {
            return Ok((known.relay, false));
        }
        if !is_proven {
            return Err(StoreError::Denied(
                "a relay proves its key when it enters itself, and this call does not; update the \
                 program there"
                    .to_owned(),
            ));
        }
        let key = relay.key;
        self.write(|tx| {
            let mut relays = read(setting(tx, SETTING)?)?;
            let last = relays.iter().map(|entered| entered.relay.id).max().unwrap_or(0);
            let known = relays.iter().position(|entered| entered.relay.key == key);
            let before = known.map(|at| relays.remove(at));
            let id = before.as_ref().map_or(last + 1, |before| before.relay.id);
            let relay = Relay { id, ..relay };
            relays.push(Entered { relay: relay.clone(), token });
            relays.sort_unstable_by_key(|entered| entered.relay.id);
            let of_token = relays.iter().filter(|entered| entered.token == token).count();
            if token.is_some() && of_token > OF_TOKEN_MAX {
                return Err(StoreError::Conflict(format!(
                    "a token enters at most {OF_TOKEN_MAX} relays; remove one first, or make \
                     another token"
                )));
            }
            // One place is the server's own.
            if relays.len() >= RELAYS_MAX {
                return Err(StoreError::Conflict(format!(
                    "a network has at most {RELAYS_MAX} relays; remove one first"
                )));
            }
            set(tx, SETTING, &to_json(&relays))?;
            let object = format!("relay:{}", relay.id);
            let is_news = before.as_ref().is_none_or(|before| before.relay != relay);
            let detail = json!({ "before": before.as_ref().map(told),
                                 "after": told(&Entered { relay: relay.clone(), token }) });
            record(tx, now, actor, "relay.put", &object, &detail)?;
            Ok((relay, is_news))
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
            relays.retain(|entered| entered.relay.id != id);
            if relays.len() == before {
                return Err(StoreError::Missing(format!("relay {id}")));
            }
            set(tx, SETTING, &to_json(&relays))?;
            record(tx, now, actor, "relay.remove", &format!("relay:{id}"), &json!({}))
        })
    }
}

/// Takes out the relays that these tokens entered: their numbers.
pub(super) fn end_those_of(tx: &Tx<'_>, tokens: &[u64]) -> Stored<Vec<u32>> {
    let relays = read(setting(tx, SETTING)?)?;
    let is_over = |entered: &Entered| entered.token.is_some_and(|token| tokens.contains(&token));
    let (gone, left): (Vec<_>, Vec<_>) = relays.into_iter().partition(is_over);
    if !gone.is_empty() {
        set(tx, SETTING, &to_json(&left))?;
    }
    Ok(gone.into_iter().map(|entered| entered.relay.id).collect())
}

/// An entry as the log tells it.
fn told(entered: &Entered) -> serde_json::Value {
    let Entered { relay, token } = entered;
    json!({ "url": relay.url.to_string(), "key": relay.key.to_string(), "stun": relay.stun,
            "quic": relay.quic, "icmp": relay.icmp, "token": token })
}

fn read(text: Option<String>) -> Stored<Vec<Entered>> {
    let Some(text) = text else { return Ok(Vec::new()) };
    serde_json::from_str(&text)
        .map_err(|why| StoreError::Damaged(format!("the list of relays: {why}; restore a backup")))
}
