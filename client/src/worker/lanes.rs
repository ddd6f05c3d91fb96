//! Claim calls: one for each length of lease, because a call has one length for all its queues.

use super::Worker;
use crate::client::{ClaimOptions, Claims};
use norn_wire::error::{Error, ErrorCode};
use norn_wire::ids::{QueueName, TaskId};
use norn_wire::limits;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Pause after a claim call that failed, or that brought nothing and could not ask every partition.
const CLAIM_PAUSE: Duration = Duration::from_millis(500);
/// Longest wait of a call while the calls of other lanes lack room.
const WAIT_SHARED: Duration = Duration::from_millis(200);

pub(super) type Claiming = Pin<Box<dyn Future<Output = Result<Claims, Error>> + Send>>;

/// Queues whose tasks get leases of the same length.
struct Lane {
    lease: Option<Duration>,
    queues: Vec<QueueName>,
    /// The call under way, and the number of tasks that it asks for.
    claiming: Option<(Claiming, usize)>,
    /// Earliest time of the next call.
    claim_at: Instant,
    /// The last call brought nothing, so the next one reserves little room.
    quiet: bool,
    /// Why the last call failed, so that the log reports each reason once.
    failure: Option<String>,
}

/// The claim calls of a worker. All calls under way together ask for no more tasks than there is room for.
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    /// The lane whose turn it is.
    next: usize,
    /// Why no node will ever serve this client, once known.
    pub refusal: Option<Error>,
}

impl Lanes {
    pub fn new(worker: &Worker) -> Lanes {
        let mut queues: BTreeMap<Option<Duration>, Vec<QueueName>> = BTreeMap::new();
        for (queue, service) in &worker.services {
            queues.entry(service.options.lease.or(worker.lease)).or_default().push(queue.clone());
        }
        let claim_at = Instant::now();
        let lane = |(lease, queues)| Lane { lease, queues, claiming: None, claim_at, quiet: false, failure: None };
        Lanes { lanes: queues.into_iter().map(lane).collect(), next: 0, refusal: None }
    }

    /// Greatest number of tasks that the calls under way may bring.
    pub fn asked(&self) -> usize {
        self.lanes.iter().filter_map(|lane| lane.claiming.as_ref()).map(|(_, max)| max).sum()
    }

    pub fn are_idle(&self) -> bool {
        self.lanes.iter().all(|lane| lane.claiming.is_none())
    }

    /// Earliest time of the next call.
    pub fn claim_at(&self) -> Option<Instant> {
        self.lanes.iter().filter(|lane| lane.claiming.is_none()).map(|lane| lane.claim_at).min()
    }

    /// Takes all calls under way out of their lanes.
    pub fn abandon(&mut self) -> impl Iterator<Item = Claiming> + '_ {
        self.lanes.iter_mut().filter_map(|lane| lane.claiming.take()).map(|(claiming, _)| claiming)
    }

    /// Starts the calls that are due, each for its share of the room.
    pub fn start(&mut self, worker: &Worker, session: Option<TaskId>, mut room: usize) {
        let (now, count) = (Instant::now(), self.lanes.len());
        let is_due = |lane: &Lane| lane.claiming.is_none() && lane.claim_at <= now;
        let mut due = self.lanes.iter().filter(|lane| is_due(lane)).count();
        let is_shared = due > room;
        for place in (0..count).map(|step| (self.next + step) % count).collect::<Vec<_>>() {
            let lane = &mut self.lanes[place];
            if !is_due(lane) || room == 0 {
                continue;
            }
            let share = if lane.quiet && count > 1 { 1 } else { room.div_ceil(due) };
            let max = share.min(limits::CLAIM_TASKS_MAX as usize);
            let wait = if is_shared { worker.poll.min(WAIT_SHARED) } else { worker.poll };
            let options = ClaimOptions { lease: lane.lease, session, ..ClaimOptions::new(lane.queues.iter().cloned()) }
                .wait(lane.lease.map_or(wait, |lease| wait.min(lease / 4)))
                .max(u32::try_from(max).unwrap_or(u32::MAX))
                .worker(worker.name.clone());
            let client = worker.client.clone();
            lane.claiming = Some((Box::pin(async move { client.claim(options).await }), max));
            (room, due, self.next) = (room - max, due - 1, (place + 1) % count);
        }
    }

    /// Result of one of the calls under way; waits for ever if there is none.
    pub async fn claimed(&mut self) -> Option<Claims> {
        let (place, claims) = std::future::poll_fn(|context| {
            for (place, lane) in self.lanes.iter_mut().enumerate() {
                if let Some((claiming, _)) = &mut lane.claiming
                    && let Poll::Ready(claims) = claiming.as_mut().poll(context)
                {
                    lane.claiming = None;
                    return Poll::Ready((place, claims));
                }
            }
            Poll::Pending
        })
        .await;
        let lane = &mut self.lanes[place];
        match claims {
            Ok(claims) => {
                lane.failure = None;
                lane.quiet = claims.tasks.is_empty();
                if lane.quiet && claims.unavailable > 0 {
                    lane.claim_at = Instant::now() + CLAIM_PAUSE;
                }
                Some(claims)
            }
            // This comes only before any node has served the client, so no claim is held.
            Err(error) if error.code == ErrorCode::Denied => {
                self.refusal = Some(error);
                None
            }
            Err(error) => {
                if lane.failure.as_ref() == Some(&error.message) {
                    tracing::debug!(%error, "claim failed");
                } else {
                    tracing::warn!(%error, "claim failed; it is tried on");
                    lane.failure = Some(error.message);
                }
                lane.claim_at = Instant::now() + CLAIM_PAUSE;
                None
            }
        }
    }
}
