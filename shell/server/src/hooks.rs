//! Webhooks: what others are told of when it happens in the network.
//!
//! Each second the network is looked at (`watch`), and what differs from the look before is an
//! event: nothing in the server has to remember to tell. An event is a JSON document for each hook,
//! in a queue of its own with a bound; one task a hook posts them in their order (`post`), signed
//! so that the receiver knows that it was us. What is not taken is tried again for about
//! five minutes, then dropped and counted. A hook that hangs holds up its own queue and nothing
//! else.

mod post;
pub(crate) mod watch;

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use control::text::rfc3339;
use hyper::Uri;
use ring::hmac;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::held::held;
use crate::store::Node;
use post::Poster;
use watch::{Event, View};

/// Hooks of a server, at most.
pub const HOOKS_MAX: usize = 8;
/// Events that wait for a hook, at most; then the oldest is dropped.
const WAITING_MAX: usize = 256;
/// How often an event is tried, at most.
const TRIES_MAX: u32 = 8;
/// The pause after the first try that failed; it doubles with each, up to the longest.
const PAUSE: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(64);
/// Bytes of a secret, at least.
const SECRET_LEN_MIN: usize = 16;

/// Where events are posted, and the secret that signs them.
#[derive(Clone, PartialEq, Eq)]
pub struct Hook {
    uri: Uri,
    secret: String,
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A path may be a secret as well.
        write!(f, "Hook({})", self.uri.host().unwrap_or_default())
    }
}

impl Hook {
    /// A hook at this URL.
    ///
    /// # Errors
    /// What is wrong with URL or secret, and how to mend it.
    pub fn new(url: &str, secret: &str) -> Result<Self, String> {
        let wrong = || format!("{url:?} is no URL of a webhook; write https://HOST/PATH");
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let is_known = matches!(uri.scheme_str(), Some("http" | "https"));
        if !is_known || uri.host().is_none_or(str::is_empty) {
            return Err(wrong());
        }
        if secret.len() < SECRET_LEN_MIN {
            return Err(format!(
                "the secret of a webhook has {SECRET_LEN_MIN} characters or more; make one with \
                 `warren genpsk`"
            ));
        }
        Ok(Self { uri, secret: secret.to_owned() })
    }

    /// What a receiver compares: the time, and HMAC-SHA256 over that, a dot and the body.
    fn signature(&self, unix_s: u64, body: &str) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.secret.as_bytes());
        let tag = hmac::sign(&key, format!("{unix_s}.{body}").as_bytes());
        let hex: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("t={unix_s},v1={hex}")
    }
}

/// What became of events so far, of all hooks.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) delivered: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) dropped: AtomicU64,
}

/// The events that wait for one hook.
struct Queue {
    waiting: Mutex<VecDeque<String>>,
    news: Notify,
}

/// All hooks of a server.
#[derive(Default)]
pub(crate) struct Hooks {
    hooks: Vec<(Hook, Arc<Queue>)>,
    before: Mutex<Option<View>>,
    number: AtomicU64,
    pub(crate) counts: Arc<Counts>,
}

impl Hooks {
    pub(crate) fn new(hooks: Vec<Hook>) -> Self {
        let queue = || Queue { waiting: Mutex::default(), news: Notify::new() };
        let hooks = hooks.into_iter().map(|hook| (hook, Arc::new(queue()))).collect();
        Self { hooks, ..Self::default() }
    }

    /// Whether anybody is told anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.hooks.is_empty()
    }

    /// Takes a look at the network, of this epoch, and queues what is new in it.
    pub(crate) fn look(&self, view: View, epoch: u64, now: u64) {
        let mut before = held(&self.before);
        let events = before.as_ref().map(|before| watch::changes(before, &view, now));
        *before = Some(view);
        drop(before);
        for event in events.into_iter().flatten() {
            let number = self.number.fetch_add(1, Ordering::Relaxed) + 1;
            let text = told(&event, format!("{epoch}-{number}"), now).to_string();
            self.hooks.iter().for_each(|(_, queue)| self.queue(queue, text.clone()));
        }
    }

    fn queue(&self, queue: &Queue, text: String) {
        let mut waiting = held(&queue.waiting);
        if waiting.len() >= WAITING_MAX {
            waiting.pop_front();
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
        waiting.push_back(text);
        drop(waiting);
        queue.news.notify_one();
    }

    /// A task for each hook, which never ends.
    pub(crate) fn tasks(
        &self,
        now: fn() -> u64,
    ) -> Result<Vec<impl Future<Output = ()> + Send + use<>>, String> {
        let task = |(hook, queue): &(Hook, Arc<Queue>)| {
            let poster = Poster::new(hook.uri.clone())?;
            let hook = hook.clone();
            let queue = Arc::clone(queue);
            let counts = Arc::clone(&self.counts);
            Ok(async move {
                loop {
                    let Some(text) = held(&queue.waiting).pop_front() else {
                        queue.news.notified().await;
                        continue;
                    };
                    deliver(&poster, &hook, &text, &counts, now).await;
                }
            })
        };
        self.hooks.iter().map(task).collect()
    }
}

/// Posts one event until it is taken, or was tried often enough.
async fn deliver(poster: &Poster, hook: &Hook, text: &str, counts: &Counts, now: fn() -> u64) {
    let mut pause = PAUSE;
    for attempt in 1..=TRIES_MAX {
        let signature = hook.signature(now(), text);
        match poster.post(text, &signature).await {
            Ok(()) => {
                counts.delivered.fetch_add(1, Ordering::Relaxed);
                return;
            }
            Err(why) => {
                counts.failed.fetch_add(1, Ordering::Relaxed);
                if attempt == TRIES_MAX {
                    let host = hook.uri.host().unwrap_or_default();
                    tracing::warn!(host, why, "an event is given up: the webhook does not take it");
                    counts.dropped.fetch_add(1, Ordering::Relaxed);
                    return;
                }
            }
        }
        tokio::time::sleep(pause).await;
        pause = PAUSE_MAX.min(pause * 2);
    }
}

/// An event as a receiver reads it.
fn told(event: &Event, id: String, now: u64) -> Value {
    let node = event.node.as_ref().map(|node| shown(node));
    json!({
        "schema": 1,
        "id": id,
        "time": rfc3339(now),
        "event": event.kind.name(),
        "text": event.text(),
        "node": node,
        "policy_version": event.policy_version,
    })
}

fn shown(node: &Node) -> Value {
    let waiting: Vec<_> =
        node.host.routes.iter().filter(|route| !node.approved_routes.contains(route)).collect();
    json!({
        "id": node.id,
        "name": node.name,
        "user": node.user,
        "tags": node.tags,
        "approved": node.approved,
        "expires": node.expires.map(rfc3339),
        "routes": node.routes(),
        "routes_waiting": waiting,
        "gateway": node.gateway,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_an_hmac_of_time_and_body() {
        let hook = Hook::new("https://example.com/x", "0123456789abcdef").unwrap();
        // printf '1700000000.{}' | openssl dgst -sha256 -hmac 0123456789abcdef
        let tag = "e4f8e2ecae2295b2ddb2f0b5584c8275e226c0ebe9b3b819e70156bb67122e3e";
        assert_eq!(hook.signature(1_700_000_000, "{}"), format!("t=1700000000,v1={tag}"));
        assert!(!format!("{hook:?}").contains("0123") && !format!("{hook:?}").contains("/x"));
    }

    #[test]
    fn what_is_no_hook_is_told_with_its_mend() {
        let secret = "0123456789abcdef";
        for bad in ["", "example.com", "ftp://example.com/", "https://", "/path"] {
            let why = Hook::new(bad, secret).unwrap_err();
            assert!(why.contains("https://HOST/PATH"), "{bad}: {why}");
        }
        let why = Hook::new("https://example.com/", "short").unwrap_err();
        assert!(why.contains("genpsk"), "{why}");
    }
}
