//! What changes, for pages that are open: a stream of server-sent events (HTML, section 9.2).
//!
//! An event says what kind of thing changed and its number, and nothing of what it is now: who
//! listens asks for that, and is told what it may see. Who may see none of a kind is not told that
//! it changed. A listener that reads too slowly is told that it missed some (`lost`).

use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc};
use tokio::time::{Instant, timeout_at};

use super::{Caller, Reach};
use crate::app::App;
use crate::events::{Event, Sending};
use crate::roles::SCOPES;

/// A line that says nothing goes after so long a silence, so that proxies keep the connection.
const SILENCE: Duration = Duration::from_secs(15);
/// A stream ends after so long: who is signed in no more, or has another role, hears no more.
const LAST: Duration = Duration::from_secs(300);
/// Pieces of a body that wait to be sent.
const PIECES_MAX: usize = 16;

/// The stream of a caller, as far as it reaches.
pub(super) fn stream(app: &Arc<App>, caller: &Caller, reach: Reach) -> Sending {
    let (into, pieces) = mpsc::channel(PIECES_MAX);
    let events = app.events.listen();
    let scopes: Vec<&str> = match caller {
        Caller::User(session) => session.user.role().scopes(),
        Caller::Token(_, bearer) => bearer.scopes.iter().filter_map(|scope| known(scope)).collect(),
        Caller::Local(_) => SCOPES.to_vec(),
        Caller::Anonymous => Vec::new(),
    };
    tokio::spawn(pump(Arc::clone(app), events, scopes, reach, into));
    Sending::Stream(pieces)
}

fn known(scope: &str) -> Option<&'static str> {
    SCOPES.into_iter().find(|known| *known == scope)
}

async fn pump(
    app: Arc<App>,
    mut events: broadcast::Receiver<Event>,
    scopes: Vec<&'static str>,
    reach: Reach,
    into: mpsc::Sender<Bytes>,
) {
    let end = Instant::now() + LAST;
    let mut text = "retry: 2000\n\n".to_owned();
    loop {
        // What somebody may not hear is no sign of life either.
        if !text.is_empty() && into.send(Bytes::from(text)).await.is_err() {
            return;
        }
        let silence = Instant::now() + SILENCE;
        text = match timeout_at(silence.min(end), events.recv()).await {
            Ok(Ok(event)) if may_hear(&app, event, &scopes, &reach) => {
                let Event { kind, id } = event;
                format!("event: {kind}\ndata: {{\"id\":{id}}}\n\n")
            }
            Ok(Ok(_)) => String::new(),
            Ok(Err(RecvError::Lagged(_))) => "event: lost\ndata: {}\n\n".to_owned(),
            Ok(Err(RecvError::Closed)) => return,
            Err(_) if Instant::now() >= end => return,
            Err(_) => ": still here\n\n".to_owned(),
        };
    }
}

/// Whether somebody may know that this changed.
fn may_hear(app: &App, event: Event, scopes: &[&str], reach: &Reach) -> bool {
    let needed = match event.kind {
        "node" | "route" => "nodes:read",
        "policy" => "policy:read",
        "key" => "keys:read",
        _ => "users:read",
    };
    match reach {
        _ if scopes.contains(&needed) => true,
        Reach::Own(name) if needed == "nodes:read" => {
            app.network().owner_of(event.id).is_none_or(|owner| owner.as_ref() == Some(name))
        }
        _ => false,
    }
}
