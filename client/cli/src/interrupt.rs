//! Ctrl-C for verbs that handle it themselves, at a prompt that would otherwise abandon them.
//!
//! Only one of the two listens. At a prompt it is the prompt, which passes the interrupt to a verb that wants it: two listeners may
//! receive one signal at different moments, and the prompt could abandon a verb that is about to end by itself.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use tokio::signal::ctrl_c;

/// State shared by a prompt and the verb that it runs, both in one task.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupt(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Whether a prompt listens.
    prompts: AtomicBool,
    /// Whether the verb handles interrupts itself.
    wanted: AtomicBool,
    /// Whether the prompt has passed on an interrupt that the verb wants.
    handed: AtomicBool,
}

/// Flag that is set as long as the guard lives.
struct Mark<'a>(&'a AtomicBool);

impl<'a> Mark<'a> {
    fn set(mark: &'a AtomicBool) -> Self {
        mark.store(true, Ordering::Relaxed);
        Mark(mark)
    }
}

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Starts to receive interrupts. From then on, an interrupt that comes while nothing waits for it is dropped; before the first listener
/// it would end the process.
pub(crate) async fn listen() {
    let mut next = pin!(ctrl_c());
    poll_fn(|context| {
        // If interrupts cannot be received, each command reports that.
        let _ = next.as_mut().poll(context);
        Poll::Ready(())
    })
    .await;
}

impl Interrupt {
    /// Returns the output of `work`, or `None` if Ctrl-C comes first. The verb handles such an interrupt: the prompt does not abandon the
    /// verb.
    pub(super) async fn before<R>(&self, work: impl Future<Output = R>) -> Option<R> {
        let _wanted = Mark::set(&self.0.wanted);
        self.0.handed.store(false, Ordering::Relaxed);
        tokio::select! {
            biased;
            () = self.heard() => None,
            done = work => Some(done),
        }
    }

    /// Waits for an interrupt, from the prompt if there is one. The prompt polls the verb again once it has passed one on.
    async fn heard(&self) {
        if self.0.prompts.load(Ordering::Relaxed) {
            poll_fn(|_| if self.0.handed.load(Ordering::Relaxed) { Poll::Ready(()) } else { Poll::Pending }).await;
        } else {
            // If interrupts cannot be received, the work ends at once, since nothing could end it later.
            let _ = ctrl_c().await;
        }
    }

    /// Returns the output of `work`, or why it was abandoned: Ctrl-C came and `work` did not want it, or interrupts cannot be received.
    pub(crate) async fn unless_taken<R>(&self, work: impl Future<Output = R>) -> Result<R, String> {
        self.unless_taken_of(ctrl_c, work).await
    }

    pub(super) async fn unless_taken_of<R, I: Future<Output = io::Result<()>>>(
        &self,
        interrupts: impl Fn() -> I,
        work: impl Future<Output = R>,
    ) -> Result<R, String> {
        let _prompts = Mark::set(&self.0.prompts);
        tokio::pin!(work);
        loop {
            // Listen before the work goes on: an interrupt without a listener ends the process.
            let mut next = pin!(interrupts());
            let early = poll_fn(|context| Poll::Ready(next.as_mut().poll(context))).await;
            let heard = tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                heard = async { if let Poll::Ready(heard) = early { heard } else { next.await } } => heard,
            };
            if let Err(error) = heard {
                return Err(format!("interrupts cannot be heard: {error}"));
            }
            if !self.0.wanted.load(Ordering::Relaxed) {
                return Err("interrupted".to_owned());
            }
            self.0.handed.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};
    use std::sync::atomic::AtomicUsize;

    /// Returns a source of this many interrupts, one after the other.
    fn interrupts(count: usize) -> impl Fn() -> std::pin::Pin<Box<dyn Future<Output = io::Result<()>>>> {
        let left = AtomicUsize::new(count);
        move || match left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) {
            Ok(_) => Box::pin(ready(Ok(()))),
            Err(_) => Box::pin(pending()),
        }
    }

    /// Goal: at no moment is a verb that handles interrupts abandoned because of one.
    #[tokio::test]
    async fn an_interrupt_that_a_verb_wants_ends_it_in_its_own_way() {
        let interrupt = Interrupt::default();
        let verb = async { interrupt.before(pending::<()>()).await.map_or(7, |()| 0) };
        assert_eq!(interrupt.unless_taken_of(interrupts(1), verb).await, Ok(7));
    }

    /// Goal: the prompt listens before the verb does anything.
    #[tokio::test]
    async fn the_prompt_listens_before_the_verb_begins() {
        let listens = AtomicBool::new(false);
        let interrupts = || {
            poll_fn(|_| {
                listens.store(true, Ordering::Relaxed);
                Poll::<io::Result<()>>::Pending
            })
        };
        let verb = async { listens.load(Ordering::Relaxed) };
        assert_eq!(Interrupt::default().unless_taken_of(interrupts, verb).await, Ok(true));
    }

    #[tokio::test]
    async fn a_verb_that_wants_no_interrupt_is_given_up() {
        let interrupt = Interrupt::default();
        assert_eq!(interrupt.unless_taken_of(interrupts(1), pending::<()>()).await, Err("interrupted".to_owned()));
        let verb = async {
            interrupt.before(ready(())).await;
            pending::<()>().await;
        };
        let given_up = interrupt.unless_taken_of(interrupts(1), verb).await;
        assert_eq!(given_up, Err("interrupted".to_owned()), "it has had its time");
    }

    /// Goal: an interrupt ends the wait that runs when it comes. Method: the first of two waits ends by it, the second goes on.
    #[tokio::test]
    async fn an_interrupt_ends_one_wait() {
        let interrupt = Interrupt::default();
        let verb = async {
            let first = interrupt.before(pending::<u32>()).await;
            (first, interrupt.before(ready(7)).await)
        };
        assert_eq!(interrupt.unless_taken_of(interrupts(1), verb).await, Ok((None, Some(7))));
    }
}
