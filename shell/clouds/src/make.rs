//! What is the same at every cloud: a resource is looked for before it is made, so that none is
//! made twice; it is changed until it is as it must be, and read back; and it is removed after what
//! hangs on it. Each cloud says how, in its own words.

use std::time::{Duration, Instant};

use sites::{Action, Id, Kind, Step};

use crate::Error;
use crate::place::{Boot, Booting, Place};
use crate::retry::Failure;

/// A machine is as the plan says after so long, anything else after the other.
const MACHINE_WITHIN: Duration = Duration::from_secs(300);
const OTHER_WITHIN: Duration = Duration::from_secs(60);
const ASK_EVERY: Duration = Duration::from_secs(1);
/// After a lost answer: what was made is seen by then.
const SETTLE: Duration = Duration::from_secs(3);
/// Times that something is looked for and made.
const TRIES: usize = 4;
/// So long something may be in use: a machine that ends holds its interface for a while.
const IN_USE_WITHIN: Duration = Duration::from_secs(300);
/// What machines of the site's own are in ends not by itself.
const HELD_WITHIN: Duration = Duration::from_secs(60);

/// What a cloud's refusal means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Meaning {
    /// It is not there.
    Absent,
    /// Something else hangs on it.
    InUse,
    /// One is there already, or will be seen soon.
    There,
    /// Something else.
    Other,
}

/// How one cloud makes and removes things.
pub(crate) trait Maker: Place {
    /// Looks at a resource again.
    fn look_again(&mut self, id: &Id) -> Result<(), Failure>;

    /// Whether a kind is a part of others, and never made by itself.
    fn is_part(&self, kind: Kind) -> bool;

    /// Makes a part as it must be.
    fn set(&mut self, step: &Step) -> Result<(), Failure>;

    /// Makes a resource that is no part, with the mark by which it is ours; the cloud's word for
    /// it.
    fn create(
        &mut self,
        step: &Step,
        number: Option<u32>,
        boot: Option<&Boot>,
    ) -> Result<String, Failure>;

    /// Makes a resource that is there as it must be.
    fn ensure(&mut self, step: &Step, its: &str) -> Result<(), Failure>;

    /// Asks that a resource be removed, and waits until it is.
    fn try_remove(&mut self, id: &Id) -> Result<(), Failure>;

    /// Knows of it no more.
    fn forget(&mut self, id: &Id);

    /// What a refusal means.
    fn meaning(&self, failure: &Failure) -> Meaning;
}

/// Makes a resource, or makes it as it must be. `boot` is asked when a machine is needed.
pub(crate) fn make(
    maker: &mut dyn Maker,
    step: &Step,
    number: Option<u32>,
    boot: Booting<'_>,
) -> Result<(), Error> {
    let told = |failure: Failure| Error::new(&step.id, failure.what);
    if maker.is_part(step.id.kind) {
        maker.set(step).map_err(told)?;
        return wait(maker, step);
    }
    // What it does at its first start cannot be changed.
    let is_replaced = matches!(&step.action, Action::Change(list)
        if list.iter().any(|(key, ..)| ["member", "made", "shared"].contains(&key.as_str())));
    if step.id.kind == Kind::Machine && is_replaced {
        remove(maker, &step.id)?;
    }
    let its = find_or_create(maker, step, number, boot)?;
    maker.ensure(step, &its).map_err(told)?;
    wait(maker, step)
}

fn find_or_create(
    maker: &mut dyn Maker,
    step: &Step,
    number: Option<u32>,
    boot: Booting<'_>,
) -> Result<String, Error> {
    let told = |failure: Failure| Error::new(&step.id, failure.what);
    let mut booted = None;
    for _ in 0..TRIES {
        maker.look_again(&step.id).map_err(told)?;
        if let Some(thing) = maker.things().get(&step.id) {
            return Ok(thing.its.clone());
        }
        if step.id.kind == Kind::Machine && booted.is_none() {
            booted = Some(boot()?);
        }
        match maker.create(step, number, booted.as_ref()) {
            Ok(its) => return Ok(its),
            // It was made after all, or not: look, and make no second one.
            Err(failure) if failure.is_lost || maker.meaning(&failure) == Meaning::There => {
                std::thread::sleep(SETTLE);
            }
            Err(failure) => return Err(told(failure)),
        }
    }
    let name = maker.name();
    Err(Error::new(&step.id, format!("it was made several times, and {name} does not show it")))
}

/// Waits until a resource is as the step says.
fn wait(maker: &mut dyn Maker, step: &Step) -> Result<(), Error> {
    let id = &step.id;
    let within = if id.kind == Kind::Machine { MACHINE_WITHIN } else { OTHER_WITHIN };
    let begin = Instant::now();
    loop {
        maker.look_again(id).map_err(|failure| Error::new(id, failure.what))?;
        let found = maker.things().get(id).map(|thing| &thing.properties);
        let is = |key: &str| found.and_then(|all| all.get(key));
        // Whether it joined the server says, in the step that approves it.
        let differs = |key: &&String| *key != "member" && is(key) != step.properties.get(*key);
        let wrong = step.properties.keys().find(differs);
        if found.is_some() && wrong.is_none() {
            return Ok(());
        }
        let is_broken = is("state").is_some_and(|state| state == "broken");
        if is_broken || begin.elapsed() > within {
            let key = wrong.map_or("it", String::as_str);
            let wanted = step.properties.get(key).map_or("there", String::as_str);
            let now = is(key).map_or("not there", String::as_str);
            let name = maker.name();
            let what = format!("{key} is to be {wanted:?}, and {name} still says {now:?}");
            return Err(Error::new(id, what));
        }
        std::thread::sleep(ASK_EVERY);
    }
}

/// Removes a resource of ours; one that is gone already is no error.
pub(crate) fn remove(maker: &mut dyn Maker, id: &Id) -> Result<(), Error> {
    let begin = Instant::now();
    let within = match id.kind {
        Kind::ResourceGroup | Kind::Network | Kind::Subnet => HELD_WITHIN,
        _ => IN_USE_WITHIN,
    };
    while let Err(failure) = maker.try_remove(id) {
        match maker.meaning(&failure) {
            Meaning::Absent => break,
            Meaning::InUse if begin.elapsed() < within => std::thread::sleep(ASK_EVERY),
            Meaning::InUse => {
                let what = format!(
                    "{}; something that Warren did not make is in it: remove the site's own \
                     machines first, then destroy again",
                    failure.what
                );
                return Err(Error::new(id, what));
            }
            _ => return Err(Error::new(id, failure.what)),
        }
    }
    maker.forget(id);
    Ok(())
}
