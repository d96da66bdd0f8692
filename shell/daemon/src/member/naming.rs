//! `warren set --hostname`, and `up` with it where the node is up: what the server makes of it is
//! told to who asked.
//!
//! The name of a node follows its hostname, with a number where another has it. One that an
//! administrator gave stays; then that is what is told.

use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use control::name;
use serde_json::Value;

use super::Daemon;
use crate::{Changes, system};

/// So long the server's word is waited for.
const NAMED_WITHIN: Duration = Duration::from_secs(3);

/// Who waits for a name.
pub(crate) struct Naming {
    label: String,
    reply: Value,
    answer: SyncSender<Value>,
    since: Instant,
}

impl Daemon {
    /// Whether the server can say now what this node is called.
    pub(crate) fn is_called(&self) -> bool {
        self.membership.is_some()
            && self.refusal.is_none()
            && self.map.is_some()
            && self.is_in_touch
    }

    /// Answers who changed settings; where that is the hostname, once the server has said what the
    /// node is called now.
    pub(crate) fn answer_named(
        &mut self,
        changes: &Changes,
        reply: Value,
        answer: SyncSender<Value>,
    ) {
        if changes.hostname.is_none() || reply["said"].is_null() {
            // Who asked and went away does not mind.
            let _ = answer.send(reply);
            return;
        }
        let settings = &self.state.kept.settings;
        let hostname = system::host_info(settings, Vec::new(), None).hostname;
        let label = name::label_of(&hostname);
        let next = Naming { label, reply, answer, since: Instant::now() };
        if let Some(other) = self.naming.replace(next) {
            let _ = other.answer.send(other.reply);
        }
        self.tell_name();
    }

    /// Tells who waits, if there is anything to tell or it took too long.
    pub(super) fn tell_name(&mut self) {
        let is_late = |naming: &Naming| {
            naming.since.elapsed() >= NAMED_WITHIN || self.map.is_none() || !self.is_in_touch
        };
        let called = self.map.as_ref().map(|map| map.me.name.clone());
        let is_named = |label: &str| called.as_ref().is_some_and(|is| name::is_made_of(is, label));
        let is_due = |naming: &mut Naming| is_named(&naming.label) || is_late(naming);
        let Some(mut naming) = self.naming.take_if(is_due) else { return };
        let told = told(called.as_deref(), &naming.label, self.is_in_touch);
        if let Some(said) = naming.reply["said"].as_array_mut() {
            said.push(Value::String(told));
        }
        let _ = naming.answer.send(naming.reply);
    }
}

/// What came of a hostname, by the label that it makes.
fn told(called: Option<&str>, label: &str, is_in_touch: bool) -> String {
    match called {
        Some(is) if name::is_made_of(is, label) => {
            format!("this node is called {is} in the network now")
        }
        Some(is) if is_in_touch => format!(
            "the network goes on calling this node {is}: an administrator or its join key gave \
             that name; at the server: warren node rename {is} {label}"
        ),
        _ => "the server is told once it is in touch".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_of_a_hostname_is_told() {
        let told = |called| told(called, "printer", true);
        assert!(told(Some("printer")).contains("is called printer"));
        assert!(told(Some("printer-1")).contains("is called printer-1"));
        assert!(told(Some("boss")).ends_with("warren node rename boss printer"));
        assert!(super::told(Some("boss"), "printer", false).contains("in touch"));
        assert!(told(None).contains("in touch"));
    }
}
