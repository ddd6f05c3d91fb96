//! What the host asks its own node, as a client would.

use crate::answers::answers;
use crate::clients::CLIENT_FIRST;
use crate::driver::{External, Inputs, Internal};
use norn_engine::{ClientId, Measures, Principal};
use norn_wire::response::Identity;
use norn_wire::{Request, Response};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::{Mutex, oneshot, watch};
use tokio::time::Instant;

/// How long an answer about the node's health serves further askers. Checks of it may come from strangers, in any number.
const HEALTH_SHARED: Duration = Duration::from_millis(250);

/// Asks the node as a client would.
#[derive(Debug)]
pub struct OwnQuestions {
    inputs: Inputs,
    name: Arc<str>,
    /// Next client number: below those of other clients, and used again. So one question is asked after the other.
    client_next: Mutex<u64>,
    alive: SharedAnswer<()>,
    identity: SharedAnswer<Identity>,
}

/// A question about the node's health. Checks of it may come from strangers, in any number, and hang up: one question is under way at
/// a time, all that come meanwhile wait for its answer, and that serves further ones for a moment.
#[derive(Debug)]
struct SharedAnswer<T>(std::sync::Mutex<Option<Question<T>>>);

/// Where an answer will be, with its time. The inner one is absent if the node has stopped.
type Question<T> = watch::Receiver<Option<Option<(Instant, T)>>>;

impl<T> Default for SharedAnswer<T> {
    fn default() -> SharedAnswer<T> {
        SharedAnswer(std::sync::Mutex::default())
    }
}

impl<T: Clone + Send + Sync + 'static> SharedAnswer<T> {
    /// The answer to the question that is under way, or to this one. `None`: the node has stopped.
    async fn get(&self, ask: impl Future<Output = Option<T>> + Send + 'static) -> Option<T> {
        let mut question = self.question(ask);
        let answer = question.wait_for(Option::is_some).await.ok()?;
        answer.as_ref()?.as_ref().map(|(_, answer)| answer.clone())
    }

    fn question(&self, ask: impl Future<Output = Option<T>> + Send + 'static) -> Question<T> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let serves = |question: &&Question<T>| match &*question.borrow() {
            None => true,
            Some(answer) => answer.as_ref().is_some_and(|(at, _)| at.elapsed() < HEALTH_SHARED),
        };
        if let Some(question) = last.as_ref().filter(serves) {
            return question.clone();
        }
        let (told, question) = watch::channel(None);
        *last = Some(question.clone());
        // It is asked to its end though its askers hang up, so that the next asker finds it under way.
        tokio::spawn(async move { told.send(Some(ask.await.map(|answer| (Instant::now(), answer)))) });
        question
    }
}

impl OwnQuestions {
    /// Questions under this name.
    pub fn new(inputs: Inputs, name: Arc<str>) -> OwnQuestions {
        let (alive, identity) = (SharedAnswer::default(), SharedAnswer::default());
        OwnQuestions { inputs, name, client_next: Mutex::new(0), alive, identity }
    }

    /// Whether the driver takes events.
    pub async fn is_alive(&self) -> bool {
        let internal = self.inputs.internal.clone();
        let ask = async move {
            let (asker, told) = oneshot::channel();
            // Not as a client asks: requests of clients wait while the log is full.
            internal.send(Internal::Alive(asker)).await.ok()?;
            told.await.ok()
        };
        self.alive.get(ask).await.is_some()
    }

    /// Measures of the node. `None`: the node has stopped.
    pub async fn measures(&self) -> Option<Arc<Measures>> {
        let (asker, told) = oneshot::channel();
        self.inputs.internal.send(Internal::Measure(asker)).await.ok()?;
        told.await.ok()
    }

    /// Who the node is.
    pub async fn identity(self: &Arc<Self>) -> Option<Identity> {
        let own = Arc::clone(self);
        let ask = async move {
            match own.ask_to_the_end(Request::Identify).await? {
                Response::Identity(identity) => Some(*identity),
                _ => None,
            }
        };
        self.identity.get(ask).await
    }

    /// The answer to a request. `None`: the node has stopped.
    pub async fn ask(self: &Arc<Self>, request: Request) -> Option<Response> {
        let own = Arc::clone(self);
        // It goes on when the asker hangs up: a client number that was opened has to be let go before it is used again.
        tokio::spawn(async move { own.ask_to_the_end(request).await }).await.ok()?
    }

    async fn ask_to_the_end(&self, request: Request) -> Option<Response> {
        let mut client_next = self.client_next.lock().await;
        let client = ClientId(*client_next);
        // Another number each time, so that a late answer to an abandoned question is no answer to this one.
        *client_next = (*client_next + 1) % CLIENT_FIRST;
        let (replies, mut answers) = answers();
        let external = &self.inputs.external;
        external.send(External::Opened { client, replies }).await.ok()?;
        let principal = Principal { name: Arc::clone(&self.name), node: true };
        external.send(External::Request { client, number: 1, principal, request, bytes: 0 }).await.ok()?;
        let (_, response) = answers.recv().await?;
        external.send(External::Gone { client }).await.ok()?;
        Some(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc;

    /// Goal: a health check that hangs up leaves no client number open, whatever the node does meanwhile.
    #[tokio::test]
    async fn a_question_whose_asker_hangs_up_is_asked_to_its_end() {
        let (internal, _held) = mpsc::channel(1);
        let (external, mut asked) = mpsc::channel(64);
        let questions = Arc::new(OwnQuestions::new(Inputs { internal, external }, "n".into()));
        for round in 0..2 * CLIENT_FIRST {
            let asking = Arc::clone(&questions);
            let asker = tokio::spawn(async move { asking.ask(Request::Identify).await });
            let Some(External::Opened { client, replies }) = asked.recv().await else { panic!("no question") };
            assert_eq!(client, ClientId(round % CLIENT_FIRST));
            let Some(External::Request { .. }) = asked.recv().await else { panic!("no request") };
            asker.abort();
            assert!(asker.await.unwrap_err().is_cancelled());
            let _ = replies.send(1, Response::Done);
            let Some(External::Gone { client: gone }) = asked.recv().await else { panic!("it is still open") };
            assert_eq!(gone, client);
        }
    }

    /// Goal: health says that the driver ticks also while the log is full, and requests of clients are not taken.
    #[tokio::test(start_paused = true)]
    async fn a_node_is_alive_while_it_takes_no_requests() {
        let (internal, mut asked) = mpsc::channel(1);
        let (external, _full) = mpsc::channel(1);
        let (replies, _answers) = answers();
        external.send(External::Opened { client: ClientId(1), replies }).await.unwrap();
        let questions = Arc::new(OwnQuestions::new(Inputs { internal, external }, "n".into()));
        for _ in 0..100 {
            let health = tokio::time::timeout(Duration::from_secs(5), questions.identity()).await;
            assert!(health.is_err(), "its log is full");
        }
        let driver = tokio::spawn(async move {
            let Some(Internal::Alive(asker)) = asked.recv().await else { panic!("another question") };
            asker.send(()).unwrap();
        });
        assert!(questions.is_alive().await);
        driver.await.unwrap();
        assert!(questions.is_alive().await, "the answer serves those that come within a moment");
        tokio::time::advance(HEALTH_SHARED).await;
        assert!(!questions.is_alive().await, "the driver has ended");
    }
}
