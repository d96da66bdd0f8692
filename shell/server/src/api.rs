//! The REST API: which routes there are, what each needs, and how a call is authorised.
//!
//! [`ROUTES`] is the only way in. A route has one scope; who calls is known before any body is
//! read; everything that is not allowed is refused by [`authorise`] and nowhere else (threat
//! CO-09). Three kinds of callers come here: local ones over the server's socket, bearers of an
//! API token over HTTPS, and the same inside a node's channel, where no certificate has to be
//! trusted. The document `openapi.json` says the same for readers; a test compares the two.

mod backup;
mod explain;
mod handlers;
mod metrics;
mod peers;
mod problem;
mod relays;
mod resolvers;

use std::sync::Arc;

use control::{ApiAnswer, ApiRequest, Kind, Token};
use noise::PublicKey;
use serde::de::DeserializeOwned;

pub(crate) use problem::Problem;

use crate::app::App;
use crate::doorstep::{Known, Way};
use crate::store::Bearer;
use crate::waits;

/// Bytes of a body: a policy with room for its JSON.
pub(crate) const BODY_BYTES_MAX: usize = 1024 * 1024 + 64 * 1024;
/// The document that describes the API.
pub(crate) const OPENAPI: &str = include_str!("api/openapi.json");

/// What a caller may do. The names are those in tokens.
#[rustfmt::skip]
pub(crate) const SCOPES: [&str; 16] = [
    "nodes:read", "nodes:write", "keys:read", "keys:write", "users:read", "users:write",
    "policy:read", "policy:write", "audit:read", "tokens:read", "tokens:write",
    "relay:serve", "metrics:read", "dns:read", "dns:write",
    "backup:read",
];
/// The scope of routes that need none.
const PUBLIC: &str = "";
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
}

/// One call, authorised.
pub(crate) struct Call {
    pub(crate) app: Arc<App>,
    pub(crate) actor: String,
    /// Whose token it is, unless a process of this machine calls.
    pub(crate) bearer: Option<Bearer>,
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
    /// 201 with JSON.
    Created(serde_json::Value),
    /// 204.
    Empty,
    /// 200 with lines for a monitor.
    Text(String),
    /// 200 with the API's own document.
    Document,
}

type Handler = fn(&Call) -> Result<Reply, Problem>;

/// One route: method, path with at most one `{id}`, scope, and who answers.
pub(crate) struct Route {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) scope: &'static str,
    handler: Handler,
}

const fn route(
    method: &'static str,
    path: &'static str,
    scope: &'static str,
    handler: Handler,
) -> Route {
    Route { method, path, scope, handler }
}

/// Every route of the API.
#[rustfmt::skip]
pub(crate) const ROUTES: &[Route] = &[
    route("GET", "/api/v1/openapi.json", PUBLIC, |_| Ok(Reply::Document)),
    route("GET", "/api/v1/health", PUBLIC, handlers::health),
    route("GET", "/healthz", PUBLIC, handlers::health),
    route("GET", "/metrics", "metrics:read", metrics::metrics),
    route("GET", "/api/v1/users", "users:read", handlers::users),
    route("POST", "/api/v1/users", "users:write", handlers::add_user),
    route("DELETE", "/api/v1/users/{id}", "users:write", handlers::remove_user),
    route("GET", "/api/v1/keys", "keys:read", handlers::keys),
    route("POST", "/api/v1/keys", "keys:write", handlers::add_key),
    route("POST", "/api/v1/keys/{id}/expire", "keys:write", handlers::expire_key),
    route("GET", "/api/v1/nodes", "nodes:read", handlers::nodes),
    route("GET", "/api/v1/nodes/{id}", "nodes:read", handlers::node),
    route("DELETE", "/api/v1/nodes/{id}", "nodes:write", handlers::remove_node),
    route("POST", "/api/v1/nodes/{id}/rename", "nodes:write", handlers::rename_node),
    route("POST", "/api/v1/nodes/{id}/tags", "nodes:write", handlers::tag_node),
    route("POST", "/api/v1/nodes/{id}/approve", "nodes:write", handlers::approve_node),
    route("POST", "/api/v1/nodes/{id}/expire", "nodes:write", handlers::expire_node),
    route("POST", "/api/v1/nodes/{id}/routes", "nodes:write", handlers::approve_routes),
    route("GET", "/api/v1/peers", "nodes:read", peers::list),
    route("POST", "/api/v1/peers", "nodes:write", peers::add),
    route("DELETE", "/api/v1/peers/{id}", "nodes:write", peers::remove),
    route("GET", "/api/v1/relays", "nodes:read", relays::relays),
    route("POST", "/api/v1/relays", "relay:serve", relays::put_relay),
    route("GET", "/api/v1/relays/members", "relay:serve", relays::relay_members),
    route("DELETE", "/api/v1/relays/{id}", "nodes:write", relays::remove_relay),
    route("GET", "/api/v1/policy", "policy:read", handlers::policy),
    route("PUT", "/api/v1/policy", "policy:write", handlers::set_policy),
    route("POST", "/api/v1/policy/check", "policy:read", handlers::check_policy),
    route("POST", "/api/v1/policy/explain", "policy:read", explain::explain),
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

impl Call {
    /// Whether somebody in particular calls.
    fn is_known(&self) -> bool {
        self.actor != ANONYMOUS
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

/// Whether the caller may use the route. The only place that decides.
pub(crate) fn authorise(route: &Route, caller: &Caller) -> Result<(), Problem> {
    match caller {
        _ if route.scope == PUBLIC => Ok(()),
        Caller::Local(_) => Ok(()),
        Caller::Token(_, bearer) if bearer.scopes.iter().any(|scope| scope == route.scope) => {
            Ok(())
        }
        Caller::Token(..) => {
            let detail = format!("the token needs the scope {}", route.scope);
            Err(Problem::new(403, "this token may not do that", detail))
        }
        Caller::Anonymous => {
            let detail = "give a token of `warren token create` as Authorization: Bearer";
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

/// Runs an authorised call.
pub(crate) async fn run(
    app: Arc<App>,
    (route, id): (&'static Route, u64),
    caller: Caller,
    machine: Option<PublicKey>,
    query: String,
    body: Vec<u8>,
) -> Result<Reply, Problem> {
    authorise(route, &caller)?;
    let (actor, bearer) = match caller {
        Caller::Anonymous => (ANONYMOUS.to_owned(), None),
        Caller::Local(uid) => (format!("local:{uid}"), None),
        Caller::Token(name, bearer) => (format!("token:{name}"), Some(bearer)),
    };
    let call = Call { app, actor, bearer, machine, id, query, body };
    if route.scope == PUBLIC {
        // It asks neither the books nor a disk, so nobody waits for it, nor it for anybody.
        return (route.handler)(&call);
    }
    waits::blocking(move || (route.handler)(&call)).await.map_err(|_| Problem::busy())?
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
        let (app, body) = (Arc::clone(&app), request.body.into_bytes());
        run(app, found, caller, Some(machine), query.to_owned(), body).await
    };
    match result.await {
        Ok(Reply::Json(value)) => ApiAnswer { status: 200, body: value.to_string() },
        Ok(Reply::Text(text)) => ApiAnswer { status: 200, body: text },
        Ok(Reply::Created(value)) => ApiAnswer { status: 201, body: value.to_string() },
        Ok(Reply::Empty) => ApiAnswer { status: 204, body: String::new() },
        Ok(Reply::Document) => ApiAnswer { status: 200, body: OPENAPI.to_owned() },
        Err(problem) => ApiAnswer { status: problem.status, body: problem.print() },
    }
}

#[cfg(test)]
mod tests;
