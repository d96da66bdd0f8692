//! Signing in by a provider: there, and back.

use std::sync::Arc;

use hyper::StatusCode;

use super::form::Form;
use super::{Asked, Sent, keeping, shown, to};
use crate::api::{self, Problem};
use crate::app::App;
use crate::oidc::{Came, Failure, LAST_S, Oidc};
use crate::store::Session;
use crate::waits;

/// Where a sign-in by the provider begins, and where it comes back.
pub(super) const BEGIN: &str = "/sign-in/oidc";
pub(super) const BACK: &str = "/sign-in/oidc/callback";
/// What the browser keeps meanwhile.
const COOKIE: &str = "warren_oidc";

/// After so many users of whom it said nothing it is asked for no more in this round: one may be
/// its trouble with that user alone.
const TROUBLES_MAX: u32 = 3;

impl Asked {
    fn oidc(&self) -> Result<Arc<Oidc>, Problem> {
        let none = || Problem::new(404, "there is no such page", "no provider is set up here");
        self.app.oidc.get().map(Arc::clone).ok_or_else(none)
    }

    /// Sends the browser to the provider.
    pub(super) async fn begin(&self, form: &Form) -> Result<Sent, Problem> {
        let oidc = self.oidc()?;
        let app = Arc::clone(&self.app);
        if !self.app.limits.knock(self.way.source) {
            return Err(Problem::too_often());
        }
        let source = self.way.source.unwrap_or(admit::Source::OWN);
        let back = form.back();
        let wanted = back.clone();
        let work = move || oidc.begin(&wanted, source, app.moment());
        let begun = waits::unproven(&self.app.unproven, work).await;
        match begun.map_err(|_| Problem::busy())? {
            Ok(begun) => {
                let kept = format!(
                    "{COOKIE}={}; Path=/sign-in; HttpOnly; Secure; SameSite=Lax; Max-Age={LAST_S}",
                    begun.browser
                );
                Ok(keeping(to(&begun.to), &kept))
            }
            Err(failure) => Ok(self.failed(&back, &failure)),
        }
    }

    /// Takes a browser back from the provider.
    pub(super) async fn come_back(&self, form: &Form) -> Result<Sent, Problem> {
        let oidc = self.oidc()?;
        if !form.word("error").is_empty() {
            let said: String = form.word("error").chars().take(100).collect();
            let failure = Failure::Refused(format!("the provider said no: {said}"));
            return Ok(self.failed("/", &failure));
        }
        let browser = crate::requests::cookie(&self.fields, COOKIE).map(str::to_owned);
        let app = Arc::clone(&self.app);
        let before = self.session.clone();
        let word = |name: &str| form.word(name).to_owned();
        let state = word("state");
        let code = word("code");
        let issuer = word("iss");
        let work = move || {
            let issuer = Some(issuer.as_str()).filter(|issuer| !issuer.is_empty());
            let came = oidc.finish(&state, &code, issuer, browser.as_deref(), app.moment());
            came.map(|came| enter(&app, &oidc, came, before.as_ref()))
        };
        let done = waits::unproven(&self.app.unproven, work).await.map_err(|_| Problem::busy())?;
        let over = format!("{COOKIE}=; Path=/sign-in; HttpOnly; Secure; SameSite=Lax; Max-Age=0");
        match done {
            Ok(entered) => {
                let (session, back) = entered?;
                let sent = keeping(to(&back), &api::cookie(&self.app, &session));
                Ok(keeping(sent, &over))
            }
            Err(failure) => Ok(keeping(self.failed("/", &failure), &over)),
        }
    }

    /// The page of a sign-in that failed: there is the other way in.
    fn failed(&self, back: &str, failure: &Failure) -> Sent {
        let (status, why) = match failure {
            Failure::Trouble(why) => {
                tracing::warn!(why, "the provider cannot be used");
                let text = "the provider does not answer as it should; try again in a while, or \
                            sign in with a password";
                (StatusCode::BAD_GATEWAY, text.to_owned())
            }
            Failure::Refused(why) | Failure::Over(why) => {
                tracing::info!(why, "nobody signed in by the provider");
                (StatusCode::FORBIDDEN, why.clone())
            }
        };
        shown(status, &self.page(back, Some(&why)).sign_in())
    }
}

/// Begins the session of somebody whom the provider knows.
fn enter(
    app: &Arc<App>,
    oidc: &Oidc,
    came: Came,
    before: Option<&Session>,
) -> Result<(Session, String), Problem> {
    let refresh = came.refresh.as_deref().map(|token| app.secrets.hide(token));
    let user = app.write_users(|store, now| {
        store.know(oidc.issuer(), &came.person, refresh.as_deref(), now)
    })?;
    app.tell("user", user.id);
    let session = api::enter(app, user.id, "provider", before)?;
    Ok((session, came.back))
}

/// Asks the provider again for users of whom nothing was heard for a while.
pub(crate) fn refresh(app: &App) {
    let Some(oidc) = app.oidc.get() else { return };
    let now = app.now();
    let due = app.store().due(oidc.issuer(), now.saturating_sub(oidc.refresh_s()), now);
    let due = due.unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot read whom the provider is to be asked for");
        Vec::new()
    });
    let mut troubles = 0;
    for due in due {
        let id = due.id;
        let now = app.now();
        let Some(token) = app.secrets.show(&due.refresh) else { continue };
        let done = match oidc.again(&token, &due.subject, app.moment()) {
            Ok((person, refresh)) => {
                let refresh = refresh.map(|token| app.secrets.hide(&token));
                let known = app.store().know_again(id, &person, refresh.as_deref(), now);
                known.and_then(
                    |is_news| {
                        if is_news { app.write_users(|_, _| Ok(())) } else { Ok(()) }
                    },
                )
            }
            Err(Failure::Refused(why) | Failure::Over(why)) => {
                tracing::info!(id, why, "the provider knows a user no more");
                app.write_users(|store, now| store.lose(id, oidc.gives_roles(), now))
            }
            // It said nothing: who was known stays so, and is asked for again.
            Err(Failure::Trouble(why)) => {
                tracing::warn!(id, why, "the provider cannot be used");
                troubles += 1;
                if troubles == TROUBLES_MAX {
                    break;
                }
                continue;
            }
        };
        match done {
            Ok(()) => app.tell("user", id),
            Err(error) => tracing::warn!(%error, id, "cannot write what the provider said"),
        }
    }
}
