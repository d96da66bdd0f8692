//! A link from up to down: the file's settings, the node's loop, and the scripts around them.

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::silence::Watch;
use super::{
    Applied, ApplyError, Facts, Looked, ORDER_MS, Plan, PlanError, REPAIR_PERCENT, ResolveError,
    Scripts, Settings, Step, apply, clear_leftovers, look_once, resolve,
};
use crate::driver::{self, Driver, End, Reloaded};
use crate::linux::background::end_own_loop;
use crate::linux::netlink;

/// Why a link did not come up, or went down.
#[derive(Debug)]
pub enum RunError {
    /// An endpoint has no address.
    Resolve(ResolveError),
    /// The machine could not be asked.
    Netlink(netlink::Error),
    /// There can be no plan.
    Plan(PlanError),
    /// The interface could not be made, or its loop failed.
    Driver(driver::Error),
    /// The plan or a script failed.
    Apply(ApplyError),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resolve(e) => e.fmt(f),
            Self::Netlink(e) => e.fmt(f),
            Self::Plan(e) => e.fmt(f),
            Self::Driver(e) => e.fmt(f),
            Self::Apply(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for RunError {}

impl From<driver::Error> for RunError {
    fn from(e: driver::Error) -> Self {
        Self::Driver(e)
    }
}

impl From<ApplyError> for RunError {
    fn from(e: ApplyError) -> Self {
        Self::Apply(e)
    }
}

/// Brings the link `name` up, serves it until something ends it, and takes it down again.
/// `on_up` is called when all is up. `reload` reads the file again after SIGHUP.
///
/// # Errors
/// [`RunError`]; whatever had been done is undone.
pub fn run(
    name: &str,
    settings: &Settings,
    scripts: Scripts<'_>,
    reload: &mut dyn FnMut() -> Result<Settings, String>,
    on_up: impl FnOnce(&Plan),
) -> Result<End, RunError> {
    let hooks = &settings.interface.hooks;
    let endpoints = resolve_all(settings).map_err(RunError::Resolve)?;
    let known: Vec<_> = endpoints.iter().flatten().copied().collect();
    let mark = settings.interface.fwmark.unwrap_or(0);
    clear_leftovers()?;
    if let Err(why) = crate::sockets::carriers::clear_leftovers() {
        tracing::debug!("what killed links left of ICMP is not looked for: {why}");
    }
    let facts = Facts::gather(&known, mark).map_err(RunError::Netlink)?;
    let plan = Plan::new(name, settings, &facts).map_err(RunError::Plan)?;
    let course = RefCell::new(Course {
        current: settings.clone(),
        looked: Looked::new(settings, &endpoints),
        facts,
        plan: plan.clone(),
        applied: None,
        names: None,
    });
    let mut reload = || {
        let settings = reload()?;
        course.borrow_mut().change(settings)
    };

    let mut driver = Driver::new(name)?;
    let names = Watch::start(driver.mailbox()?, settings);
    course.borrow_mut().names = names
        .inspect_err(|why| tracing::warn!("names of endpoints are looked up once: {why}"))
        .ok();
    driver.node().set_frames(settings.interface.frames.unwrap_or(true));
    let order_ms = settings.interface.order_ms.unwrap_or(ORDER_MS);
    driver.node().set_order(Duration::from_millis(order_ms.into()));
    let percent = settings.interface.repair_percent.unwrap_or(REPAIR_PERCENT);
    driver.node().set_repair_max(percent);
    driver.node().set_line_rate(settings.interface.line_rate.unwrap_or_default());
    let mut go = |driver: &mut Driver, occasion: &str, what: &[String]| {
        serve_while(driver, &mut reload, || scripts.run(occasion, what))
    };
    if go(&mut driver, "PreUp", &hooks.pre_up)? == Some(End::Signal) {
        return Ok(End::Signal);
    }
    driver.configure(&settings.changes(&endpoints, plan.fwmark))?;
    driver.watch_key_files(settings.key_files());
    let applied = apply(&plan)?;
    course.borrow_mut().applied = Some(applied);
    driver.look()?;
    let mut end = go(&mut driver, "PostUp", &hooks.post_up)?;
    if end.is_none() {
        on_up(&plan);
        end = Some(driver.run(&mut reload)?);
    }
    let mut go = |driver: &mut Driver, occasion: &str, what: &[String]| {
        serve_while(driver, &mut reload, || scripts.run(occasion, what))
    };
    if let Err(e) = go(&mut driver, "PreDown", &hooks.pre_down) {
        tracing::warn!("{e}");
    }
    drop(course.borrow_mut().applied.take());
    drop(driver);
    if let Err(e) = scripts.run("PostDown", &hooks.post_down) {
        tracing::warn!("{e}");
    }
    Ok(end.unwrap_or(End::Signal))
}

/// A link that is up: what its file said last, and what was made of it.
struct Course {
    current: Settings,
    looked: Looked,
    facts: Facts,
    plan: Plan,
    applied: Option<Applied>,
    /// Looks names up whose peers are silent.
    names: Option<Watch>,
}

impl Course {
    /// Makes the routes those of `settings`, and says what the node is to change.
    fn change(&mut self, settings: Settings) -> Result<Reloaded, String> {
        let changes = settings.changes_since(&self.current, resolve).map_err(|e| e.to_string())?;
        let after =
            Plan::new(&self.plan.name, &settings, &self.facts).map_err(|e| e.to_string())?;
        for key in settings.waits_for_next_up(&self.current) {
            tracing::warn!("{key} changed; it takes effect with the next `warren link up`");
        }
        let defaults = |plan: &Plan| plan.steps.iter().any(|step| matches!(step, Step::Rule(_)));
        if defaults(&after) != defaults(&self.plan) {
            tracing::warn!("a default route begins or ends with the next `warren link up` only");
        }
        if let Some(applied) = &mut self.applied {
            applied.reroute(&after);
        }
        let moved = self.looked.again(&settings, look_once);
        let changes = changes.into_iter().chain(moved).collect();
        if let Some(names) = &self.names {
            names.change(&settings);
        }
        let key_files = settings.key_files();
        self.current = settings;
        Ok(Reloaded { changes, key_files })
    }
}

fn resolve_all(settings: &Settings) -> Result<Vec<Option<std::net::SocketAddr>>, ResolveError> {
    settings.peers.iter().map(|p| p.endpoint.as_ref().map(resolve).transpose()).collect()
}

/// Runs `work` on a thread while the loop serves, since scripts may call `wg` on the link. Gives
/// what else ended the loop meanwhile.
fn serve_while(
    driver: &mut Driver,
    reload: driver::Reload<'_>,
    work: impl FnOnce() -> Result<(), ApplyError> + Send,
) -> Result<Option<End>, RunError> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let result = work();
            done.store(true, Ordering::Release);
            end_own_loop();
            result
        });
        let mut other = None;
        let served = loop {
            match driver.run(&mut *reload) {
                Ok(End::Signal) if done.load(Ordering::Acquire) => break Ok(()),
                // the script goes on to its end, and it may need us
                Ok(End::Signal) => other = Some(End::Signal),
                Ok(end) => {
                    other = Some(end);
                    break Ok(());
                }
                Err(e) => break Err(e),
            }
        };
        let result = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        served?;
        result?;
        Ok(other)
    })
}
