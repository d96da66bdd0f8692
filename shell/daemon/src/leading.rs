//! A pair's routes at a cloud: a thread that asks and tells the provider, beside the one that hears
//! the other gateway, since a provider may be slow. [`routes::led`] decides what is asked when.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clouds::{Lead, Leader};
use host::gateway::MARK;
use routes::led::{Ask, Found, Led};

/// How often the thread looks at the time.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const ORDER: Ordering = Ordering::Relaxed;

/// What that thread and others tell each other.
#[derive(Debug, Default)]
pub(crate) struct Leading {
    has_ended: AtomicBool,
    /// Whether this gateway is the one that leads.
    holds: AtomicBool,
    /// Whether it is to leave that to the other one.
    gives_way: AtomicBool,
    /// Whether the routes lead here, as far as is known.
    is_set: AtomicBool,
    /// Why the provider cannot be asked.
    why: Mutex<Option<String>>,
}

impl Leading {
    /// Begins. The thread ends by itself after [`Leading::end`], and nobody waits for it: an answer
    /// may be long in coming.
    pub(crate) fn start(lead: &Lead) -> Result<Arc<Self>, String> {
        let leader = Leader::new(lead, MARK)?;
        let leading = Arc::new(Self::default());
        let theirs = leading.clone();
        let run = move || serve(&theirs, leader);
        let thread = std::thread::Builder::new().name("warren-routes".to_owned()).spawn(run);
        thread.map_err(|error| error.to_string())?;
        Ok(leading)
    }

    pub(crate) fn end(&self) {
        self.has_ended.store(true, ORDER);
    }

    pub(crate) fn set_holds(&self, holds: bool) {
        self.holds.store(holds, ORDER);
    }

    /// Whether this gateway is to give way now; it is asked for once.
    pub(crate) fn take_way(&self) -> bool {
        self.gives_way.swap(false, ORDER)
    }

    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(ORDER)
    }

    pub(crate) fn why(&self) -> Option<String> {
        self.why.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn tell(&self, why: Option<String>) {
        let mut known = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = why.as_ref().filter(|why| known.as_ref() != Some(*why)) {
            tracing::warn!("the routes of this site's machines: {why}");
        }
        *known = why;
    }
}

fn now(begin: Instant) -> noise::Instant {
    noise::Instant::ZERO + begin.elapsed()
}

/// The thread.
fn serve(known: &Leading, mut leader: Leader) {
    let begin = Instant::now();
    let mut led = Led::new(now(begin));
    while !known.has_ended.load(ORDER) {
        led.set_holds(known.holds.load(ORDER), now(begin));
        known.is_set.store(led.is_set(), ORDER);
        let Some(ask) = led.poll(now(begin)) else {
            std::thread::sleep(LOOK_EVERY);
            continue;
        };
        let answer = match ask {
            Ask::Look => leader.is_astray(),
            Ask::Set => leader.set().map(|count| {
                tracing::info!(count, "routes of this site's machines were set to this gateway");
                false
            }),
        };
        let found = match answer {
            Ok(false) => Found::Here,
            Ok(true) => Found::There,
            Err(_) => Found::Failed,
        };
        if led.handle(found, now(begin)) {
            known.gives_way.store(true, ORDER);
        }
        known.tell(answer.err());
    }
}
