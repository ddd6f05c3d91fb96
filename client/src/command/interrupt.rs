//! Ctrl-C, where a verb ends by it in its own way and the prompt would give the verb up.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::signal::ctrl_c;

/// Tells a prompt which of its interrupts the running verb has taken for itself. Both run in one task, the verb first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupt {
    taken: Arc<AtomicBool>,
}

impl Interrupt {
    /// What `work` gives, or nothing if Ctrl-C comes first. Such an interrupt is the verb's: the prompt does not hear it.
    pub(super) async fn before<R>(&self, work: impl Future<Output = R>) -> Option<R> {
        tokio::select! {
            biased;
            _ = ctrl_c() => {
                self.taken.store(true, Ordering::Relaxed);
                None
            }
            done = work => Some(done),
        }
    }

    /// What `work` gives, or why it was given up: Ctrl-C came and `work` did not take it, or interrupts cannot be heard.
    pub(crate) async fn unless_taken<R>(&self, work: impl Future<Output = R>) -> Result<R, String> {
        self.taken.store(false, Ordering::Relaxed);
        tokio::pin!(work);
        loop {
            let heard = tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                heard = ctrl_c() => heard,
            };
            match heard {
                Ok(()) if self.taken.swap(false, Ordering::Relaxed) => {}
                Ok(()) => return Err("interrupted".to_owned()),
                Err(error) => return Err(format!("interrupts cannot be heard: {error}")),
            }
        }
    }
}
