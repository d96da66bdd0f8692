//! Tasks that a server is nothing without: it accepts, it sweeps, it answers. None of them ends by
//! itself, so when one does, by a panic or an error, the whole server ends and says which, instead
//! of living on by half; whoever started it starts it again (threat RL-13).

use std::future::Future;

use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Why the server has to end, once it has to.
pub(crate) type Reason = watch::Sender<Option<String>>;

/// Runs a task that never ends; if it does, says so to `reason`.
pub(crate) fn watch<F>(runtime: &Runtime, reason: &Reason, name: &'static str, task: F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let reason = reason.clone();
    let running = runtime.spawn(task);
    runtime.spawn(async move {
        let why = match running.await {
            Err(error) if error.is_cancelled() => return,
            Err(error) => format!("its task \"{name}\" panicked ({error})"),
            Ok(()) => format!("its task \"{name}\" ended"),
        };
        if reason.borrow().is_some() {
            // It ends already: this task has, because of that.
            return;
        }
        tracing::error!(why, "the server ends");
        let why = format!("the server cannot go on: {why}; start it again, and report this");
        // The first reason is the one.
        reason.send_if_modified(|known| {
            let is_first = known.is_none();
            known.get_or_insert(why);
            is_first
        });
    });
}

/// The server ends because it was told to: tasks that end from now on are no failure.
pub(crate) fn rest(reason: &Reason) {
    reason.send_if_modified(|known| {
        let is_first = known.is_none();
        known.get_or_insert_default();
        is_first
    });
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::runtime::Builder;
    use tokio::time::timeout;

    use super::*;

    #[test]
    fn rl_13_a_task_that_panics_or_ends_is_told_and_one_that_runs_is_not() {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        for (task, part) in [(0, "\"one\" panicked"), (1, "\"one\" ended"), (2, "")] {
            let (reason, mut told) = watch::channel(None);
            watch(&runtime, &reason, "one", async move {
                match task {
                    0 => panic!("on purpose"),
                    1 => {}
                    _ => std::future::pending().await,
                }
            });
            let told = runtime.block_on(async {
                let told = timeout(Duration::from_millis(500), told.wait_for(Option::is_some));
                told.await.ok().and_then(|why| why.ok()?.clone())
            });
            match part {
                "" => assert_eq!(told, None),
                part => assert!(told.as_ref().unwrap().contains(part), "{told:?}"),
            }
        }
        runtime.shutdown_background();
    }
}
