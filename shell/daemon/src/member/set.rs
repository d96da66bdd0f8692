//! `warren set`: settings are changed, an exit only where there is one, and on trial if that is
//! wished; and what is so now is told.
//!
//! A change on trial goes back by itself unless it is confirmed: after its time, and when the
//! daemon starts again. It is confirmed by `warren set --confirm`, or by the same settings again
//! without a time. What else is set during the trial is set for both.

use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use control::{Map, Prefix};
use serde_json::{Value, json};

use super::{Daemon, Fault};
use crate::exits::{is_free, no_exit};
use crate::protocol::{How, SCHEMA, refused};
use crate::settings::is_auto;
use crate::{Changes, Offer, Settings};

/// An exit that was approved a moment ago may not be in the map yet: so long it is waited for.
const EXIT_WITHIN: Duration = Duration::from_secs(2);
/// A change is on trial for at most so long.
const TRIAL_S_MAX: u64 = 24 * 60 * 60;

/// A change that waits for its exit, for a moment.
pub(crate) struct Waiting {
    pub(crate) changes: Changes,
    pub(crate) how: How,
    pub(crate) answer: SyncSender<Value>,
    pub(crate) since: Instant,
}

/// Who waits for the first choice among exits, and the answer without it.
pub(crate) struct Choosing {
    changes: Changes,
    reply: Value,
    answer: SyncSender<Value>,
    is_confirmed: bool,
}

impl Daemon {
    /// Answers who wants to change settings: now, or soon, where the named exit is none yet.
    pub(crate) fn answer_set(&mut self, wanted: Waiting) -> Result<(), Fault> {
        let after = self.state.kept.settings.with(&wanted.changes);
        let is_early = wanted.since.elapsed() < EXIT_WITHIN;
        if is_early && self.refuses_exit(&after, wanted.how.force).is_some() {
            // Whoever waited is answered before another does.
            if let Some(other) = self.waiting.replace(wanted) {
                let reply = self.set(&other.changes, &other.how)?;
                let _ = other.answer.send(reply);
            }
            return Ok(());
        }
        let reply = self.set(&wanted.changes, &wanted.how)?;
        let is_new = wanted.changes.exit_node.is_some() && !reply["said"].is_null();
        if is_new && self.failover.is_settling() {
            let Waiting { changes, how, answer, .. } = wanted;
            let next = Choosing { changes, reply, answer, is_confirmed: how.confirm };
            if let Some(other) = self.choosing.replace(next) {
                let _ = other.answer.send(other.reply);
            }
            return Ok(());
        }
        self.answer_named(&wanted.changes, reply, wanted.answer);
        Ok(())
    }

    /// Answers who waits for the choice of an exit, once it is made.
    pub(super) fn tell_exit(&mut self) -> Result<(), Fault> {
        let is_over = self.map.is_none() || !self.failover.is_settling();
        let Some(waited) = self.choosing.take_if(|_| is_over) else { return Ok(()) };
        let reply = self.told(&waited.changes, waited.is_confirmed)?;
        self.answer_named(&waited.changes, reply, waited.answer);
        Ok(())
    }

    /// Changes settings; what is so now, or why not.
    pub(crate) fn set(&mut self, changes: &Changes, how: &How) -> Result<Value, Fault> {
        let before = self.state.kept.settings.clone();
        let after = before.with(changes);
        let refusal = changes
            .check()
            .err()
            .or_else(|| self.refuses_trial(changes, how))
            .or_else(|| self.refuses_exit(&after, how.force));
        if let Some(why) = refusal {
            return Ok(refused(why));
        }
        let kept = &mut self.state.kept;
        let is_repeated = kept.trial.as_ref().is_some_and(|trial| trial.with(changes) == before);
        if let Some(seconds) = how.for_s {
            kept.trial.get_or_insert_with(|| before.clone());
            self.trial_until = Some(Instant::now() + Duration::from_secs(seconds));
        } else if how.confirm || is_repeated {
            kept.trial = None;
            self.trial_until = None;
        } else if let Some(trial) = &mut kept.trial {
            *trial = trial.with(changes);
        }
        kept.settings = after;
        if let Err(error) = self.state.save() {
            return Ok(refused(error));
        }
        self.take_settings()?;
        self.told(changes, how.confirm)
    }

    /// Brings everything in line with settings that have changed.
    fn take_settings(&mut self) -> Result<(), Fault> {
        if self.pings.set_off(self.state.kept.settings.no_icmp) {
            // What goes by ping ends, or what does not may try.
            if let Some(membership) = &self.membership {
                membership.network_changed();
            }
            if let Some(relays) = &self.relays {
                relays.handle_network_change();
            }
        }
        self.report()?;
        self.tell_reach(false)?;
        self.apply()
    }

    fn refuses_trial(&self, changes: &Changes, how: &How) -> Option<String> {
        let seconds = how.for_s.unwrap_or(1);
        if how.confirm && self.state.kept.trial.is_none() {
            return Some("nothing is on trial; it may have gone back already".to_owned());
        }
        if how.confirm && (how.for_s.is_some() || !changes.is_empty()) {
            return Some("--confirm stands alone: it keeps what is on trial".to_owned());
        }
        let is_sound = (1..=TRIAL_S_MAX).contains(&seconds);
        (!is_sound).then(|| "--for: between 1s and 24h".to_owned())
    }

    /// Why these settings would leave the machine without a way out, if they name another exit
    /// than before and nobody insists. Without a map nobody knows.
    pub(crate) fn refuses_exit(&self, after: &Settings, force: bool) -> Option<String> {
        let name = after.exit_node.as_ref()?;
        if after.sends_all_by_circuit() {
            return Some(format!(
                "everything goes either by circuit (--circuit-for default) or through the exit \
                 node {name}: `warren set --exit-node=` or `--circuit-for=`"
            ));
        }
        if force || self.state.kept.settings.exit_node == after.exit_node {
            return None;
        }
        let why = no_exit(self.map.as_deref()?, name)?;
        Some(format!("{why}; or add --force, and nothing leaves this machine until then"))
    }

    /// Gives back the settings of before a trial whose time is over, or whose daemon ended.
    pub(crate) fn end_trial(&mut self) -> Result<(), Fault> {
        self.trial_until = None;
        let Some(before) = self.state.kept.trial.take() else { return Ok(()) };
        tracing::warn!("nobody confirmed the settings on trial: those of before are back");
        self.state.kept.settings = before;
        self.keep();
        if self.membership.is_some() { self.take_settings() } else { Ok(()) }
    }

    /// What is offered, and not approved as far as the map says, with the command for it.
    fn waiting(&self, changes: &Changes) -> Option<String> {
        let settings = &self.state.kept.settings;
        let me = &self.map.as_ref()?.me;
        // The command approves exactly what it names: all that is offered, also what is in use.
        let mut offered: Vec<Prefix> = settings.advertise_routes.iter().map(Offer::route).collect();
        if settings.advertise_exit_node {
            let default = ["0.0.0.0/0", "::/0"];
            offered.extend(default.iter().filter_map(|text| text.parse::<Prefix>().ok()));
        }
        let is_about_it =
            changes.advertise_routes.is_some() || changes.advertise_exit_node == Some(true);
        if !is_about_it || offered.iter().all(|route| me.routes.contains(route)) {
            return None;
        }
        let routes: Vec<String> = offered.iter().map(ToString::to_string).collect();
        Some(format!(
            "it waits for approval, unless the policy approves it: on the server, warren route \
             approve {} {}",
            me.name,
            routes.join(" ")
        ))
    }

    /// What is so now, for people and for programs.
    fn told(&mut self, changes: &Changes, is_confirmed: bool) -> Result<Value, Fault> {
        let way_out = self.way_out()?;
        let settings = &self.state.kept.settings;
        let left = self.trial_until.map(|at| at.saturating_duration_since(Instant::now()));
        let left_s = left.map(|left| left.as_secs_f64().ceil());
        let exit = exit_state(self.map.as_deref(), settings, &way_out);
        let mut said = Vec::new();
        if is_confirmed {
            said.push("what was on trial stays".to_owned());
        }
        if is_confirmed
            || changes.exit_node.is_some()
            || changes.exit_node_allow_lan_access.is_some()
        {
            said.push(sentence(settings, exit, &way_out));
        }
        let mentioned = serde_json::to_value(changes).unwrap_or_default();
        for (field, value) in mentioned.as_object().into_iter().flatten() {
            if !value.is_null() && !field.starts_with("exit_node") {
                said.push(format!("{} is {} now", field.replace('_', "-"), shown(value)));
            }
        }
        said.extend(self.waiting(changes));
        if let Some(seconds) = left_s {
            said.push(format!(
                "this goes back in {seconds} s unless it is confirmed: warren set --confirm"
            ));
        }
        Ok(json!({
            "schema": SCHEMA,
            "settings": settings,
            "exit": exit,
            "through": way_out["through"],
            "reverts_in_s": left_s,
            "said": said,
            "warnings": self.gate.said().collect::<Vec<_>>(),
        }))
    }
}

/// A value as people write it.
fn shown(value: &Value) -> String {
    match value {
        Value::Array(all) if all.is_empty() => "empty".to_owned(),
        Value::Array(all) => all.iter().map(shown).collect::<Vec<_>>().join(", "),
        Value::String(text) if text.is_empty() => "empty".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string().replace('"', ""),
    }
}

/// How it stands with the way out.
fn exit_state(map: Option<&Map>, settings: &Settings, way_out: &Value) -> &'static str {
    match (&settings.exit_node, map) {
        (None, _) => "none",
        (Some(_), None) => "unknown",
        (Some(name), Some(map)) if no_exit(map, name).is_some() => "closed",
        (Some(name), _) if is_auto(name) && way_out["closed"] == true => "closed",
        (Some(_), Some(_)) => "used",
    }
}

fn sentence(settings: &Settings, exit: &str, way_out: &Value) -> String {
    let name = match settings.exit_node.as_deref().unwrap_or_default() {
        name if is_auto(name) => way_out["through"].as_str().unwrap_or("some exit node"),
        name => name,
    };
    let why = match (is_free(settings), way_out["why"].as_str()) {
        (true, Some(why)) => format!(": {why}"),
        _ => String::new(),
    };
    let lan =
        if settings.exit_node_allow_lan_access { ", but for private networks here" } else { "" };
    match exit {
        "none" => {
            "no exit node is used: traffic leaves as this machine's own routes say".to_owned()
        }
        "used" => format!("all traffic goes through {name} now{lan}{why}"),
        "closed" if is_free(settings) => {
            format!("nothing leaves this machine until an exit node is there{lan}{why}")
        }
        "closed" => format!("nothing leaves this machine until {name} is an exit node{lan}"),
        _ => format!("all traffic will go through {name} once the network is there{lan}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_so_is_told_as_people_write_it() {
        let told = |value: Value| shown(&value);
        assert_eq!(told(json!(["10.7.0.0/24", "10.8.0.0/24"])), "10.7.0.0/24, 10.8.0.0/24");
        assert_eq!(told(json!([])), "empty");
        assert_eq!((told(json!(true)), told(json!("x"))), ("true".to_owned(), "x".to_owned()));
    }

    #[test]
    fn the_way_out_is_told_in_a_sentence() {
        let settings = |exit: Option<&str>, lan: bool| Settings {
            exit_node: exit.map(str::to_owned),
            exit_node_allow_lan_access: lan,
            ..Settings::default()
        };
        let used = sentence(&settings(Some("vps"), true), "used", &Value::Null);
        assert_eq!(used, "all traffic goes through vps now, but for private networks here");
        assert!(
            sentence(&settings(Some("vps"), false), "closed", &Value::Null)
                .starts_with("nothing leaves")
        );
        assert_eq!(exit_state(None, &settings(None, false), &Value::Null), "none");
        assert_eq!(exit_state(None, &settings(Some("vps"), false), &Value::Null), "unknown");
    }
}
