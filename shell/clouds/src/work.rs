//! One step done: on a machine, or at the server.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use ring::digest::{SHA256, digest};
use serde_json::json;
use sites::{Action, File, Host, Kind, Numbering, Provider, Step};

use crate::machine;
use crate::server::{self, Server};
use crate::survey::forwards;
use crate::{Error, Ssh};

/// A gateway passes packets on so long after its routes were approved, at most.
const FORWARDS_WITHIN: Duration = Duration::from_secs(20);
/// How often it is asked.
const ASK_EVERY: Duration = Duration::from_millis(300);

/// The program that gateways get: this one.
pub struct Program {
    bytes: Vec<u8>,
    /// The hexadecimal SHA-256 of it.
    pub digest: String,
}

impl Program {
    /// Reads the program that runs now.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn this() -> Result<Self, Error> {
        let path = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe"));
        let bytes = std::fs::read(&path)
            .map_err(|error| Error::new(path.display(), format!("it cannot be read: {error}")))?;
        let digest = digest(&SHA256, &bytes);
        let digest = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { bytes, digest })
    }
}

/// Everything that a step needs.
pub struct Work<'w> {
    /// The site file.
    pub file: &'w File,
    /// Its plan.
    pub numbering: &'w Numbering,
    /// The way to machines.
    pub ssh: &'w Ssh,
    /// The coordination server.
    pub server: &'w mut dyn Server,
    /// What gateways run.
    pub program: &'w Program,
}

impl Work<'_> {
    /// Does one step. A step that was done already does no harm.
    ///
    /// # Errors
    /// What went wrong; the same step may be tried again.
    pub fn step(&mut self, step: &Step) -> Result<(), Error> {
        match (&step.action, step.id.kind) {
            (Action::Refuse, _) => Err(Error::new(&step.id, step.why.clone())),
            (Action::Delete, kind) => self.delete(step, kind),
            (_, Kind::Program) => self.install(step),
            (_, Kind::Member) => self.join(step),
            (_, Kind::Approval) => {
                let routes: Vec<&str> = property(step, "routes").split(',').collect();
                server::approve(self.server, &step.id.name, &routes)
            }
            (_, Kind::Forwarding) => self.wait_for_forwarding(step),
            (_, Kind::Route) => {
                let script = machine::add_route(property(step, "to"), property(step, "via"));
                self.ssh.run(&self.host(step)?, &script, b"").map(drop)
            }
            (_, kind) => Err(self.foreign(step, kind)),
        }
    }

    fn foreign(&self, step: &Step, kind: Kind) -> Error {
        Error::new(&step.id, format!("no provider of this program makes a {}", kind.word()))
    }

    fn delete(&mut self, step: &Step, kind: Kind) -> Result<(), Error> {
        match kind {
            Kind::Route => {
                let script = machine::remove_route(property(step, "to"));
                self.ssh.run(&self.host(step)?, &script, b"").map(drop)
            }
            // It ends with the daemon, which puts back what was there.
            Kind::Forwarding => Ok(()),
            Kind::Approval => server::approve(self.server, &step.id.name, &[]),
            Kind::Member => {
                // First at the server: an administrator's word frees the name, a logout holds it.
                server::remove(self.server, &step.id.name)?;
                // Of a site that is not in the file any more only the server knows.
                if !step.properties.contains_key("host") {
                    return Ok(());
                }
                let host = self.host(step)?;
                self.ssh.run(&host, &machine::leave(self.file), b"").map(drop)
            }
            Kind::Program => {
                let host = self.host(step)?;
                self.ssh.run(&host, &machine::uninstall(self.file), b"").map(drop)
            }
            kind => Err(self.foreign(step, kind)),
        }
    }

    /// The machine that a step is for.
    fn host(&self, step: &Step) -> Result<Host, Error> {
        let named = property(step, "host");
        let hosts = self.file.sites.iter().flat_map(|site| &site.hosts);
        let found = hosts.into_iter().find(|host| host.to_string() == named);
        found.cloned().ok_or_else(|| Error::new(&step.id, "its machine is not in the site file"))
    }

    /// What a machine of ours is known by.
    fn tag(&self, step: &Step, installed: bool) -> String {
        let index = self.file.index(&step.id.site).unwrap_or_default();
        let number = self.numbering.places[index].number;
        json!({ "network": self.file.network, "site": step.id.site, "number": number,
                "provider": Provider::Ssh.word(), "installed": installed })
        .to_string()
    }

    fn install(&self, step: &Step) -> Result<(), Error> {
        let tag = self.tag(step, true);
        let machine = std::env::consts::ARCH;
        let script = machine::install(self.file, &self.program.digest, machine, &tag);
        self.ssh.run(&self.host(step)?, &script, &self.program.bytes).map(drop)
    }

    fn join(&mut self, step: &Step) -> Result<(), Error> {
        let host = self.host(step)?;
        let tag = self.tag(step, false);
        let name = step.id.name.as_str();
        let routes = property(step, "routes");
        let script = |has_token| machine::join(self.file, name, routes, &tag, has_token);
        if let Action::Change(_) = step.action {
            // A member stays who it is; a key is for strangers.
            if self.ssh.run(&host, &script(false), b"").is_ok() {
                return Ok(());
            }
        }
        let (key, token) = server::key(self.server, &step.id.site)?;
        let joined = self.ssh.run(&host, &script(true), token.as_bytes());
        if joined.is_err() {
            // The first error is the one that matters.
            let _ = server::expire(self.server, key);
        }
        joined.map(drop)
    }

    fn wait_for_forwarding(&self, step: &Step) -> Result<(), Error> {
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

fn property<'s>(step: &'s Step, key: &str) -> &'s str {
    step.properties.get(key).map_or("", String::as_str)
}
