//! Ctrl-C, where a verb ends by it in its own way and the prompt would give the verb up.

use std::future::Future;
use std::io;
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
        self.unless_taken_of(ctrl_c, work).await
    }

    async fn unless_taken_of<R, I: Future<Output = io::Result<()>>>(
        &self,
        interrupts: impl Fn() -> I,
        work: impl Future<Output = R>,
    ) -> Result<R, String> {
        self.taken.store(false, Ordering::Relaxed);
        tokio::pin!(work);
        loop {
            let heard = tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                heard = interrupts() => heard,
            };
            if let Err(error) = heard {
                return Err(format!("interrupts cannot be heard: {error}"));
            }
            // The interrupt may have come just after the verb looked for one: it looks once more.
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                () = std::future::ready(()) => {}
            }
            if !self.taken.swap(false, Ordering::Relaxed) {
                return Err("interrupted".to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{poll_fn, ready};
    use std::task::Poll;

    /// Goal: an interrupt that comes between the looks of the verb and of the prompt is still the verb's.
    #[tokio::test]
    async fn a_verb_that_looked_just_before_the_interrupt_has_it_all_the_same() {
        let interrupt = Interrupt::default();
        let mut looks = 0;
        let verb = poll_fn(|_| {
            looks += 1;
            interrupt.taken.store(looks == 2, Ordering::Relaxed);
            if looks < 3 { Poll::Pending } else { Poll::Ready(7) }
        });
        assert_eq!(interrupt.unless_taken_of(|| ready(Ok(())), verb).await, Ok(7));
    }

    #[tokio::test]
    async fn a_verb_that_takes_no_interrupt_is_given_up() {
        let interrupt = Interrupt::default();
        let verb = std::future::pending::<()>();
        assert_eq!(interrupt.unless_taken_of(|| ready(Ok(())), verb).await, Err("interrupted".to_owned()));
    }
}
