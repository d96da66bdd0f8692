//! The REST API: which routes there are, what each needs, and how a call is authorised.
//!
//! [`ROUTES`] is the only way in. A route has one scope; who calls is known before any body is
//! read; everything that is not allowed is refused by [`authorise`] and nowhere else (threat
//! CO-09). Four kinds of callers come here: local ones over the server's socket, bearers of an
//! API token over HTTPS, the same inside a node's channel, where no certificate has to be
//! trusted, and people who signed in, whose role has scopes. A caller that lacks the scope of a
//! route that is marked `own` gets there, too, and finds what is its own ([`Reach`]). The document
//! `openapi.json` says the same for readers; a test compares the two.

mod backup;
mod explain;
mod handlers;
mod links;
mod metrics;
mod paths;
mod peers;
mod people;
mod policies;
mod problem;
mod relays;
mod resolvers;
mod session;
mod stream;

use std::sync::Arc;

use admit::Source;
use control::{ApiAnswer, ApiRequest, Kind, Token};
use noise::PublicKey;
use serde::de::DeserializeOwned;

pub(crate) use problem::Problem;
pub(crate) use session::{COOKIE, cookie, csrf, enter, is_csrf, prove, providers};

use crate::app::App;
use crate::doorstep::{Known, Way};
use crate::events::Sending;
use crate::roles::SCOPES;
use crate::store::{Bearer, Session, StoreError};
use crate::waits;

/// Bytes of a body: a policy with room for its JSON.
pub(crate) const BODY_BYTES_MAX: usize = 1024 * 1024 + 64 * 1024;
/// The document that describes the API.
pub(crate) const OPENAPI: &str = include_str!("api/openapi.json");

/// The scope of routes that need none.
const PUBLIC: &str = "";
/// The scope of routes about who calls: whoever that is.
const SELF: &str = "self";
/// Where changes are told.
const EVENTS: &str = "/api/v1/events";
/// The actor where nobody in particular calls.
const ANONYMOUS: &str = "anonymous";

/// Who calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Caller {
    /// Nobody in particular.
    Anonymous,
    /// A process on this machine that may administrate: its user.
    Local(u32),
    /// The bearer of a token: its look-up name, and what it may.
    Token(String, Bearer),
    /// Somebody who signed in.
    User(Box<Session>),
}

/// How far a call reaches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    /// Everything.
    All,
    /// What belongs to the user of this name.
    Own(String),
}

/// One call, authorised.
pub(crate) struct Call {
    pub(crate) app: Arc<App>,
    pub(crate) actor: String,
    pub(crate) caller: Caller,
    pub(crate) reach: Reach,
    /// From where, unless it is this machine.
    pub(crate) source: Option<Source>,
    /// The key that the caller's channel proves, where there is one.
    pub(crate) machine: Option<PublicKey>,
    /// The numbers in the path.
    pub(crate) id: u64,
    pub(crate) query: String,
    pub(crate) body: Vec<u8>,
}

/// What a call yields.
pub(crate) enum Reply {
    /// 200 with JSON.
    Json(serde_json::Value),
    /// 200 with JSON that is written already.
    Written(String),
    /// 201 with JSON.
    Created(serde_json::Value),
    /// 204.
    Empty,
    /// 200 with JSON, and a browser is told what to keep.
    Cookie(serde_json::Value, String),
    /// 200 with lines for a monitor.
    Text(String),
    /// 200 with the API's own document.
    Document,
    /// 200 with a stream of what changes.
    Events(Sending),
}

type Handler = fn(&Call) -> Result<Reply, Problem>;

/// One route: method, path with at most one `{id}`, scope, and who answers.
pub(crate) struct Route {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) scope: &'static str,
    /// Whether somebody without the scope gets here, too, for what is its own.
    pub(crate) own: bool,
    handler: Handler,
}

const fn route(
    method: &'static str,
    path: &'static str,
    scope: &'static str,
    handler: Handler,
) -> Route {
    Route { method, path, scope, own: false, handler }
}

/// A route about nodes, on which everybody who signed in has its own.
const fn own(
    method: &'static str,
    path: &'static str,
    scope: &'static str,
    handler: Handler,
) -> Route {
    Route { method, path, scope, own: true, handler }
}

/// Every route of the API.
#[rustfmt::skip]
pub(crate) const ROUTES: &[Route] = &[
    route("GET", "/api/v1/openapi.json", PUBLIC, |_| Ok(Reply::Document)),
    route("GET", "/api/v1/health", PUBLIC, handlers::health),
    route("GET", "/healthz", PUBLIC, handlers::health),
    route("GET", "/metrics", "metrics:read", metrics::metrics),
    route("GET", "/api/v1/session", SELF, session::show),
    route("POST", "/api/v1/session", SELF, session::begin),
    route("DELETE", "/api/v1/session", SELF, session::end),
    route("POST", "/api/v1/session/password", SELF, session::change_password),
    route("GET", "/api/v1/users", "users:read", people::users),
    route("POST", "/api/v1/users", "users:write", people::add_user),
    route("DELETE", "/api/v1/users/{id}", "users:write", people::remove_user),
    route("POST", "/api/v1/users/{id}/role", "users:write", people::set_role),
    route("POST", "/api/v1/users/{id}/password", "users:write", people::set_password),
    route("POST", "/api/v1/users/{id}/sign-out", "users:write", people::sign_out),
    route("GET", "/api/v1/keys", "keys:read", handlers::keys),
    route("POST", "/api/v1/keys", "keys:write", handlers::add_key),
    route("POST", "/api/v1/keys/{id}/expire", "keys:write", handlers::expire_key),
    own("GET", "/api/v1/nodes", "nodes:read", handlers::nodes),
    own("GET", "/api/v1/nodes/{id}", "nodes:read", handlers::node),
    own("DELETE", "/api/v1/nodes/{id}", "nodes:write", handlers::remove_node),
    own("POST", "/api/v1/nodes/{id}/rename", "nodes:write", handlers::rename_node),
    route("POST", "/api/v1/nodes/{id}/tags", "nodes:write", handlers::tag_node),
    route("POST", "/api/v1/nodes/{id}/user", "nodes:write", handlers::move_node),
    route("POST", "/api/v1/nodes/{id}/approve", "nodes:write", handlers::approve_node),
    own("POST", "/api/v1/nodes/{id}/expire", "nodes:write", handlers::expire_node),
    route("POST", "/api/v1/nodes/{id}/routes", "nodes:write", handlers::approve_routes),
    route("POST", "/api/v1/nodes/{id}/ways", "nodes:write", handlers::set_ways),
    route("GET", "/api/v1/peers", "nodes:read", peers::list),
    route("POST", "/api/v1/peers", "nodes:write", peers::add),
    route("DELETE", "/api/v1/peers/{id}", "nodes:write", peers::remove),
    own("GET", "/api/v1/events", "nodes:read", |_| Err(Problem::busy())),
    own("GET", "/api/v1/links", "nodes:read", links::links),
    route("GET", "/api/v1/paths", "nodes:read", paths::paths),
    route("GET", "/api/v1/relays", "nodes:read", relays::relays),
    route("POST", "/api/v1/relays", "relay:serve", relays::put_relay),
    route("GET", "/api/v1/relays/members", "relay:serve", relays::relay_members),
    route("DELETE", "/api/v1/relays/{id}", "nodes:write", relays::remove_relay),
    route("GET", "/api/v1/policy", "policy:read", policies::show),
    route("PUT", "/api/v1/policy", "policy:write", policies::set),
    route("POST", "/api/v1/policy/check", "policy:read", policies::check),
    route("POST", "/api/v1/policy/explain", "policy:read", explain::explain),
    route("GET", "/api/v1/policy/history", "policy:read", policies::history),
    route("GET", "/api/v1/policy/history/{id}", "policy:read", policies::version),
    route("POST", "/api/v1/policy/history/{id}/restore", "policy:write", policies::restore),
    route("GET", "/api/v1/dns", "dns:read", resolvers::resolvers),
    route("PUT", "/api/v1/dns", "dns:write", resolvers::set_resolvers),
    route("POST", "/api/v1/backup", "backup:read", backup::make),
    route("GET", "/api/v1/backup/{id}", "backup:read", backup::read),
    route("DELETE", "/api/v1/backup/{id}", "backup:read", backup::end),
    route("GET", "/api/v1/audit", "audit:read", handlers::audit),
    route("GET", "/api/v1/audit/verify", "audit:read", handlers::verify_audit),
    route("GET", "/api/v1/tokens", "tokens:read", handlers::tokens),
    route("POST", "/api/v1/tokens", "tokens:write", handlers::add_token),
    route("POST", "/api/v1/tokens/{id}/expire", "tokens:write", handlers::expire_token),
];

impl Route {
    /// Whether it is about who calls, whoever that is.
    pub(crate) fn is_about_caller(&self) -> bool {
        self.scope == SELF
    }

    /// Whether somebody signs in by it.
    pub(crate) fn is_sign_in(&self) -> bool {
        self.method == "POST" && self.path == "/api/v1/session"
    }
}

impl Call {
    /// Whether somebody in particular calls.
    fn is_known(&self) -> bool {
        self.caller != Caller::Anonymous
    }

    /// What the caller may do, unless that is everything.
    pub(crate) fn within(&self) -> Option<Vec<String>> {
        match &self.caller {
            Caller::Local(_) => None,
            Caller::Anonymous => Some(Vec::new()),
            Caller::Token(_, bearer) => Some(bearer.scopes.clone()),
            Caller::User(session) => {
                Some(session.user.role().scopes().into_iter().map(str::to_owned).collect())
            }
        }
    }

    /// The API token that calls, and the user who does, if one does.
    pub(crate) fn makers(&self) -> (Option<u64>, Option<u64>) {
        match &self.caller {
            Caller::Token(_, bearer) => (Some(bearer.id), None),
            Caller::User(session) => (None, Some(session.user.id)),
            Caller::Anonymous | Caller::Local(_) => (None, None),
        }
    }

    /// Refuses what is not the caller's own, if that is all it reaches: as if it were not there.
    fn own(&self) -> Result<(), Problem> {
        let Reach::Own(name) = &self.reach else { return Ok(()) };
        if self.id == 0 || self.app.store().node(self.id)?.user.as_ref() == Some(name) {
            return Ok(());
        }
        Err(StoreError::Missing(format!("node {}", self.id)).into())
    }

    /// The body as what the route wants.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        serde_json::from_slice(&self.body)
            .map_err(|why| Problem::new(400, "the body is not what this route wants", why))
    }

    /// A number of the query.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, Problem> {
        let mut pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        let found = pairs.find(|(key, _)| *key == name).map(|(_, value)| value);
        found
            .map(|text| text.parse())
            .transpose()
            .map_err(|_| Problem::new(400, "the query is wrong", format!("{name} is a number")))
    }
}

/// The route of a request and the number in its path, or why there is none.
pub(crate) fn find(method: &str, path: &str) -> Result<(&'static Route, u64), Problem> {
    let mut is_path = false;
    for route in ROUTES {
        let Some(id) = matches(route.path, path) else { continue };
        is_path = true;
        if route.method == method {
            return Ok((route, id));
        }
    }
    Err(if is_path {
        Problem::new(405, "this path has no such method", format!("{method} {path}"))
    } else {
        Problem::new(404, "there is no such path", "see /api/v1/openapi.json")
    })
}

/// The number in the path if it fits; 0 where the route has none.
fn matches(route: &str, path: &str) -> Option<u64> {
    let Some((before, after)) = route.split_once("{id}") else {
        return (route == path).then_some(0);
    };
    let digits = path.strip_prefix(before)?.strip_suffix(after)?;
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

/// How far the caller may use the route. The only place that decides.
pub(crate) fn authorise(route: &Route, caller: &Caller) -> Result<Reach, Problem> {
    if route.scope == PUBLIC || route.scope == SELF {
        return Ok(Reach::All);
    }
    match caller {
        Caller::Local(_) => Ok(Reach::All),
        Caller::Token(_, bearer) if bearer.scopes.iter().any(|scope| scope == route.scope) => {
            Ok(Reach::All)
        }
        Caller::Token(..) => {
            let detail = format!("the token needs the scope {}", route.scope);
            Err(Problem::new(403, "this token may not do that", detail))
        }
        Caller::User(session) if session.user.role().scopes().contains(&route.scope) => {
            Ok(Reach::All)
        }
        Caller::User(session) if route.own => Ok(Reach::Own(session.user.name.clone())),
        Caller::User(session) => {
            let detail = format!("{} lacks the scope {}", session.user.role, route.scope);
            Err(Problem::new(403, "your role may not do that", detail))
        }
        Caller::Anonymous => {
            let detail = "give a token of `warren token create` as Authorization: Bearer, or sign \
                          in";
            Err(Problem::new(401, "who calls is not known", detail))
        }
    }
}

/// Who bears a token: the field Authorization, if there is one.
pub(crate) async fn bearer(
    app: &Arc<App>,
    way: &Way,
    field: Option<&str>,
) -> Result<Caller, Problem> {
    let Some(field) = field else {
        let is_let = app.limits.request(way.source);
        return if is_let { Ok(Caller::Anonymous) } else { Err(Problem::too_often()) };
    };
    if !app.limits.may_try(way.source) {
        return Err(Problem::too_often());
    }
    let known = known(app, way, field).await;
    if known.as_ref().is_err_and(|problem| problem.status == 401) {
        app.limits.failed(way.source);
    }
    known
}

async fn known(app: &Arc<App>, way: &Way, field: &str) -> Result<Caller, Problem> {
    let refused = |detail: String| Problem::new(401, "this token opens nothing", detail);
    let text = field.strip_prefix("Bearer ").ok_or_else(|| refused("not Bearer".to_owned()))?;
    let token = Token::parse(text, Kind::Api).map_err(|why| refused(why.to_string()))?;
    if token.server != app.keys.noise.public() {
        return Err(refused("it is for another server".to_owned()));
    }
    identify(app, way, token.id.0, token.secret.0).await
}

async fn identify(
    app: &Arc<App>,
    way: &Way,
    id: [u8; 8],
    secret: [u8; 16],
) -> Result<Caller, Problem> {
    let nothing = || {
        let detail = "it is unknown, expired or was taken back";
        Problem::new(401, "this token opens nothing", detail)
    };
    // A secret of nobody's is refused without a look into the books.
    if !app.secrets.open(&id, &secret) {
        return Err(nothing());
    }
    let held = Arc::clone(app);
    let bearer = waits::blocking(move || held.store().bearer(id, &secret, held.now())).await;
    match bearer.map_err(|_| Problem::busy())?? {
        Some(_) if !app.limits.call(id) => Err(Problem::too_often()),
        Some(bearer) => {
            way.prove(Known::Token(id));
            Ok(Caller::Token(control::SecretId(id).to_hex(), bearer))
        }
        None => Err(nothing()),
    }
}

/// Whoever is in a session.
pub(crate) async fn signed_in(app: &Arc<App>, way: &Way, cookie: &str) -> Result<Caller, Problem> {
    // What we did not make is refused without a look into the books.
    let Some(id) = session::read(app, cookie) else { return bearer(app, way, None).await };
    if !app.limits.call(session::short(&id)) {
        return Err(Problem::too_often());
    }
    let held = Arc::clone(app);
    let found = waits::blocking(move || held.store().session(&id, held.now())).await;
    match found.map_err(|_| Problem::busy())?? {
        Some(session) => {
            way.prove(Known::Token(session::short(&id)));
            Ok(Caller::User(Box::new(session)))
        }
        None => bearer(app, way, None).await,
    }
}

/// Runs an authorised call.
pub(crate) async fn run(
    app: Arc<App>,
    called: (&'static Route, u64),
    caller: Caller,
    peer: (Option<PublicKey>, Option<Source>),
    query: String,
    body: Vec<u8>,
) -> Result<Reply, Problem> {
    let (route, id) = called;
    let (machine, source) = peer;
    let reach = authorise(route, &caller)?;
    let actor = match &caller {
        Caller::Anonymous => ANONYMOUS.to_owned(),
        Caller::Local(uid) => format!("local:{uid}"),
        Caller::Token(name, _) => format!("token:{name}"),
        Caller::User(session) => format!("user:{}", session.user.id),
    };
    if route.path == EVENTS {
        return Ok(Reply::Events(stream::stream(&app, &caller, reach)));
    }
    let call = Call { app, actor, caller, reach, source, machine, id, query, body };
    if route.scope == SELF && route.method == "POST" {
        // A password costs memory and time: few at once.
        let places = Arc::clone(&call.app.hashing);
        let done = waits::unproven(&places, move || (route.handler)(&call)).await;
        return done.map_err(|_| Problem::busy())?;
    }
    if route.scope == PUBLIC {
        // It asks neither the books nor a disk, so nobody waits for it, nor it for anybody.
        return (route.handler)(&call);
    }
    waits::blocking(move || call.own().and_then(|()| (route.handler)(&call)))
        .await
        .map_err(|_| Problem::busy())?
}

/// A call inside a node's channel.
pub(crate) async fn inside(
    app: Arc<App>,
    way: Way,
    machine: PublicKey,
    request: ApiRequest,
) -> ApiAnswer {
    let result = async {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let found = find(&request.method, path)?;
        if !app.limits.may_try(way.source) {
            return Err(Problem::too_often());
        }
        let caller = identify(&app, &way, request.id, request.secret.0).await;
        if caller.as_ref().is_err_and(|problem| problem.status == 401) {
            app.limits.failed(way.source);
        }
        let caller = caller?;
        let app = Arc::clone(&app);
        let body = request.body.into_bytes();
        let from = (Some(machine), way.source);
        run(app, found, caller, from, query.to_owned(), body).await
    };
    match result.await {
        Ok(Reply::Json(value) | Reply::Cookie(value, _)) => {
            ApiAnswer { status: 200, body: value.to_string() }
        }
        Ok(Reply::Text(text) | Reply::Written(text)) => ApiAnswer { status: 200, body: text },
        Ok(Reply::Created(value)) => ApiAnswer { status: 201, body: value.to_string() },
        Ok(Reply::Empty) => ApiAnswer { status: 204, body: String::new() },
        Ok(Reply::Document) => ApiAnswer { status: 200, body: OPENAPI.to_owned() },
        Ok(Reply::Events(_)) => {
            let problem = Problem::new(400, "no stream goes through a channel", "ask by HTTPS");
            ApiAnswer { status: problem.status, body: problem.print() }
        }
        Err(problem) => ApiAnswer { status: problem.status, body: problem.print() },
    }
}

#[cfg(test)]
mod tests;
