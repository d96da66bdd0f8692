//! The node's side of the server: channels and the requests in them.
//!
//! A request is read only after the channel proved whose machine it is, and is bound to the node
//! that has both this machine's key and the node key that it names. What is refused is an answer
//! inside the channel; outside there are only the statuses 200, 400, 410 and 503.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use admit::Source;
use control::channel::{BadChannel, Channel, OPEN_LEN};
use control::client::ASK_HEAD_LEN;
use control::join::Refused;
use control::limits::REQUEST_BYTES_MAX;
use control::{
    Answer, Code, Enrol, Enrolled, Envelope, HostInfo, LinkReport, Poll, Request, SignIn,
    SignInLink,
};
use noise::PublicKey;
use tokio::time::{Instant, timeout_at};

use crate::api;
use crate::app::App;
use crate::channels::{Found, Opened};
use crate::doorstep::{Known, Way};
use crate::held::held;
use crate::knocks::Heard;
use crate::limits::Kind;
use crate::network::News;
use crate::signin;
use crate::store::{Joining, StoreError};
use crate::waits::{Unfinished, blocking, unproven};

/// Bytes of a request with everything around it.
pub(crate) const ASK_BYTES_MAX: usize = ASK_HEAD_LEN + REQUEST_BYTES_MAX + 1024;
/// The longest that a poll waits.
const WAIT_MAX: Duration = Duration::from_secs(55);
/// After a change a poll waits so long for others that come with it, and longer in a large
/// network: each is told of each, so that few large messages cost much less than many small ones
/// (threat CO-10).
const GATHER: Duration = Duration::from_millis(30);
const GATHER_FOR_EACH: Duration = Duration::from_micros(200);
const GATHER_MAX: Duration = Duration::from_millis(300);

/// An answer without a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// 400: no message of ours.
    Malformed,
    /// 410: no such channel, or the number was used; open another.
    NoChannel,
    /// 503: not now.
    Busy,
}

impl From<Unfinished> for Failure {
    fn from(_: Unfinished) -> Self {
        Self::Busy
    }
}

/// Answers the first message of a channel.
pub(crate) async fn open(
    app: Arc<App>,
    source: Option<Source>,
    message: Vec<u8>,
) -> Result<Vec<u8>, Failure> {
    if message.len() != OPEN_LEN {
        return Err(Failure::Malformed);
    }
    let source = source.unwrap_or(Source::OWN);
    let ours = Arc::clone(&app);
    let opened = unproven(&ours.unproven, move || {
        // Four Diffie-Hellman, with no lock held.
        let verifying = app.keys.signing.verifying();
        let opened = Opened::new(&app.keys.noise, verifying, &message, app.moment())?;
        let is_member = app.network().is_machine(&opened.machine);
        Ok(held(&app.channels).take(opened, is_member, source))
    });
    opened.await?.map_err(|_: BadChannel| Failure::Malformed)
}

/// Answers one sealed request.
pub(crate) async fn ask(app: Arc<App>, way: Way, message: Vec<u8>) -> Result<Vec<u8>, Failure> {
    let (head, sealed) = message.split_at_checked(ASK_HEAD_LEN).ok_or(Failure::Malformed)?;
    let name: [u8; 16] = head[..16].try_into().map_err(|_| Failure::Malformed)?;
    let number = u64::from_be_bytes(head[16..].try_into().map_err(|_| Failure::Malformed)?);
    let found = held(&app.channels).find(&name);
    let Found { channel, machine, is_member } = found.map_err(|_| Failure::NoChannel)?;
    let plain =
        channel.receive(number, sealed, REQUEST_BYTES_MAX).map_err(|_| Failure::NoChannel)?;
    held(&app.channels)
        .use_number(&name, number, app.moment().up_s)
        .map_err(|_| Failure::NoChannel)?;
    if is_member {
        way.prove(Known::Machine(machine));
    }
    let answer = match Envelope::read(&plain) {
        Err(why) => Answer::refused(Code::Invalid, why.to_string()),
        Ok(_) if !is_member && !app.limits.request(way.source) => too_often(),
        Ok(envelope) => {
            Asked { app, way, machine, is_member, name, node_key: envelope.node_key }
                .answer(envelope.request)
                .await?
        }
    };
    seal(&channel, number, &answer)
}

fn seal(channel: &Channel, number: u64, answer: &Answer) -> Result<Vec<u8>, Failure> {
    channel.seal(number, &answer.print()).map_err(|_| Failure::Busy)
}

fn too_often() -> Answer {
    Answer::refused(Code::Busy, "this asks too often; it asks again in a while")
}

/// One request with what is proven of it.
#[derive(Clone)]
struct Asked {
    app: Arc<App>,
    way: Way,
    machine: PublicKey,
    /// The machine was in the books when its channel was opened, or has joined since.
    is_member: bool,
    name: [u8; 16],
    node_key: PublicKey,
}

impl Asked {
    async fn answer(self, request: Request) -> Result<Answer, Failure> {
        match request {
            Request::Poll(poll) => Ok(self.poll(poll).await),
            Request::Enrol(enrol) => self.join(enrol).await,
            Request::SignIn(asked) => self.sign_in(asked).await,
            Request::Report(host) => Ok(blocking(move || self.report(&host)).await?),
            Request::Links { links } => Ok(self.links(links)),
            Request::Rotate { new_key } => Ok(blocking(move || self.rotate(new_key)).await?),
            Request::Logout => Ok(blocking(move || self.logout()).await?),
            Request::Stop => Ok(blocking(move || self.stop()).await?),
            Request::Api(call) => {
                Ok(Answer::Api(api::inside(self.app, self.way, self.machine, call).await))
            }
        }
    }

    /// Whether this machine may ask for that once more.
    fn may(&self, kind: Kind) -> bool {
        self.app.limits.member(&self.machine, kind, self.app.moment().up_s)
    }

    /// Sorts out who may join at all before a thread or the books are asked.
    async fn join(self, enrol: Enrol) -> Result<Answer, Failure> {
        let limits = &self.app.limits;
        if self.is_member {
            if !self.may(Kind::Enrol) {
                return Ok(too_often());
            }
            return Ok(blocking(move || self.enrol(&enrol)).await?);
        }
        if !limits.may_try(self.way.source) || !limits.may_join(enrol.id) {
            let detail = "too many nodes join at once, or with keys that open nothing; wait";
            return Ok(Answer::refused(Code::Busy, detail));
        }
        if !self.app.secrets.open(&enrol.id, &enrol.secret.0) {
            limits.failed(self.way.source);
            return Ok(refuse(&StoreError::Key(Refused::Unknown)));
        }
        Ok(blocking(move || self.enrol(&enrol)).await?)
    }

    /// A machine that has no join key: waits for somebody to let it in.
    async fn sign_in(self, asked: SignIn) -> Result<Answer, Failure> {
        let deadline = Instant::now() + Duration::from_millis(asked.wait_ms.into()).min(WAIT_MAX);
        let (app, keys) = (Arc::clone(&self.app), (self.machine, self.node_key));
        if !app.limits.knock(self.way.source) {
            return Ok(too_often());
        }
        let source = self.way.source.unwrap_or(Source::OWN);
        let mut answers = app.knocks.answers();
        loop {
            answers.borrow_and_update();
            // Its own key, which is not over, is worth more than anybody's word.
            if app.network().is_in(&self.machine, app.now()) {
                let host = asked.host;
                return Ok(blocking(move || self.again(&host)).await?);
            }
            let (code, expires_unix_s, is_new) =
                match app.knocks.ask(keys, &asked.host, source, app.moment()) {
                    Heard::New(code, ends) => (code, ends, true),
                    Heard::Known(code, ends) => (code, ends, false),
                    Heard::Refused => {
                        let detail = "somebody refused this machine in a browser; ask who that was";
                        return Ok(Answer::refused(Code::KeyRevoked, detail));
                    }
                };
            let waited =
                if is_new { None } else { Some(timeout_at(deadline, answers.changed()).await) };
            if !matches!(waited, Some(Ok(Ok(())))) {
                let url = signin::link(&app, &code);
                return Ok(Answer::SignIn(SignInLink { url, expires_unix_s }));
            }
        }
    }

    /// A machine that is in the books says again who it is.
    fn again(&self, host: &HostInfo) -> Answer {
        let joining = Joining {
            machine_key: self.machine,
            node_key: self.node_key,
            lookup: [0; 8],
            secret: &[0; 16],
            host,
        };
        let terms = self.app.terms;
        let node = self.app.write_node(true, |store, now| {
            store.enrol(&joining, terms, now).map(|registered| registered.node)
        });
        match node {
            Ok(node) => {
                held(&self.app.channels).promote(&self.name);
                self.way.prove(Known::Machine(self.machine));
                let (name, approved) = (node.name, node.approved);
                Answer::Enrolled(Enrolled { node: node.id, name, approved })
            }
            Err(error) => refuse(&error),
        }
    }

    fn enrol(&self, enrol: &Enrol) -> Answer {
        let limits = &self.app.limits;
        let joining = Joining {
            machine_key: self.machine,
            node_key: self.node_key,
            lookup: enrol.id,
            secret: &enrol.secret.0,
            host: &enrol.host,
        };
        let mut is_new = false;
        let node = self.app.write_node(true, |store, now| {
            let registered = store.enrol(&joining, self.app.terms, now)?;
            is_new = registered.is_new;
            Ok(registered.node)
        });
        match node {
            Ok(node) => {
                if is_new {
                    limits.joined(enrol.id);
                }
                held(&self.app.channels).promote(&self.name);
                self.way.prove(Known::Machine(self.machine));
                tracing::debug!(node = node.id, name = node.name, is_new, "enrolled");
                self.app.approve_automatic(node.id);
                let (name, approved) = (node.name, node.approved);
                Answer::Enrolled(Enrolled { node: node.id, name, approved })
            }
            Err(error) => {
                if matches!(error, StoreError::Key(_)) {
                    limits.failed(self.way.source);
                }
                refuse(&error)
            }
        }
    }

    fn member(&self) -> Result<u64, Answer> {
        self.app.network().member(&self.machine, &self.node_key, self.app.now()).map(|node| node.id)
    }

    fn report(&self, host: &HostInfo) -> Answer {
        if !self.may(Kind::Report) {
            return too_often();
        }
        let id = match self.member() {
            Ok(id) => id,
            Err(refused) => return refused,
        };
        let before = self.app.network().host_of(id);
        // Every node reports after a restart of the server, mostly what is known.
        if before.as_ref() == Some(host) {
            return Answer::Done;
        }
        // An approved route that is offered anew changes what the node itself is told, and so does
        // another name.
        let is_other = before
            .is_some_and(|before| before.routes != host.routes || before.hostname != host.hostname);
        match self.app.write_node(is_other, |store, now| store.report(id, host, now)) {
            Ok(_) => {
                self.app.approve_automatic(id);
                Answer::Done
            }
            Err(error) => refuse(&error),
        }
    }

    /// What a node says of its links; nothing depends on it, and it may be lost.
    fn links(&self, links: Vec<LinkReport>) -> Answer {
        let is_let = self.app.takes_links.load(Ordering::Relaxed);
        if !is_let || !self.app.network().takes_links() {
            return Answer::refused(Code::Invalid, "this network wants no reports of links");
        }
        if !self.may(Kind::Links) {
            return too_often();
        }
        match self.member() {
            Ok(id) => {
                let now = self.app.now();
                self.app.note_paths(id, &links, now);
                self.app.links().take(id, links, now);
                Answer::Done
            }
            Err(refused) => refused,
        }
    }

    fn rotate(&self, new_key: PublicKey) -> Answer {
        // The answer to the same request may have been lost.
        if self.app.network().member(&self.machine, &new_key, self.app.now()).is_ok() {
            return Answer::Done;
        }
        if !self.may(Kind::Rotate) {
            return too_often();
        }
        let renewer = self.app.network().renewer(&self.machine, &self.node_key, self.app.now());
        let id = match renewer {
            Ok(node) => node.id,
            Err(refused) => return refused,
        };
        let lifetime = self.app.terms.lifetime_s;
        match self.app.write_node(true, |store, now| store.rotate(id, new_key, lifetime, now)) {
            Ok(_) => Answer::Done,
            Err(error) => refuse(&error),
        }
    }

    fn logout(&self) -> Answer {
        match self.member() {
            Ok(id) => match self.app.remove_node(id, &format!("node:{id}")) {
                Ok(()) => Answer::Done,
                Err(error) => refuse(&error),
            },
            Err(refused) => refused,
        }
    }

    /// A node ends for now. One that is ephemeral leaves by that, and its name is free for who
    /// comes by the same key (threat CO-15).
    fn stop(&self) -> Answer {
        let id = match self.member() {
            Ok(id) => id,
            Err(refused) => return refused,
        };
        if !self.app.network().is_ephemeral(id) {
            return Answer::Stopped { has_left: false };
        }
        match self.app.remove_node(id, &format!("node:{id}")) {
            Ok(()) => Answer::Stopped { has_left: true },
            Err(error) => refuse(&error),
        }
    }

    /// Waits for news, and tells meanwhile that the node is in touch.
    async fn poll(&self, poll: Poll) -> Answer {
        let id = match self.member() {
            Ok(id) => id,
            Err(refused) => return refused,
        };
        if !self.may(Kind::Poll) {
            return too_often();
        }
        if self.app.network().is_ahead(id, &poll) {
            let app = Arc::clone(&self.app);
            let seen = poll.clone();
            let is_overtaken = blocking(move || app.overtake(id, &seen)).await;
            if !is_overtaken.unwrap_or(false) {
                let detail = "this node has a later map than the server; it asks again";
                return Answer::refused(Code::Busy, detail);
            }
        }
        let _stay = Stay::new(&self.app, id);
        let wait = Duration::from_millis(poll.wait_ms.into()).min(WAIT_MAX);
        let deadline = Instant::now() + wait;
        let mut changes = self.app.changes();
        loop {
            changes.borrow_and_update();
            let news = self.app.news(&self.machine, &self.node_key, &poll);
            match news {
                News::Statement(statement) => {
                    return Answer::News { signed: self.app.sign(statement, poll.bare) };
                }
                News::Refused(refused) => return refused,
                News::Nothing => {}
            }
            match timeout_at(deadline, changes.changed()).await {
                Ok(Ok(())) => {
                    let nodes = u32::try_from(self.app.network().len()).unwrap_or(u32::MAX);
                    let gather = GATHER + GATHER_FOR_EACH.saturating_mul(nodes);
                    tokio::time::sleep(gather.min(GATHER_MAX)).await;
                }
                Ok(Err(_)) | Err(_) => return Answer::Unchanged,
            }
        }
    }
}

/// A node is in touch as long as this lives; also when its connection breaks.
struct Stay<'a> {
    app: &'a App,
    id: u64,
}

impl<'a> Stay<'a> {
    fn new(app: &'a App, id: u64) -> Self {
        app.touch_quietly(|network| network.arrive(id, app.moment()));
        Self { app, id }
    }
}

impl Drop for Stay<'_> {
    fn drop(&mut self) {
        self.app.touch_quietly(|network| network.leave(self.id, self.app.moment()));
    }
}

fn refuse(error: &StoreError) -> Answer {
    let code = match error {
        StoreError::Key(why) => why.code(),
        StoreError::WrongKey => Code::WrongKey,
        StoreError::Missing(_) => Code::NotEnrolled,
        StoreError::Full => Code::Full,
        StoreError::Expired => Code::Expired,
        StoreError::Conflict(_) | StoreError::Invalid(_) | StoreError::Denied(_) => Code::Invalid,
        StoreError::Unavailable(_) | StoreError::Damaged(_) => {
            tracing::error!(%error, "the store refused a node's request");
            Code::Busy
        }
    };
    Answer::refused(code, error.to_string())
}
