//! Reports of outcomes.
//!
//! A slot of the worker is free once its handler has ended, before the outcome is known to be stored: the claim for the slot does not
//! wait for the answer to the report, and leaves together with it. Completions that are ready at the same moment are one call.

use super::Outcome;
use super::context::{Held, report_pause};
use super::run::{Boxed, Ending};
use crate::client::{Client, CompleteOptions, FailOptions};
use crate::session::Draft;
use futures_util::future::join_all;
use norn_wire::error::{Error, ErrorCode};
use norn_wire::limits;
use norn_wire::request::Acks;
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// A completion to be sent.
struct Completion {
    options: CompleteOptions,
    reply: oneshot::Sender<Result<(), Error>>,
}

/// The ends of handlers. Never more than one of each held claim at a time.
pub(super) struct Reports {
    /// Absent: the handler's task reports the outcome by itself.
    begun: mpsc::UnboundedReceiver<Option<Completion>>,
    sender: mpsc::UnboundedSender<Option<Completion>>,
    /// Calls under way. Dropping them abandons them.
    calls: Vec<Boxed<()>>,
}

/// Takes the reports of one handler's task.
#[derive(Clone)]
pub(super) struct Reporter {
    client: Client,
    begun: mpsc::UnboundedSender<Option<Completion>>,
}

impl Reports {
    pub fn new() -> Reports {
        let (sender, begun) = mpsc::unbounded_channel();
        Reports { begun, sender, calls: Vec::new() }
    }

    pub fn reporter(&self, client: &Client) -> Reporter {
        Reporter { client: client.clone(), begun: self.sender.clone() }
    }

    /// Ready after handlers have ended. Their completions have been handed to the client then, so that they go before later calls.
    /// Dropping the future loses nothing.
    pub async fn next(&mut self, client: &Client) {
        poll_fn(|context| self.poll(client, context)).await;
    }

    fn poll(&mut self, client: &Client, context: &mut Context<'_>) -> Poll<()> {
        self.calls.retain_mut(|call| call.as_mut().poll(context).is_pending());
        let (mut completions, mut some) = (Vec::new(), false);
        // It never closes, as one sender is here.
        while let Poll::Ready(Some(completion)) = self.begun.poll_recv(context) {
            completions.extend(completion);
            some = true;
        }
        if !completions.is_empty() {
            let mut call: Boxed<()> = Box::pin(complete_all(client.clone(), completions));
            if call.as_mut().poll(context).is_pending() {
                self.calls.push(call);
            }
        }
        if some { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Completes claims, in one call if they fit into one.
async fn complete_all(client: Client, completions: Vec<Completion>) {
    let options = completions.iter().map(|completion| completion.options.clone()).collect();
    let results = client.complete_many(options, Acks::Quorum).await;
    let is_alone = results.len() == 1;
    let settled = completions.into_iter().zip(results).map(async |(Completion { options, reply }, result)| {
        let result = match result.map(|_| ()) {
            // The fault of one of them may have been charged to all.
            Err(error) if error.code == ErrorCode::Invalid && !is_alone => client.complete(options).await.map(|_| ()),
            result => result,
        };
        // Without a receiver the lease is lost.
        let _ = reply.send(result);
    });
    join_all(settled).await;
}

impl Reporter {
    /// Repeats the report of an ended handler until the outcome is known.
    pub async fn report(&self, held: &Held, outcome: Outcome, children: Vec<Draft>) -> Ending {
        let (id, token) = (held.id, held.token);
        let fail = match outcome {
            Outcome::Done(result) => match self.complete(held, result, children).await {
                Ok(()) => return Ending::Done,
                // The node will never take it; report that instead of letting the lease expire.
                Err(error) if error.code == ErrorCode::Invalid => {
                    FailOptions::new(id, token).reason(cut(format!("completion refused: {error}"))).invalid()
                }
                Err(error) => return refused(held, &error),
            },
            Outcome::RetryLater { after, reason } => {
                let after = after.min(Duration::from_millis(limits::DELAY_MS_MAX));
                FailOptions::new(id, token).reason(cut(reason)).retry_in(after)
            }
            Outcome::Retry { reason } => FailOptions::new(id, token).reason(cut(reason)),
            Outcome::Invalid { reason } => FailOptions::new(id, token).reason(cut(reason)).invalid(),
        };
        self.send(None);
        loop {
            match self.client.fail(fail.clone()).await {
                Ok(()) if fail.invalid => return Ending::Invalid,
                Ok(()) => return Ending::Retried,
                Err(error) if error.passes() => tokio::time::sleep(report_pause(&error)).await,
                Err(error) => return refused(held, &error),
            }
        }
    }

    async fn complete(&self, held: &Held, result: Option<Vec<u8>>, children: Vec<Draft>) -> Result<(), Error> {
        let sequence = held.sequence(&self.client).await?;
        let mut options = CompleteOptions::new(held.id, held.token).sequence(sequence);
        (options.result, options.children) = (result, children);
        loop {
            let (reply, completed) = oneshot::channel();
            self.send(Some(Completion { options: options.clone(), reply }));
            match completed.await {
                Ok(Err(error)) if error.passes() => tokio::time::sleep(report_pause(&error)).await,
                Ok(result) => return result,
                // The worker's run has ended: this task is dropped soon.
                Err(_) => std::future::pending().await,
            }
        }
    }

    fn send(&self, completion: Option<Completion>) {
        // An error means that the worker's run has ended.
        let _ = self.begun.send(completion);
    }
}

fn refused(held: &Held, error: &Error) -> Ending {
    tracing::warn!(id = %held.id, token = %held.token, %error, "outcome refused");
    Ending::Lost
}

/// Cuts a text to the limit of the protocol, at a character boundary.
fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(limits::TEXT_BYTES_MAX));
    text
}
