//! Steps on machines that `ssh` reaches. A step needs its own machine and a word with the server,
//! so many are done at once.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sites::{Action, File, Host, Kind, Numbering, Provider, Step};

use crate::machine::{self, Member};
use crate::server::{self, Server};
use crate::survey::{AT_ONCE, forwards};
use crate::{Error, Program, Ssh};

/// A gateway passes packets on so long after its routes were approved, at most.
const FORWARDS_WITHIN: Duration = Duration::from_secs(20);
/// How often it is asked.
const ASK_EVERY: Duration = Duration::from_millis(300);

/// The machines of a file, and the way to them.
#[derive(Clone, Copy)]
pub(crate) struct Machines<'w> {
    pub(crate) file: &'w File,
    pub(crate) numbering: &'w Numbering,
    pub(crate) ssh: &'w Ssh,
    pub(crate) program: &'w Program,
}

/// How many of these steps, from the first on, may be done at once: one at least. Those of one kind
/// may, on machines of their own. The gateways of a pair join one after the other, so that the
/// first one leads.
pub(crate) fn at_once(steps: &[Step]) -> usize {
    let Some(first) = steps.first() else { return 0 };
    let is_delete = |step: &Step| matches!(step.action, Action::Delete);
    let is_alike = |step: &&Step| {
        step.id.kind == first.id.kind
            && is_delete(step) == is_delete(first)
            && !property(step, "host").is_empty()
    };
    let is_for_many =
        matches!(first.id.kind, Kind::Program | Kind::Member | Kind::Forwarding | Kind::Route);
    if !is_for_many || matches!(first.action, Action::Refuse) {
        return 1;
    }
    let whose = |step| match first.id.kind {
        Kind::Member => site(step),
        _ => property(step, "host"),
    };
    let mut seen = BTreeSet::new();
    let alike = steps.iter().take(AT_ONCE).take_while(is_alike).map(whose);
    alike.take_while(|whose| seen.insert(*whose)).count().max(1)
}

pub(crate) fn property<'s>(step: &'s Step, key: &str) -> &'s str {
    step.properties.get(key).map_or("", String::as_str)
}

fn site(step: &Step) -> &str {
    &step.id.site
}

impl Machines<'_> {
    /// Does steps that [`at_once`] lets be done so. All are tried, whatever becomes of one.
    ///
    /// # Errors
    /// Why the first of them failed.
    pub(crate) fn steps(self, steps: &[Step], server: &mut dyn Server) -> Result<(), Error> {
        let server = &Mutex::new(server);
        std::thread::scope(|scope| {
            let begun = |step| scope.spawn(move || self.step(step, server));
            let threads: Vec<_> = steps.iter().map(begun).collect();
            let mut done = Ok(());
            for thread in threads {
                let died = |_| Err(Error::new("a step", "this program failed; apply again"));
                let ended = thread.join().unwrap_or_else(died);
                done = done.and(ended);
            }
            done
        })
    }

    fn step(self, step: &Step, server: &Mutex<&mut dyn Server>) -> Result<(), Error> {
        if matches!(step.action, Action::Delete) {
            return self.delete(step, server);
        }
        match step.id.kind {
            Kind::Program => self.install(step),
            Kind::Member => self.join(step, server),
            Kind::Forwarding => self.wait_for_forwarding(step),
            Kind::Route => {
                let script = machine::add_route(property(step, "to"), property(step, "via"));
                self.ssh.run(&self.host(step)?, &script, b"").map(drop)
            }
            kind => Err(foreign(step, kind)),
        }
    }

    fn delete(self, step: &Step, server: &Mutex<&mut dyn Server>) -> Result<(), Error> {
        let script = match step.id.kind {
            Kind::Route => machine::remove_route(property(step, "to")),
            Kind::Program => machine::uninstall(self.file),
            // It ends with the daemon, which puts back what was there.
            Kind::Forwarding => return Ok(()),
            Kind::Member => {
                // First at the server: an administrator's word frees the name, a logout holds it.
                ask(server, |server| server::remove(server, &step.id.name))?;
                // Of a site that is not in the file any more only the server knows.
                if property(step, "host").is_empty() {
                    return Ok(());
                }
                machine::leave(self.file)
            }
            kind => return Err(foreign(step, kind)),
        };
        self.ssh.run(&self.host(step)?, &script, b"").map(drop)
    }

    /// The machine that a step is for.
    pub(crate) fn host(self, step: &Step) -> Result<Host, Error> {
        let named = property(step, "host");
        let hosts = self.file.sites.iter().flat_map(|site| &site.hosts);
        let found = hosts.into_iter().find(|host| host.to_string() == named);
        found.cloned().ok_or_else(|| Error::new(&step.id, "its machine is not in the site file"))
    }

    /// What a machine of ours is known by.
    pub(crate) fn tag(self, step: &Step, installed: bool) -> Value {
        let index = self.file.index(&step.id.site).unwrap_or_default();
        let number = self.numbering.places[index].number;
        json!({ "network": self.file.network, "site": step.id.site, "number": number,
                "provider": Provider::Ssh.word(), "installed": installed })
    }

    fn install(self, step: &Step) -> Result<(), Error> {
        let tag = self.tag(step, true).to_string();
        let machine = std::env::consts::ARCH;
        let script = machine::install(self.file, &self.program.digest, machine, &tag);
        self.ssh.run(&self.host(step)?, &script, &self.program.bytes).map(drop)
    }

    fn join(self, step: &Step, server: &Mutex<&mut dyn Server>) -> Result<(), Error> {
        let host = self.host(step)?;
        let tag = self.tag(step, false).to_string();
        let member = Member {
            name: step.id.name.as_str(),
            routes: property(step, "routes"),
            passes_on: property(step, "passes_on") == "yes",
            through: property(step, "through"),
            shared: property(step, "shared"),
        };
        let script = |has_token| machine::join(self.file, member, &tag, has_token);
        if let Action::Change(_) = step.action {
            // A member stays who it is; a key is for strangers.
            if self.ssh.run(&host, &script(false), b"").is_ok() {
                return Ok(());
            }
        }
        let (key, token) = ask(server, |server| server::key(server, &step.id.site))?;
        let joined = self.ssh.run(&host, &script(true), token.as_bytes());
        if joined.is_err() {
            // The first error is the one that matters.
            let _ = ask(server, |server| server::expire(server, key));
        }
        joined.map(drop)
    }

    fn wait_for_forwarding(self, step: &Step) -> Result<(), Error> {
        let host = self.host(step)?;
        let index = self.file.index(&step.id.site).unwrap_or_default();
        let begin = Instant::now();
        loop {
            let facts = machine::read(&self.ssh.run(&host, machine::FORWARDS, b"")?);
            let place = &self.numbering.places[index];
            let inside = place.gateways.iter().find_map(|at| facts.addresses.get(&at.to_string()));
            if inside.is_some_and(|interface| forwards(&facts, interface)) {
                return Ok(());
            }
            if begin.elapsed() > FORWARDS_WITHIN {
                let what = "it does not pass packets on; `warren status` there says why";
                return Err(Error::new(&host, what));
            }
            std::thread::sleep(ASK_EVERY);
        }
    }
}

/// A word with the server, which hears one at a time.
fn ask<T>(server: &Mutex<&mut dyn Server>, what: impl FnOnce(&mut dyn Server) -> T) -> T {
    what(&mut **server.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A step that nobody here can do.
fn foreign(step: &Step, kind: Kind) -> Error {
    Error::new(&step.id, format!("no provider of this program makes a {}", kind.word()))
}

#[cfg(test)]
mod tests {
    use sites::Id;

    use super::*;

    fn step(action: Action, kind: Kind, site: &str, host: &str) -> Step {
        let properties = [("host".to_owned(), host.to_owned())].into();
        Step { action, id: Id::new(kind, site, host), properties, why: String::new() }
    }

    fn create(kind: Kind, site: &str, host: &str) -> Step {
        step(Action::Create, kind, site, host)
    }

    #[test]
    fn steps_of_one_kind_are_done_at_once_each_on_a_machine_of_its_own() {
        let programs: Vec<Step> =
            (0..20).map(|n| create(Kind::Program, "a", &format!("h{n}"))).collect();
        assert_eq!(at_once(&programs), AT_ONCE);
        assert_eq!(at_once(&programs[..3]), 3);
        let mixed = [create(Kind::Program, "a", "h"), create(Kind::Member, "a", "i")];
        assert_eq!(at_once(&mixed), 1, "a program is there before its node joins");
        let routes = ["h", "i", "i"].map(|host| create(Kind::Route, "a", host));
        assert_eq!(at_once(&routes), 2, "two on one machine wait for each other");
        let pair = [("a", "h"), ("a", "i"), ("b", "j")];
        let pair = pair.map(|place| create(Kind::Member, place.0, place.1));
        assert_eq!([at_once(&pair), at_once(&pair[1..])], [1, 2], "a pair joins in its order");
        let gone = [step(Action::Delete, Kind::Route, "a", "h"), create(Kind::Route, "a", "i")];
        assert_eq!(at_once(&gone), 1, "what goes is gone before something comes");
        let cloud = ["", ""].map(|host| create(Kind::Route, "a", host));
        assert_eq!(at_once(&cloud), 1);
        assert_eq!(at_once(&[]), 0);
    }
}
