//! Queue of answers to one client.
//!
//! The number of answers is bounded by the requests that a client may have under way; their bytes are bounded here: a client that
//! requests much and reads nothing is disconnected before it fills the node's memory.

use norn_wire::Response;
use norn_wire::membership::ClusterView;
use norn_wire::response::TaskView;
use norn_wire::watch::WatchEvent;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::mpsc;

/// Approximate bytes of answers that may wait for one client.
pub const ANSWER_BYTES_MAX: usize = 256 << 20;

/// More bytes wait than the client may leave unread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overflow;

type Answer = (u64, Response);

/// Sending end of the queue. While one exists, the receiver waits for more.
#[derive(Debug, Clone)]
pub struct AnswerSender {
    sender: mpsc::UnboundedSender<Answer>,
    waiting_bytes: Arc<AtomicUsize>,
}

/// Sending end that does not keep the queue open.
#[derive(Debug, Clone)]
pub struct WeakAnswerSender {
    sender: mpsc::WeakUnboundedSender<Answer>,
    waiting_bytes: Arc<AtomicUsize>,
}

/// Receiving end of the queue, in order.
#[derive(Debug)]
pub struct AnswerReceiver {
    receiver: mpsc::UnboundedReceiver<Answer>,
    waiting_bytes: Arc<AtomicUsize>,
}

/// Creates a queue of answers.
pub fn answers() -> (AnswerSender, AnswerReceiver) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let waiting_bytes = Arc::<AtomicUsize>::default();
    (AnswerSender { sender, waiting_bytes: Arc::clone(&waiting_bytes) }, AnswerReceiver { receiver, waiting_bytes })
}

impl AnswerSender {
    /// Queues an answer. Without a receiver the answer is dropped, which is no error.
    pub fn send(&self, number: u64, response: Response) -> Result<(), Overflow> {
        let weight = weight_bytes(&response);
        if self.waiting_bytes.fetch_add(weight, Ordering::Relaxed) + weight > ANSWER_BYTES_MAX {
            return Err(Overflow);
        }
        let _ = self.sender.send((number, response));
        Ok(())
    }

    /// Returns a sender that does not keep the queue open.
    pub fn downgrade(&self) -> WeakAnswerSender {
        WeakAnswerSender { sender: self.sender.downgrade(), waiting_bytes: Arc::clone(&self.waiting_bytes) }
    }
}

impl WeakAnswerSender {
    /// Returns a strong sender, if the queue is still open.
    pub fn upgrade(&self) -> Option<AnswerSender> {
        let sender = self.sender.upgrade()?;
        Some(AnswerSender { sender, waiting_bytes: Arc::clone(&self.waiting_bytes) })
    }
}

impl AnswerReceiver {
    /// The next answer, or `None` once the queue is closed.
    pub async fn recv(&mut self) -> Option<Answer> {
        let answer = self.receiver.recv().await?;
        Some(self.taken(answer))
    }

    /// The next answer if one is there.
    pub fn try_recv(&mut self) -> Option<Answer> {
        let answer = self.receiver.try_recv().ok()?;
        Some(self.taken(answer))
    }

    fn taken(&self, answer: Answer) -> Answer {
        self.waiting_bytes.fetch_sub(weight_bytes(&answer.1), Ordering::Relaxed);
        answer
    }
}

/// Approximate bytes of memory that an answer takes: only potentially large parts are counted.
fn weight_bytes(response: &Response) -> usize {
    let base = 256;
    let task = |task: &TaskView| {
        let result = task.result.as_ref().map_or(0, |result| result.len());
        base + task.spec.payload.len() + result + task.updates.iter().map(|entry| entry.data.len() + 64).sum::<usize>()
    };
    base + match response {
        Response::Task(view) => task(view),
        Response::Page(page) => page.tasks.iter().map(task).sum(),
        Response::Claimed { tasks, .. } => tasks
            .iter()
            .map(|granted| {
                let updates = granted.updates.iter().map(|entry| entry.data.len() + 64);
                base + granted.payload.len() + updates.sum::<usize>()
            })
            .sum(),
        Response::Acked(items) => items.len() * 128,
        Response::Renewed(items) => items.len() * 128,
        Response::Queues(queues) => queues.len() * base,
        Response::Nodes(nodes) => nodes.len() * base,
        Response::Partitions(partitions) => partitions.len() * base,
        Response::Remnants(remnants) => remnants.len() * base,
        Response::Status(status) => status.counters.len() * 64,
        Response::Identity(identity) => {
            identity.genesis.as_ref().map_or(0, |genesis| genesis.assignment.len() * 64 + genesis.members.len() * base)
        }
        Response::Changed(changed) => {
            cluster_bytes(&changed.view)
                + changed
                    .membership
                    .as_ref()
                    .map_or(0, |of| of.genesis.assignment.len() * 64 + of.roster.members.len() * base)
        }
        Response::Cluster(view) => cluster_bytes(view),
        Response::Scheduled { view, .. } => view.as_ref().map_or(0, |view| base + view.schedule.payload.len()),
        Response::Schedules(views) => views.iter().map(|view| base + view.schedule.payload.len()).sum(),
        Response::Watched(watched) => {
            let event = |event: &WatchEvent| base + event.result.as_ref().map_or(0, |result| result.len());
            let places = watched.cursor.places.iter().map(|place| 64 + place.whole.len());
            watched.events.iter().map(event).sum::<usize>() + places.sum::<usize>()
        }
        Response::Welcome(_)
        | Response::AckedOne(_)
        | Response::AckedUnique { .. }
        | Response::Transacted(_)
        | Response::Count(_)
        | Response::Done
        | Response::Error(_) => 0,
    }
}

fn cluster_bytes(view: &ClusterView) -> usize {
    view.roster.members.len() * 512 + view.moving.len() * 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use norn_wire::response::{Granted, Page};
    use norn_wire::{QueueName, TaskId, Token};

    fn large() -> Response {
        let granted = Granted {
            id: TaskId::MIN,
            token: Token::default(),
            queue: QueueName::new("q").unwrap(),
            payload: vec![0; 1 << 20],
            priority: 0,
            headers: Vec::new(),
            attempt: 1,
            lease_ms: 1,
            updates: Vec::new(),
            grouping: None,
            group: None,
        };
        Response::Claimed { tasks: vec![granted], unavailable: 0, left: 0 }
    }

    #[tokio::test]
    async fn what_is_read_makes_room_for_more() {
        let (sender, mut receiver) = answers();
        let fits = (0..).take_while(|number| sender.send(*number, large()).is_ok()).count();
        assert!((200..=256).contains(&fits), "{fits}");
        let (weak, waiting_bytes) = (sender.downgrade(), Arc::clone(&receiver.waiting_bytes));
        drop(sender);
        for number in 0..fits as u64 {
            assert_eq!(receiver.recv().await.unwrap().0, number);
        }
        assert!(weak.upgrade().is_none() && receiver.recv().await.is_none());
        assert!(waiting_bytes.load(Ordering::Relaxed) <= weight_bytes(&large()), "only the refused one is left");
    }

    #[test]
    fn an_empty_answer_weighs_something() {
        assert!(weight_bytes(&Response::Page(Page { tasks: Vec::new(), next: None })) > 0);
    }
}
