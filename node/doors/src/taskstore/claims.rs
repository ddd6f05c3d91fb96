//! Claims of taskstore: a task is chosen under a short lease of the cluster, and replaced by one that the client owns.

use super::ids::{self, number, task_id};
use super::messages::{Claim, OWNER_HEADER, Refusal, Task, Update};
use super::names::Store;
use super::{ATTEMPTS_MAX, Memory, drawn_out, missing, now_ms, number_tasks, refusal_of, updates, without_effect};
use crate::handover::Unsettled;
use crate::problem::Problem;
use crate::state::State;
use norn_client::client::calling::Caller;
use norn_client::client::{ClaimOptions, Client, TransactError};
use norn_wire::response::Granted;
use norn_wire::{Error, ErrorCode, TaskId, Token};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// Lease during which a claim replaces the chosen task. If the node dies between, the task is free after it.
const CHOOSING_LEASE: Duration = Duration::from_secs(5);
/// Claims that are undone at once, for callers that hung up. Further tasks stay owned until their time.
pub const UNDOING_MAX: usize = 256;

/// A task that was chosen for a caller, and by and by replaced by one that the caller owns. Dropping it before it is settled lets others
/// have the task at once.
pub struct Chosen {
    state: Arc<State>,
    store: Store,
    client: Client,
    claim: (TaskId, Token),
    /// What the task becomes if the claim is undone: it keeps who had it last.
    before: Task,
    /// The task that replaces it, once that is being tried.
    pub replacement: Option<Task>,
    is_settled: bool,
}

impl Unsettled for Chosen {
    fn settle(&mut self) {
        self.is_settled = true;
    }
}

impl Drop for Chosen {
    fn drop(&mut self) {
        if self.is_settled {
            return;
        }
        let Some(owned) = self.replacement.take() else { return self.client.give_back(vec![self.claim]) };
        let place = Arc::clone(&self.state.taskstore.undoing).try_acquire_owned();
        let (Ok(place), Ok(runtime)) = (place, Handle::try_current()) else {
            return tracing::debug!(task = owned.id, "a task stays owned by a client that hung up, until its time");
        };
        let (state, store, client) = (Arc::clone(&self.state), self.store.clone(), self.client.clone());
        let (claim, before) = (self.claim, self.before.clone());
        runtime.spawn(async move {
            if let Err(why) = undo(&state.taskstore, &store, &client, claim, before, &owned).await {
                tracing::debug!(task = owned.id, why, "a task stays owned by a client that hung up, until its time");
            }
            drop(place);
        });
    }
}

impl Chosen {
    /// Lets others choose the task, and waits until they can. If that fails, they can when the lease ends.
    async fn give_back(mut self) {
        let (id, token) = self.claim;
        if let Err(error) = self.client.release(id, token).await {
            tracing::debug!(%id, %error, "a chosen task stays held until its lease ends");
        }
        self.settle();
    }
}

/// Lets others claim a task that was replaced, or perhaps was, for a client that hung up.
async fn undo(
    memory: &Memory,
    store: &Store,
    client: &Client,
    (id, token): (TaskId, Token),
    before: Task,
    owned: &Task,
) -> Result<(), String> {
    // Once the claim is released, a transaction that has not arrived yet is refused.
    if client.release(id, token).await.is_ok() {
        return Ok(());
    }
    let owned_id = task_id(owned.id, store.tag).ok_or("the id is out of range")?;
    let mut tasks = [Task { timespec: now_ms(), ..before }];
    for _ in 0..ATTEMPTS_MAX {
        number_tasks(memory, &mut tasks, [owned.id]).map_err(|problem| problem.detail)?;
        let transaction = updates::adding(store, &tasks).map_err(|problem| problem.detail)?.delete(owned_id);
        match client.transact(transaction).await {
            Ok(_) => return Ok(()),
            Err(TransactError::Refused(refusal)) if updates::has_collided(store, &refusal, &tasks) => {}
            // The task was not replaced, or has changed since.
            Err(TransactError::Refused(_)) => return Ok(()),
            Err(TransactError::Failed(error)) => return Err(error.to_string()),
        }
    }
    Err("other nodes have drawn each id".to_owned())
}

/// How an attempt to take a chosen task has ended.
enum Taken {
    Yes(Chosen),
    Refused(Refusal),
    /// Another client has it by now.
    Lost,
}

/// Claims a task, or tells why none is. No task at all is no refusal.
pub async fn choose(
    state: &Arc<State>,
    store: &Store,
    client: &Client,
    claim: &Claim,
) -> Result<Result<Option<Chosen>, Refusal>, Problem> {
    let queue = store.queue(&claim.group)?;
    for _ in 0..ATTEMPTS_MAX {
        let depends = missing(client, store, &claim.depends).await?;
        if !depends.is_empty() {
            return Ok(Err(Refusal { depends, ..Refusal::default() }));
        }
        let worker = format!("taskstore client {}", claim.clientid);
        let options = ClaimOptions::new([queue.clone()]).lease(CHOOSING_LEASE).worker(worker);
        let claims = client.claim(options).await.map_err(without_effect)?;
        let Some(claimed) = claims.tasks.into_iter().next() else {
            if claims.unavailable > 0 {
                let text = format!("{} partitions could not be asked for tasks; try again", claims.unavailable);
                return Err(Error::unavailable(text).into());
            }
            return Ok(Ok(None));
        };
        let granted = claimed.granted;
        let chosen = Chosen {
            state: Arc::clone(state),
            store: store.clone(),
            client: client.clone(),
            claim: (granted.id, granted.token),
            before: before(&claim.group, &granted),
            replacement: None,
            is_settled: false,
        };
        match take(chosen, claim, &granted).await? {
            Taken::Yes(chosen) => return Ok(Ok(Some(chosen))),
            Taken::Refused(refusal) => return Ok(Err(refusal)),
            Taken::Lost => {}
        }
    }
    Err(Error::new(ErrorCode::Overloaded, "other clients took each task that was chosen; try again").into())
}

/// A task as it was granted.
fn before(group: &str, granted: &Granted) -> Task {
    let owner = granted.headers.iter().find(|(name, _)| name == OWNER_HEADER);
    Task {
        id: number(granted.id).unwrap_or(0),
        group: group.to_owned(),
        data: String::from_utf8_lossy(&granted.payload).into_owned(),
        timespec: 0,
        ownerid: owner.and_then(|(_, value)| value.parse().ok()).unwrap_or(0),
    }
}

/// Replaces a task that was chosen by one that the client owns.
async fn take(mut chosen: Chosen, claim: &Claim, granted: &Granted) -> Result<Taken, Problem> {
    let (state, store, client) = (Arc::clone(&chosen.state), chosen.store.clone(), chosen.client.clone());
    let Some(before) = number(granted.id).filter(|_| granted.id.tag() == store.tag) else {
        chosen.give_back().await;
        let text =
            format!("task {} was not added through this service; claim it as a task of {}", granted.id, granted.queue);
        return Ok(Taken::Refused(Refusal::bug(text)));
    };
    let timespec = now_ms().saturating_add(claim.duration);
    if timespec > ids::NUMBER_MAX {
        chosen.give_back().await;
        return Err(Problem::invalid(format!("a duration of {} ms; times end at {}", claim.duration, ids::NUMBER_MAX)));
    }
    let mut tasks = [Task { id: 0, timespec, ownerid: claim.clientid, ..chosen.before.clone() }];
    let depends: Vec<u64> = claim.depends.iter().copied().filter(|number| *number != before).collect();
    for _ in 0..ATTEMPTS_MAX {
        number_tasks(&state.taskstore, &mut tasks, depends.iter().copied().chain([before]))?;
        let transaction = updates::adding(&store, &tasks)?.delete((granted.id, granted.token));
        chosen.replacement = tasks.first().cloned();
        match client.transact(updates::depending(&store, transaction, &depends)).await {
            Ok(_) => return Ok(Taken::Yes(chosen)),
            Err(TransactError::Refused(refusal)) if updates::has_collided(&store, &refusal, &tasks) => {}
            Err(TransactError::Refused(refusal)) => {
                chosen.give_back().await;
                let refusal = updates::refused(&Update::default(), &refusal);
                let is_lost = refusal.depends.is_empty() && refusal.bugs.is_empty();
                let refusal = Refusal { deletes: Vec::new(), owned: Vec::new(), ..refusal };
                return Ok(if is_lost { Taken::Lost } else { Taken::Refused(refusal) });
            }
            // An outcome that is not known is undone in the background, as that may take long.
            Err(TransactError::Failed(error)) if error.code == ErrorCode::Unknown => return Err(error.into()),
            Err(TransactError::Failed(error)) => {
                chosen.give_back().await;
                return Err(refusal_of(error).into());
            }
        }
    }
    chosen.give_back().await;
    Err(drawn_out())
}
