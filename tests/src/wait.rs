//! Waiting on conditions, with deadlines. No test pauses for a fixed time to let something settle.

use std::future::Future;
use std::time::{Duration, Instant};

/// Longest that anything may take which is expected to happen soon. Machines that build and test at once are slow.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(20);

/// Waits until a condition holds; panics with `what` after [`PATIENCE`].
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    found(what, || condition().then_some(()));
}

/// Waits until a look finds something; panics with `what` after [`PATIENCE`].
pub fn found<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "in vain for {PATIENCE:?}: {what}");
        std::thread::sleep(INTERVAL);
    }
}

/// Waits until an asynchronous look finds something; panics with `what` after `patience`.
pub async fn eventually<T, F>(what: &str, patience: Duration, mut look: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let look = || {
        let looking = look();
        async { looking.await.ok_or_else(|| String::from("nothing yet")) }
    };
    eventually_or(what, patience, look).await
}

/// The same with looks that say what is missing; the last of them is in the panic's message.
pub async fn eventually_or<T, F>(what: &str, patience: Duration, mut look: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, String>>,
{
    let deadline = Instant::now() + patience;
    loop {
        let missing = match look().await {
            Ok(found) => return found,
            Err(missing) => missing,
        };
        assert!(Instant::now() < deadline, "in vain for {patience:?}: {what}; at last: {missing}");
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Comes back at an instant: for workers that hold a task for a while, and for leases that must be over.
pub async fn until_instant(instant: Instant) {
    tokio::time::sleep_until(instant.into()).await;
}

/// A moment's rest between two attempts at something that was refused.
pub async fn moment() {
    tokio::time::sleep(INTERVAL).await;
}
