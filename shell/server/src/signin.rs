//! Pages that work without scripts: signing in, and letting a machine in.
//!
//! The life of a link `/a/CODE` that `warren up` printed:
//!
//! 1. Any browser opens it. The page says which machine asks: its name, its system, the beginning
//!    of its key, from where. Nothing is used up by that.
//! 2. Who is not signed in does so there: a form with name and password, or the provider.
//! 3. Two buttons let the machine in as that user's node, or refuse it. A button is a form with the
//!    session's own word in it, which no other page knows (threats CO-04, WB-01).
//! 4. The link is used up, the node is in the books, and the machine that waits is told.
//!
//! Whatever others wrote is escaped where it stands (threat WB-02), and the pages forbid scripts,
//! frames, and everything that is not from here.

pub(crate) mod form;
mod html;
mod provider;

use std::sync::Arc;

use control::text::{from_base64url, to_base64url};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

use crate::api::{self, Caller, Problem};
use crate::app::App;
use crate::doorstep::Way;
use crate::events::Sending;
use crate::knocks::{Code, Knock};
use crate::origin;
use crate::requests::{read_body, session_cookie};
use crate::store::{Admission, Session};
use crate::waits;

use form::Form;
use html::{Facts, Page};
pub(crate) use provider::refresh;

type Sent = Response<Sending>;

/// The page of a link.
pub(crate) const LINK: &str = "/a/";
const SIGN_IN: &str = "/sign-in";
const STYLE: &str = "/sign-in.css";
/// What our pages may do: nothing but show themselves and post to us.
const POLICY: &str = "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; \
                      frame-ancestors 'none'";

/// Whether a path is one of these pages.
pub(crate) fn is_page(path: &str) -> bool {
    let is_of_provider = path == provider::BEGIN || path == provider::BACK;
    path.starts_with(LINK) || path == SIGN_IN || path == STYLE || is_of_provider
}

/// The link of a code at this server.
pub(crate) fn link(app: &App, code: &Code) -> String {
    let base = app.urls.first().map(ToString::to_string).unwrap_or_default();
    format!("{}{LINK}{}", base.trim_end_matches('/'), to_base64url(code))
}

/// What a browser asked, as far as pages need it.
struct Asked {
    app: Arc<App>,
    way: Way,
    fields: HeaderMap,
    session: Option<Session>,
}

/// Answers a browser.
pub(crate) async fn answer(app: Arc<App>, request: Request<Incoming>, way: Way) -> Sent {
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    if path == STYLE && method == Method::GET {
        return styled();
    }
    let fields = request.headers().clone();
    let caller = match session_cookie(&fields) {
        Some(cookie) => api::signed_in(&app, &way, cookie).await,
        None => api::bearer(&app, &way, None).await,
    };
    let session = match caller {
        Ok(Caller::User(session)) => Some(*session),
        Ok(_) => None,
        Err(problem) => return told(&problem),
    };
    let asked = Asked { app, way, fields, session };
    let done = match (method, path.as_str()) {
        (Method::GET, SIGN_IN) => Ok(asked.sign_in_page(&Form::read(&query), None)),
        (Method::POST, SIGN_IN) => match posted(request).await {
            Ok(form) => asked.sign_in(form).await,
            Err(problem) => Err(problem),
        },
        (Method::GET, provider::BEGIN) => asked.begin(&Form::read(&query)).await,
        (Method::GET, provider::BACK) => asked.come_back(&Form::read(&query)).await,
        (Method::GET, _) => Ok(asked.link_page(&path, None)),
        (Method::POST, _) => match posted(request).await {
            Ok(form) => asked.answer_link(&path, form).await,
            Err(problem) => Err(problem),
        },
        _ => Err(Problem::new(405, "this page has no such method", "open it in a browser")),
    };
    done.unwrap_or_else(|problem| told(&problem))
}

async fn posted(request: Request<Incoming>) -> Result<Form, Problem> {
    let kind = request.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    if !kind.is_some_and(|kind| kind.starts_with(b"application/x-www-form-urlencoded")) {
        return Err(Problem::new(415, "the body's type is not taken", "a form of ours is"));
    }
    let body = read_body(request, form::BYTES_MAX).await?;
    Ok(Form::read(&String::from_utf8_lossy(&body)))
}

impl Asked {
    /// A change has to be made on a page of ours.
    fn is_ours(&self) -> Result<(), Problem> {
        match origin::is_ours(&self.app, &self.fields) {
            true => Ok(()),
            false => Err(Problem::new(403, "this was asked for by another page", "open ours")),
        }
    }

    fn page<'a>(&'a self, back: &'a str, why: Option<&'a str>) -> Page<'a> {
        let network = self.app.urls.first().map_or("", |url| url.host());
        let name = self.session.as_ref().map(|session| session.user.name.as_str());
        Page { network, name, back, why, providers: api::providers(&self.app) }
    }

    fn sign_in_page(&self, form: &Form, why: Option<&str>) -> Sent {
        let back = form.back();
        if self.session.is_some() && why.is_none() {
            return to(&back);
        }
        let status = if why.is_some() { StatusCode::UNAUTHORIZED } else { StatusCode::OK };
        shown(status, &self.page(&back, why).sign_in())
    }

    async fn sign_in(self, form: Form) -> Result<Sent, Problem> {
        self.is_ours()?;
        let back = form.back();
        let app = Arc::clone(&self.app);
        let source = self.way.source;
        let before = self.session.clone();
        let work = move || {
            let name = form.word("user");
            let password = form.word("password");
            let id = api::prove(&app, source, name, password)?;
            api::enter(&app, id, "password", before.as_ref())
        };
        let begun = waits::unproven(&self.app.hashing, work).await.map_err(|_| Problem::busy())?;
        match begun {
            Ok(session) => Ok(keeping(to(&back), &api::cookie(&self.app, &session))),
            // Where a machine waits the page goes on to say which.
            Err(problem) if problem.status == 401 || problem.status == 429 => {
                let why = problem.detail().to_owned();
                let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::FORBIDDEN);
                let mut sent = match back.starts_with(LINK) {
                    true => self.link_page(&back, Some(&why)),
                    false => shown(status, &self.page(&back, Some(&why)).sign_in()),
                };
                *sent.status_mut() = status;
                Ok(sent)
            }
            Err(problem) => Err(problem),
        }
    }

    fn knock(&self, path: &str) -> Option<(Code, Knock)> {
        let code: Code = from_base64url(path.strip_prefix(LINK)?)?.try_into().ok()?;
        let knock = self.app.knocks.find(&code, self.app.moment())?;
        Some((code, knock))
    }

    /// What the link's page says now.
    fn link_page(&self, path: &str, why: Option<&str>) -> Sent {
        let Some((_, knock)) = self.knock(path) else { return self.no_link() };
        let csrf = self.session.as_ref().map(|session| api::csrf(&self.app, &session.id));
        let minutes = knock.ends_unix_s.saturating_sub(self.app.now()).div_ceil(60);
        let key = knock.node_key.to_string();
        let source = knock.source.to_string();
        let facts = Facts {
            hostname: &knock.host.hostname,
            os: &knock.host.os,
            program: &knock.host.program,
            key: &key[..12],
            source: &source,
            minutes,
        };
        let page = self.page(path, why);
        shown(StatusCode::OK, &page.link(&facts, csrf.as_deref()))
    }

    fn no_link(&self) -> Sent {
        let text = "This link is over, was used already, or never was. Run `warren up` again on \
                    the machine that is to join, and open the link that it prints.";
        shown(StatusCode::NOT_FOUND, &self.page("/", None).said("No machine waits here", text))
    }

    async fn answer_link(self, path: &str, form: Form) -> Result<Sent, Problem> {
        self.is_ours()?;
        let Some(session) = &self.session else { return Ok(self.link_page(path, None)) };
        if !api::is_csrf(&self.app, &session.id, form.word("csrf")) {
            let why = "the page was from an earlier session; open the link again";
            return Err(Problem::new(403, "this was asked for by another page", why));
        }
        let Some((code, _)) = self.knock(path) else { return Ok(self.no_link()) };
        if form.word("answer") != "yes" {
            self.app.knocks.refuse(&code, self.app.moment());
            let page = self.page("/", None).said("Refused", "The machine was not let in.");
            return Ok(shown(StatusCode::OK, &page));
        }
        let Some(knock) = self.app.knocks.take(&code, self.app.moment()) else {
            return Ok(self.no_link());
        };
        let app = Arc::clone(&self.app);
        let user = session.user.id;
        let work = move || admit(&app, &knock, user);
        let (name, approved) = waits::blocking(work).await.map_err(|_| Problem::busy())??;
        let text = match approved {
            true => format!("{name} is in, as a node of yours. You can close this page."),
            false => format!("{name} is yours, and waits for an administrator to approve it."),
        };
        Ok(shown(StatusCode::OK, &self.page("/", None).said("Done", &text)))
    }
}

/// Writes a machine that somebody let in into the books: its name, and whether it is approved.
fn admit(app: &App, knock: &Knock, user: u64) -> Result<(String, bool), Problem> {
    let admission =
        Admission { machine_key: knock.machine, node_key: knock.node_key, host: &knock.host, user };
    let node = app.write_node(true, |store, now| store.admit(&admission, app.terms, now));
    app.knocks.answer();
    let node = node?;
    tracing::debug!(node = node.id, name = node.name, user, "somebody let a machine in");
    app.approve_automatic(node.id);
    Ok((node.name, node.approved))
}

fn styled() -> Sent {
    let mut sent = Response::new(html::STYLE.into());
    sent.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/css"));
    sent
}

fn shown(status: StatusCode, page: &str) -> Sent {
    let mut sent = Response::new(page.to_owned().into());
    *sent.status_mut() = status;
    let fields = sent.headers_mut();
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    fields.insert(header::CONTENT_TYPE, kind);
    fields.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    // Else a browser would call the page of a form nobody's.
    fields.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    sent
}

/// A problem as a page.
pub(crate) fn told(problem: &Problem) -> Sent {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let page = Page { network: "", name: None, back: "/", why: None, providers: Vec::new() };
    shown(status, &page.said(problem.title(), problem.detail()))
}

/// Goes on to a page of ours.
pub(crate) fn to(back: &str) -> Sent {
    let mut sent = Response::new(Sending::default());
    *sent.status_mut() = StatusCode::SEE_OTHER;
    let place = HeaderValue::from_str(back).unwrap_or(HeaderValue::from_static("/"));
    sent.headers_mut().insert(header::LOCATION, place);
    sent
}

/// The same, and the browser keeps something.
pub(crate) fn keeping(mut sent: Sent, cookie: &str) -> Sent {
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        sent.headers_mut().append(header::SET_COOKIE, cookie);
    }
    sent
}
