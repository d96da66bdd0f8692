//! The server of a world: the service as it is, from the sealed request to the file of its books,
//! under a clock that the world moves. Only TLS and HTTP are left out.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use control::client::{Ask, AskId, Lane, OPEN_PATH, Outcome};
use control::{ServerUrl, SigningKey};
use noise::{Instant, PrivateKey, PublicKey};
use server::service::{Founding, Service};
use server::store::Enrolment;
use sim::rng::Rng;
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinHandle, yield_now};

use super::errors::Errors;

/// When a world begins, in Unix seconds.
const BEGIN_S: u64 = 1_800_000_000;
/// How long an ephemeral node may be away, in seconds.
pub(super) const EPHEMERAL_AWAY_S: u64 = 90;

/// A folder that goes with its world; in memory where there is such a place.
struct Folder(PathBuf);

impl Folder {
    /// Worlds run beside each other, of one seed, too.
    fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let memory = PathBuf::from("/dev/shm");
        let base = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let path = base.join(format!("warren-world-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A poll that waits.
struct Waiting {
    machine: usize,
    ask: AskId,
    task: JoinHandle<Outcome>,
}

struct Running {
    runtime: Runtime,
    service: Service,
    polls: Vec<Waiting>,
}

/// The server and its disk.
pub(super) struct Office {
    running: Option<Running>,
    pub(super) url: ServerUrl,
    stun: Vec<String>,
    terms: Enrolment,
    secrets: [[u8; 32]; 3],
    time_ns: Arc<AtomicU64>,
    rng: Rng,
    errors: Errors,
    folder: Folder,
}

impl Office {
    pub(super) fn new(
        mut rng: Rng,
        stun: Vec<String>,
        needs_approval: bool,
        errors: Errors,
    ) -> Self {
        let secrets = std::array::from_fn(|_| {
            let mut secret = [0; 32];
            rng.fill(&mut secret);
            secret
        });
        Self {
            running: None,
            url: "https://server.test".parse().unwrap(),
            stun,
            terms: Enrolment { needs_approval, lifetime_s: None },
            secrets,
            time_ns: Arc::default(),
            rng,
            errors,
            folder: Folder::new(),
        }
    }

    fn noise(&self) -> PrivateKey {
        PrivateKey::from_bytes(self.secrets[0])
    }

    pub(super) fn public(&self) -> PublicKey {
        self.noise().public()
    }

    pub(super) fn now_s(&self) -> u64 {
        BEGIN_S + self.time_ns.load(Ordering::Relaxed) / 1_000_000_000
    }

    /// Starts as `warren serve` does: from the books, in a new epoch.
    pub(super) fn start(&mut self) {
        let time_ns = Arc::clone(&self.time_ns);
        let founding = Founding {
            folder: &self.folder.0,
            noise: self.noise(),
            signing: SigningKey::from_seed(&self.secrets[1]).unwrap(),
            pepper: self.secrets[2],
            url: self.url.clone(),
            stun: self.stun.clone(),
            terms: self.terms,
            begin_s: BEGIN_S,
            up_s: Box::new(move || time_ns.load(Ordering::Relaxed) / 1_000_000_000),
        };
        let service = Service::start(founding, &mut self.rng).unwrap();
        let errors = self.errors.clone();
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .max_blocking_threads(1)
            .on_thread_start(move || {
                std::mem::forget(tracing::dispatcher::set_default(&errors.dispatch()));
            })
            .build()
            .unwrap();
        self.running = Some(Running { runtime, service, polls: Vec::new() });
    }

    /// Ends as if it was killed: who waits gets no answer. Those who waited.
    pub(super) fn stop(&mut self) -> Vec<(usize, AskId)> {
        let Some(Running { runtime, service, polls }) = self.running.take() else {
            return Vec::new();
        };
        let waited = polls.iter().map(|poll| (poll.machine, poll.ask)).collect();
        drop((polls, runtime));
        assert!(service.is_alone(), "nothing goes on behind its end");
        waited
    }

    pub(super) const fn is_up(&self) -> bool {
        self.running.is_some()
    }

    pub(super) fn service(&self) -> &Service {
        &self.running.as_ref().expect("it runs").service
    }

    /// The epoch and the sequence of the latest change.
    pub(super) fn version(&self) -> (u64, u64) {
        self.service().version()
    }

    /// Takes a request. A poll may wait; all else is answered at once.
    pub(super) fn take(&mut self, machine: usize, ask: &Ask) -> Option<Outcome> {
        let Some(running) = &mut self.running else { return Some(Outcome::Failed) };
        let body = ask.body.clone();
        if ask.path == OPEN_PATH {
            return Some(running.runtime.block_on(running.service.open(body)));
        }
        let answer = running.service.ask(body);
        if ask.lane == Lane::Command {
            return Some(running.runtime.block_on(answer));
        }
        let task = running.runtime.spawn(answer);
        running.runtime.block_on(yield_often());
        if task.is_finished() {
            return Some(running.runtime.block_on(task).unwrap_or(Outcome::Failed));
        }
        running.polls.push(Waiting { machine, ask: ask.id, task });
        None
    }

    /// Lets time pass until `now`: polls that have their answer.
    pub(super) fn advance(&mut self, now: Instant) -> Vec<(usize, AskId, Outcome)> {
        let time_ns = Arc::clone(&self.time_ns);
        let passed = Duration::from_nanos(now.0 - time_ns.load(Ordering::Relaxed));
        let Some(running) = &mut self.running else {
            time_ns.store(now.0, Ordering::Relaxed);
            return Vec::new();
        };
        running.runtime.block_on(async {
            // Who was woken begins what it waits for now, and not when time has passed.
            yield_often().await;
            time_ns.store(now.0, Ordering::Relaxed);
            tokio::time::advance(passed).await;
            yield_often().await;
        });
        let (done, waiting) =
            std::mem::take(&mut running.polls).into_iter().partition(|p| p.task.is_finished());
        running.polls = waiting;
        let answer = |poll: Waiting| {
            let ended = running.runtime.block_on(poll.task).unwrap_or(Outcome::Failed);
            (poll.machine, poll.ask, ended)
        };
        Vec::into_iter(done).map(answer).collect()
    }

    /// What it does every second.
    pub(super) fn sweep(&self) {
        self.service().sweep(EPHEMERAL_AWAY_S);
    }

    /// A machine's connections break.
    pub(super) fn hang_up(&mut self, machine: usize) {
        let Some(running) = &mut self.running else { return };
        let (gone, waiting) =
            std::mem::take(&mut running.polls).into_iter().partition(|p| p.machine == machine);
        running.polls = waiting;
        Vec::into_iter(gone).for_each(|poll: Waiting| poll.task.abort());
        running.runtime.block_on(yield_often());
    }

    /// Whether a poll of this machine waits here.
    pub(super) fn has_poll(&self, machine: usize) -> bool {
        let polls = self.running.iter().flat_map(|running| &running.polls);
        polls.into_iter().any(|poll| poll.machine == machine)
    }
}

/// Lets every task do what it can.
async fn yield_often() {
    for _ in 0..3 {
        yield_now().await;
    }
}
