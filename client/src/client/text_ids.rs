//! Tasks by their text ids.

use super::Client;
use super::ListOptions;
use super::calling::{Caller, has_ended};
use super::listing::now_ms;
use super::walk::{LOOKED_MAX, Walk};
use crate::session::Draft;
use norn_wire::error::{Error, ErrorCode};
use norn_wire::ids::TaskId;
use norn_wire::limits::LIST_PAGE_MAX;
use norn_wire::request::Spec;
use norn_wire::response::Acked;
use norn_wire::text_id::TextId;

impl Client {
    /// Enqueues a task under a text id, unless an open task has it. Returns the task that exists. The queue and the key of the draft are
    /// those of the text id. A task by itself is [unique](Client::enqueue_unique). A member of a group is enqueued into the group
    /// [of this name](Client::open_group), whose join is in the member's queue and is enqueued if it is missing; to set what the join
    /// does, open the group first. The same text id again is the same member as long as the join has not ended.
    ///
    /// ```no_run
    /// # async fn example(client: norn_client::client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use norn_client::session::Draft;
    /// use norn_client::wire::TextId;
    /// let id: TextId = "recon/system-x".parse()?;
    /// let task = client.enqueue_as(&id, Draft::new(id.queue().clone(), "all accounts")).await?;
    /// assert_eq!(client.find(&id).await?, Some(task.id));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn enqueue_as(&self, id: &TextId, draft: Draft) -> Result<Acked, Error> {
        let draft = draft.text_id(id);
        match id {
            TextId::Single { .. } => Ok(self.enqueue_unique(draft).await?.0),
            TextId::Member { queue, group, number, total } => {
                let join = Draft::new(queue.clone(), group.as_str()).join(None, false);
                let join = self.open_group(join, group).await?;
                // First of all, as a group of another total does not take the member.
                self.close_group(join, *total).await?;
                self.enqueue(draft.member_of(join, *number)).await
            }
        }
    }

    /// The task with this text id: the newest one, open or ended, that is still kept. It is looked for among the latest 100,000 tasks
    /// of the queue, so a program that has the [`TaskId`] should use that.
    pub async fn find(&self, id: &TextId) -> Result<Option<TaskId>, Error> {
        find(self, id, now_ms()).await
    }
}

/// Finds the task with this text id. Ids of nearly the same time may be in another order than their enqueues; of these an open task
/// comes first.
pub async fn find(caller: &impl Caller, id: &TextId, now_ms: u64) -> Result<Option<TaskId>, Error> {
    let options =
        ListOptions { queue: Some(id.queue().clone()), newest: true, page: LIST_PAGE_MAX, ..ListOptions::new() };
    let mut walk = Walk::new(options, now_ms);
    walk.bounded = true;
    let is_it = |spec: &Spec| spec.text_id().as_ref() == Some(id);
    while let Some(tasks) = walk.next(caller, LIST_PAGE_MAX).await? {
        let mut found: Vec<_> = tasks.iter().filter(|task| is_it(&task.spec)).collect();
        found.sort_by_key(|task| has_ended(task.state));
        if let Some(task) = found.first() {
            return Ok(Some(task.id));
        }
    }
    if walk.is_spent() {
        let message = format!("{id} is not among the latest {LOOKED_MAX} tasks of its queue; give the task's whole id");
        return Err(Error::new(ErrorCode::NotFound, message));
    }
    Ok(None)
}
