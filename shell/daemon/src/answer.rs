//! The daemon's answers to commands.

use std::time::Instant;

use control::{Code, Kind, ServerUrl, Token};
use noise::PublicKey;

use crate::member::{Daemon, Fault, Waiting};
use crate::protocol::{Request, after_up, done, left_behind, refused};
use crate::socket::Asked;
use crate::state::Member;
use crate::why::Question;
use crate::{Changes, status, why};

impl Daemon {
    pub(crate) fn answer(&mut self, asked: Asked) -> Result<(), Fault> {
        let Asked { request, stranger, answer } = asked;
        if let Some(why) = stranger.and_then(|user| self.refuses(user, &request)) {
            let _ = answer.send(refused(why));
            return Ok(());
        }
        let was_member = self.state.kept.member.is_some();
        let reply = match request {
            Request::Up { token, changes, reset, force } => {
                let is_here = token.is_none() && self.is_called();
                match self.up(token, &changes, reset, force)? {
                    Ok(true) if is_here => {
                        self.answer_named(&changes, after_up(true), answer);
                        return Ok(());
                    }
                    Ok(changed) => after_up(changed),
                    Err(why) => refused(why),
                }
            }
            Request::Set { changes, how } => {
                return self.answer_set(Waiting { changes, how, answer, since: Instant::now() });
            }
            Request::Down => {
                self.state.kept.wanted = false;
                self.keep();
                self.stop()?;
                done()
            }
            Request::Logout => match &self.membership {
                // The server has nothing of a machine that nobody has let in.
                Some(_) if self.state.kept.member.as_ref().is_some_and(|m| m.signs_in) => {
                    self.stop()?;
                    self.state.forget().map_or_else(refused, |()| done())
                }
                Some(membership) => {
                    membership.logout();
                    self.leaving = Some((Instant::now(), answer));
                    return Ok(());
                }
                None => match self.state.forget() {
                    Ok(()) if was_member => left_behind(),
                    Ok(()) => done(),
                    Err(error) => refused(error),
                },
            },
            Request::Status => status::status(self)?,
            Request::Netcheck => status::netcheck(self)?,
            Request::Why { source, destination, protocol, port } => {
                let question = Question { source, destination, protocol, port };
                why::why(self, &question)?
            }
            Request::Bandwidth { peer } => self.measure(peer),
            Request::Circuit { ask } => self.circuit(&ask)?,
            Request::Debug => status::debug(self)?,
        };
        // Who asked and went away does not mind.
        let _ = answer.send(reply);
        Ok(())
    }

    /// Why a user may not ask this who is neither root nor the one that the daemon runs as.
    fn refuses(&self, user: u32, request: &Request) -> Option<String> {
        if request.is_harmless() {
            return None;
        }
        let operator = self.state.kept.settings.operator.as_deref();
        let is_operator = operator
            .is_some_and(|name| host::user_number(name).is_ok_and(|number| number == Some(user)));
        if !is_operator {
            let mend = "only root may do this; try it with sudo, or let a user say up, down and \
                        set: sudo warren set --operator USER";
            return Some(mend.to_owned());
        }
        let mend = "the operator may say up, down, set and bandwidth; this is for root: try it \
                    with sudo";
        (!request.is_operating()).then(|| mend.to_owned())
    }

    /// Is up, and joins first if need be; whether that is anything new.
    fn up(
        &mut self,
        token: Option<String>,
        changes: &Changes,
        reset: bool,
        force: bool,
    ) -> Result<Result<bool, String>, Fault> {
        let member = match self.member_after(token) {
            Ok(member) => member,
            Err(why) => return Ok(Err(why)),
        };
        if let Err(why) = changes.check() {
            return Ok(Err(why));
        }
        let settings = &self.state.kept.settings;
        let dropped = settings.dropped_by(changes);
        if !reset && !dropped.is_empty() {
            let flags: Vec<String> = dropped.iter().map(|(f, v)| format!("{f}={v}")).collect();
            let why = format!(
                "this would drop earlier settings; repeat them ({}), or drop them with --reset, or \
                 change only what you name with `warren set`",
                flags.join(" ")
            );
            return Ok(Err(why));
        }
        let before = if reset { crate::Settings::default() } else { settings.clone() };
        let settings = before.with(changes);
        if let Some(why) = self.refuses_exit(&settings, force) {
            return Ok(Err(why));
        }
        // With a token to join by, or with a server that is elsewhere.
        let is_new = member.is_some();
        let kept = &mut self.state.kept;
        kept.trial = None;
        self.trial_until = None;
        let is_same = kept.settings == settings && kept.wanted && !is_new;
        kept.settings = settings;
        kept.wanted = true;
        if let Some(member) = member {
            kept.member = Some(member);
        }
        if let Err(error) = self.state.save() {
            return Ok(Err(error.to_string()));
        }
        let is_running = self.membership.is_some() && self.refusal.is_none();
        if !is_running || is_new {
            self.start()?;
        } else if !is_same {
            self.report()?;
            self.tell_reach(false)?;
            self.apply()?;
        }
        Ok(Ok(!is_same))
    }

    /// The membership of a machine that somebody lets in who signs in, at `HOST#KEY`.
    fn member_at(&self, place: &str) -> Result<Option<Member>, String> {
        let (place, key) = place.split_once('#').ok_or("the server's key is missing behind #")?;
        let url: ServerUrl = format!("https://{place}").parse().map_err(told)?;
        let key = control::text::from_base64(key).and_then(|key| key.try_into().ok());
        let server = PublicKey(key.ok_or("what follows # is no key of a server")?);
        let known = self.state.kept.member.as_ref();
        match known {
            Some(known) if known.server != server => Err(elsewhere(known)),
            Some(known) if self.refusal.is_none() && !known.signs_in => Ok(None),
            known => {
                let mut member = known.cloned().unwrap_or_else(|| Member {
                    urls: Vec::new(),
                    server,
                    verifying: None,
                    token: None,
                    signs_in: true,
                });
                member.signs_in = true;
                member.token = None;
                member.learn(&[url]);
                Ok(Some(member))
            }
        }
    }

    /// The membership that `up` with this token means, if it is another than before.
    pub(crate) fn member_after(&self, token: Option<String>) -> Result<Option<Member>, String> {
        let known = self.state.kept.member.as_ref();
        let Some(text) = token else {
            let ended = self.refusal.as_ref().map(|refusal| refusal.code);
            return match known {
                // Who was let in by somebody, or could be, may be so again.
                Some(member) if matches!(ended, Some(Code::Expired | Code::NotEnrolled)) => {
                    Ok(Some(Member { signs_in: true, token: None, ..member.clone() }))
                }
                Some(_) => Ok(None),
                None => Err("this node belongs to no network yet; name the server, or give a \
                             token of `warren key create`: warren up https://HOST, or warren up \
                             TOKEN"
                    .to_owned()),
            };
        };
        if let Some(place) = text.strip_prefix("https://") {
            return self.member_at(place);
        }
        let token = Token::parse(&text, Kind::Join).map_err(|why| why.to_string())?;
        let Some(known) = known else { return Ok(Some(joining(&token, text))) };
        if known.server != token.server {
            return Err(elsewhere(known));
        }
        // A member has no use for another token, unless it is one no longer; but where the server
        // is now, a newer one tells.
        let is_out = self.refusal.is_some() || known.token.is_some();
        let is_elsewhere = token.urls.iter().any(|url| !known.urls.contains(url));
        let is_out = is_out || known.signs_in;
        let mut member = Member { token: is_out.then_some(text), signs_in: false, ..known.clone() };
        member.learn(&token.urls);
        Ok((is_out || is_elsewhere).then_some(member))
    }
}

/// Why a node is not for this server.
fn elsewhere(known: &Member) -> String {
    let urls: Vec<String> = known.urls.iter().map(ToString::to_string).collect();
    format!(
        "this node belongs to the network of {}; leave that first: warren logout",
        urls.join(", ")
    )
}

fn told(why: control::BadUrl) -> String {
    why.to_string()
}

fn joining(token: &Token, text: String) -> Member {
    Member {
        urls: token.urls.clone(),
        server: token.server,
        verifying: None,
        token: Some(text),
        signs_in: false,
    }
}
