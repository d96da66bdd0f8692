//! One step done: on a machine, or at the server.

use std::time::{Duration, Instant};

use ring::digest::{SHA256, digest};
use serde_json::json;
use sites::{Action, File, Id, Kind, Known, Numbering, Provider, Step};

use crate::lock::{Held, Who};
use crate::machines::{Machines, at_once, property};
use crate::place::Boot;
use crate::server::{self, Place, Server};
use crate::user_data::{Start, USER_DATA_BYTES_MAX, user_data};
use crate::{Authority, Clouds, Error, Lead, Program, Ssh, foreign};

/// How often a machine that joins is looked for.
const ASK_EVERY: Duration = Duration::from_millis(300);
/// A machine that was just made starts, gets the program and joins within so long.
const JOINS_WITHIN: Duration = Duration::from_secs(300);

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
    /// What is at clouds, and the way there.
    pub clouds: &'w mut Clouds,
    /// What gateways run.
    pub program: &'w Program,
    /// Whose certificates gateways of other backends have; none where there are none.
    pub authority: Option<&'w Authority>,
    /// What was known when the steps were planned.
    pub known: &'w Known,
}

/// Locks of sites, which are held while steps are done.
#[derive(Default)]
pub struct Locks {
    held: Vec<(Id, Held)>,
}

impl Locks {
    /// Takes the lock of each site at a provider that has a step.
    ///
    /// # Errors
    /// Who has one; those that were had are given back.
    pub fn take(clouds: &mut Clouds, steps: &[Step]) -> Result<Self, Error> {
        let who = Who::this();
        let mut locks = Self::default();
        for step in steps {
            let is_held = locks.held.iter().any(|(id, _)| id.site == step.id.site);
            if is_held || !clouds.has(&step.id) {
                continue;
            }
            let place = clouds.place(&step.id);
            let locked = place.and_then(|place| place.lock(&step.id.site, &who));
            match locked {
                Ok(held) => locks.held.push((step.id.clone(), held)),
                Err(error) => {
                    locks.release(clouds);
                    return Err(error);
                }
            }
        }
        Ok(locks)
    }

    /// A sign of life between two steps. One that is not heard is tried again with the next.
    pub fn renew(&mut self, clouds: &mut Clouds) {
        for (id, held) in &mut self.held {
            if let Ok(place) = clouds.place(id) {
                let _ = place.renew(held);
            }
        }
    }

    /// Gives them back. One that cannot be given back ends by itself.
    pub fn release(self, clouds: &mut Clouds) {
        for (id, held) in &self.held {
            if let Ok(place) = clouds.place(id) {
                let _ = place.unlock(held);
            }
        }
    }
}

impl<'w> Work<'w> {
    /// Does one step. A step that was done already does no harm.
    ///
    /// # Errors
    /// What went wrong; the same step may be tried again.
    fn step(&mut self, step: &Step) -> Result<(), Error> {
        match (&step.action, step.id.kind) {
            (Action::Refuse, _) => Err(Error::new(&step.id, step.why.clone())),
            (Action::Delete, kind) => self.delete(step, kind),
            (_, Kind::Approval) => self.approve(step),
            (_, Kind::Machine) if step.properties.contains_key("made") => {
                self.make_foreign_machine(step)
            }
            _ if self.clouds.has(&step.id) => self.make(step),
            (_, Kind::Foreign) => self.make_foreign(step),
            _ => self.machines().steps(std::slice::from_ref(step), &mut *self.server),
        }
    }

    /// How many of these steps, from the first on, may be done at once.
    #[must_use]
    pub fn at_once(&self, steps: &[Step]) -> usize {
        let is_at_machine = |step: &&Step| !self.clouds.has(&step.id);
        let here = steps.iter().take_while(is_at_machine).count();
        at_once(&steps[..here]).max(steps.len().min(1))
    }

    /// Does so many steps as [`Work::at_once`] says.
    ///
    /// # Errors
    /// Why the first one failed that did; all were tried.
    pub fn steps(&mut self, steps: &[Step]) -> Result<(), Error> {
        match steps {
            [step] => self.step(step),
            steps => self.machines().steps(steps, &mut *self.server),
        }
    }

    fn machines(&self) -> Machines<'w> {
        let Self { file, numbering, ssh, program, .. } = *self;
        Machines { file, numbering, ssh, program }
    }

    fn approve(&mut self, step: &Step) -> Result<(), Error> {
        if self.clouds.has(&step.id) {
            self.wait_for_member(step)?;
        }
        let routes = words(step, "routes");
        let through = words(step, "through").into_iter().map(str::to_owned).collect();
        let place = Place { passes_on: property(step, "passes_on") == "yes", through };
        server::approve(self.server, &step.id.name, &routes, &place)
    }

    /// What shows the console of a machine at the provider of a site.
    fn console_of(&self, name: &str) -> &'static str {
        match self.file.sites.iter().find(|site| site.name == name).map(|site| site.provider) {
            Some(Provider::Azure) => "az vm boot-diagnostics get-boot-log",
            Some(Provider::OpenStack) => "openstack console log show",
            _ => "aws ec2 get-console-output",
        }
    }

    /// A machine that was made joins by itself.
    fn wait_for_member(&mut self, step: &Step) -> Result<(), Error> {
        let begin = Instant::now();
        loop {
            let nodes = server::nodes(self.server)?;
            if nodes.iter().any(|node| node.is_ours && node.name == step.id.name) {
                return Ok(());
            }
            if begin.elapsed() > JOINS_WITHIN {
                let what = format!(
                    "its machine did not join within {} s; its console says why (`{}`); an \
                     apply makes it again when its key has ended",
                    JOINS_WITHIN.as_secs(),
                    self.console_of(&step.id.site)
                );
                return Err(Error::new(&step.id, what));
            }
            std::thread::sleep(ASK_EVERY);
        }
    }

    /// Something at a provider.
    fn make(&mut self, step: &Step) -> Result<(), Error> {
        let Self { file, numbering, server, clouds, program, .. } = self;
        let index = file.index(&step.id.site).unwrap_or_default();
        let place = &numbering.places[index];
        let offers = place.offers();
        let tag = json!({ "network": file.network, "site": step.id.site, "number": place.number,
                          "provider": file.sites[index].provider.word(), "installed": true })
        .to_string();
        let lead = Lead::of(file, numbering, index, &step.id.name);
        let mut made = None;
        let mut boot = || {
            // What the server knows of one that was there before is not this one's.
            server::remove(*server, &step.id.name)?;
            let (key, token) = server::key(*server, &step.id.site)?;
            made = Some(key);
            let start = Start {
                name: &step.id.name,
                routes: &offers,
                tag: &tag,
                token: &token,
                digest: &program.digest,
                lead: lead.as_ref(),
                shared: place.shared,
            };
            let token = word_of(&format!("{} {} {key}", file.network, step.id.name));
            Ok(Boot { user_data: user_data(file, &start), token })
        };
        let done = clouds.place(&step.id)?.make(step, place.number, &mut boot);
        if done.is_err()
            && let Some(key) = made
        {
            // The first error is the one that matters.
            let _ = server::expire(*server, key);
        }
        done
    }

    fn delete(&mut self, step: &Step, kind: Kind) -> Result<(), Error> {
        let is_of_server = matches!(kind, Kind::Approval | Kind::Member);
        if !is_of_server && self.clouds.has(&step.id) {
            if kind == Kind::Machine {
                server::remove(self.server, &step.id.name)?;
            }
            return self.clouds.place(&step.id)?.remove(&step.id);
        }
        match kind {
            Kind::Foreign => {
                let host = self.machines().host(step)?;
                self.ssh.run(&host, &foreign::remove(self.file), b"").map(drop)
            }
            Kind::Approval => server::approve(self.server, &step.id.name, &[], &Place::default()),
            _ => self.machines().steps(std::slice::from_ref(step), &mut *self.server),
        }
    }

    /// What is known now that a gateway's tunnels are made: addresses at clouds are there by then.
    fn known_now(&self, step: &Step, index: usize) -> Result<Known, Error> {
        let mut known = self.known.clone();
        known.outside.extend(self.clouds.outside(self.file));
        match sites::unknown_end(self.file, index, &known) {
            None => Ok(known),
            Some(other) => {
                let what = format!("the gateway of {other} has no address yet; apply it first");
                Err(Error::new(&step.id, what))
            }
        }
    }

    /// The machine of a gateway of another backend at a cloud: its user data has all that it needs.
    fn make_foreign_machine(&mut self, step: &Step) -> Result<(), Error> {
        let authority = self.authority.ok_or_else(|| no_authority(step))?;
        let index = self.file.index(&step.id.site).unwrap_or_default();
        let known = self.known_now(step, index)?;
        let Self { file, numbering, server, clouds, .. } = self;
        let backend = file.sites[index].backend;
        let number = numbering.places[index].number;
        let mut step = step.clone();
        let made = sites::made(file, numbering, index, &known);
        step.properties.insert("made".to_owned(), made);
        let tag = json!({ "network": file.network, "site": step.id.site, "number": number,
                          "provider": file.sites[index].provider.word(), "installed": false });
        let name = step.id.name.clone();
        let mut boot = || {
            // It is no node, whatever stood there before.
            server::remove(*server, &name)?;
            let identity = authority.issue(&name)?;
            let texts = sites::texts(file, numbering, index, &known);
            let given = &authority.certificate;
            let script = foreign::make(file, backend, &texts, given, &identity, &tag.to_string());
            let user_data = foreign::user_data(backend, &script, &identity.key);
            if user_data.len() > USER_DATA_BYTES_MAX {
                let what = format!(
                    "what its machine begins with is {} bytes, and a cloud takes \
                     {USER_DATA_BYTES_MAX}; a star has fewer tunnels",
                    user_data.len()
                );
                return Err(Error::new(&name, what));
            }
            Ok(Boot { user_data, token: word_of(&identity.certificate) })
        };
        clouds.place(&step.id)?.make(&step, number, &mut boot)
    }

    /// Makes a machine a gateway of another backend. One that was there before goes first.
    fn make_foreign(&self, step: &Step) -> Result<(), Error> {
        let host = self.machines().host(step)?;
        let index = self.file.index(&step.id.site).unwrap_or_default();
        let authority = self.authority.ok_or_else(|| no_authority(step))?;
        let identity = authority.issue(&step.id.name)?;
        let known = self.known_now(step, index)?;
        let texts = sites::texts(self.file, self.numbering, index, &known);
        let mut tag = self.machines().tag(step, false);
        for key in ["backend", "authority"] {
            tag[key] = json!(property(step, key));
        }
        tag["config"] = json!(sites::config(self.file, self.numbering, index, &known));
        let backend = self.file.sites[index].backend;
        let given = &authority.certificate;
        let made = foreign::make(self.file, backend, &texts, given, &identity, &tag.to_string());
        if let Action::Change(_) = step.action {
            self.ssh.run(&host, &foreign::remove(self.file), b"")?;
        }
        self.ssh.run(&host, &made, identity.key.as_bytes()).map(drop)
    }
}

/// A short word for a long one, the same each time and no other's.
fn word_of(text: &str) -> String {
    let digest = digest(&SHA256, text.as_bytes());
    digest.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

fn no_authority(step: &Step) -> Error {
    Error::new(&step.id, "there is no authority to give it a certificate")
}

/// The words of a property that is a list.
fn words<'s>(step: &'s Step, key: &str) -> Vec<&'s str> {
    property(step, key).split(',').filter(|word| !word.is_empty()).collect()
}
