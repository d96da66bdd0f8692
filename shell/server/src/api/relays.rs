//! Routes for relays of their own, and for who administrates them.

use control::limits::RELAY_STUN_MAX;
use control::{Relay, ServerUrl};
use noise::PublicKey;
use serde::Deserialize;
use serde_json::{Value, json};

use super::handlers::Answer;
use super::{Call, Caller, Problem, Reply};
use crate::app::App;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewRelay {
    url: ServerUrl,
    key: String,
    #[serde(default)]
    stun: Vec<String>,
    #[serde(default)]
    quic: bool,
    #[serde(default)]
    icmp: bool,
}

fn shown(relay: &Relay) -> Value {
    json!({
        "id": relay.id,
        "url": relay.url.to_string(),
        "key": relay.key.to_string(),
        "stun": relay.stun,
        "quic": relay.quic,
        "icmp": relay.icmp,
    })
}

pub(super) fn relays(call: &Call) -> Answer {
    let relays = call.app.network().relays();
    let relays: Vec<Value> = relays.iter().map(shown).collect();
    Ok(Reply::Json(json!({ "schema": 1, "relays": relays })))
}

/// A relay says where it is; it says so again after every start.
pub(super) fn put_relay(call: &Call) -> Answer {
    let NewRelay { url, key, stun, quic, icmp } = call.json()?;
    let bad = |why| Problem::new(400, "the key is none", format!("{why}"));
    let key: PublicKey = key.parse().map_err(bad)?;
    if stun.len() > RELAY_STUN_MAX || !stun.iter().all(|text| is_place(text)) {
        let why = format!("at most {RELAY_STUN_MAX} addresses as host:port");
        return Err(Problem::new(400, "the STUN addresses are none", why));
    }
    let relay = Relay { id: 0, url, key, stun, quic, icmp };
    let relay = call.app.put_relay(relay, call)?;
    Ok(Reply::Json(json!({ "schema": 1, "id": relay.id })))
}

/// Whether it is `host:port`: what every node is told and asks.
fn is_place(text: &str) -> bool {
    let is_host = |b: u8| b.is_ascii_alphanumeric() || b"-_.:[]%".contains(&b);
    text.rsplit_once(':').is_some_and(|(host, port)| {
        let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
        (1..=255).contains(&host.len()) && host.bytes().all(is_host) && is_port
    })
}

/// The keys of all members, unless nothing has changed `after` what the caller knows.
pub(super) fn relay_members(call: &Call) -> Answer {
    let network = call.app.network();
    let sequence = network.version();
    if call.number("after")? == Some(sequence) {
        return Ok(Reply::Json(json!({ "schema": 1, "version": sequence, "keys": null })));
    }
    let keys: Vec<String> =
        network.current_keys(call.app.now()).iter().map(ToString::to_string).collect();
    Ok(Reply::Json(json!({ "schema": 1, "version": sequence, "keys": keys })))
}

pub(super) fn remove_relay(call: &Call) -> Answer {
    let id = u32::try_from(call.id).unwrap_or(u32::MAX);
    call.app.remove_relay(id, &call.actor)?;
    Ok(Reply::Empty)
}

impl App {
    /// Enters a relay in the books; every node is told.
    fn put_relay(&self, relay: Relay, call: &Call) -> crate::store::Stored<Relay> {
        let mut store = self.store();
        // An administrator of this machine is believed; others prove that they are the relay.
        let is_local = matches!(call.caller, Caller::Local(_));
        let is_proven = is_local || call.machine == Some(relay.key);
        let (token, _) = call.makers();
        let (relay, is_new) = store.put_relay(relay, token, is_proven, &call.actor, self.now())?;
        if is_new {
            let relays = store.relays()?;
            self.touch(|network| network.set_relays(relays));
        }
        Ok(relay)
    }

    /// Takes a token back with all that it made; relays among that leave the network.
    pub(super) fn end_token(
        &self,
        id: u64,
        within: Option<&[String]>,
        actor: &str,
    ) -> crate::store::Stored<()> {
        let mut store = self.store();
        if store.revoke_api_token(id, within, actor, self.now())? {
            let relays = store.relays()?;
            self.touch(|network| network.set_relays(relays));
        }
        Ok(())
    }

    fn remove_relay(&self, id: u32, actor: &str) -> crate::store::Stored<()> {
        let mut store = self.store();
        store.remove_relay(id, actor, self.now())?;
        let relays = store.relays()?;
        self.touch(|network| network.set_relays(relays));
        Ok(())
    }
}
