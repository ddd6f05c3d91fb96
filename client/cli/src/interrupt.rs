//! Ctrl-C, where a verb ends by it in its own way and the prompt would give the verb up.
//!
//! One of the two listens. At a prompt that is the prompt, which hands the interrupt on to a verb that wants it: two listeners
//! may hear of one signal at different moments, and the prompt could give up a verb that is about to end by itself.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use tokio::signal::ctrl_c;

/// Shared by a prompt and the verb that it runs. Both run in one task.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupt(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// A prompt listens.
    prompts: AtomicBool,
    /// The verb ends by an interrupt in its own way.
    wanted: AtomicBool,
    /// The prompt has heard an interrupt that the verb wants.
    handed: AtomicBool,
}

/// Sets a mark for as long as it lives.
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

/// Has interrupts heard from here on. One that comes where nothing waits for any is dropped then; before the first listener it would end
/// the process.
pub(crate) async fn listen() {
    let mut next = pin!(ctrl_c());
    poll_fn(|context| {
        // Where interrupts cannot be heard, each command says so.
        let _ = next.as_mut().poll(context);
        Poll::Ready(())
    })
    .await;
}

impl Interrupt {
    /// What `work` gives, or nothing if Ctrl-C comes first. Such an interrupt is the verb's: the prompt does not give it up.
    pub(super) async fn before<R>(&self, work: impl Future<Output = R>) -> Option<R> {
        let _wanted = Mark::set(&self.0.wanted);
        self.0.handed.store(false, Ordering::Relaxed);
        tokio::select! {
            biased;
            () = self.heard() => None,
            done = work => Some(done),
        }
    }

    /// An interrupt, by the prompt where there is one. It looks at the verb again once it has handed one on.
    async fn heard(&self) {
        if self.0.prompts.load(Ordering::Relaxed) {
            poll_fn(|_| if self.0.handed.load(Ordering::Relaxed) { Poll::Ready(()) } else { Poll::Pending }).await;
        } else {
            // Where interrupts cannot be heard the work ends at once: nothing could end it later.
            let _ = ctrl_c().await;
        }
    }

    /// What `work` gives, or why it was given up: Ctrl-C came and `work` did not want it, or interrupts cannot be heard.
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
            // Listens before the work goes on: an interrupt that nothing listens to yet ends the process.
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

    /// As many interrupts as this, one after the other.
    fn interrupts(count: usize) -> impl Fn() -> std::pin::Pin<Box<dyn Future<Output = io::Result<()>>>> {
        let left = AtomicUsize::new(count);
        move || match left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) {
            Ok(_) => Box::pin(ready(Ok(()))),
            Err(_) => Box::pin(pending()),
        }
    }

    /// Goal: there is no moment in which a verb that ends by an interrupt is given up for it.
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

    /// Goal: an interrupt counts for what runs when it comes. Method: the first of two waits ends by it, the second goes on.
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
