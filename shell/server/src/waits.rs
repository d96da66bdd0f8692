//! Work that may wait, on threads where that holds nobody up.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// The work did not end: it panicked, or the server ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unfinished;

/// Runs what may wait for the disk or for a lock where that holds nobody up.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Unfinished> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Unfinished)
}

/// Runs what somebody who has proven nothing asks for on a thread of few, so that all others are
/// left to those who have.
pub(crate) async fn unproven<T: Send + 'static>(
    places: &Arc<Semaphore>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Unfinished> {
    let place = Arc::clone(places).acquire_owned().await.map_err(|_| Unfinished)?;
    let work = move || {
        let done = work();
        drop(place);
        done
    };
    blocking(work).await
}
