//! Groups: numbered tasks, and the join that runs after all of them.

use super::Client;
use super::answers::unexpected;
use crate::session::Draft;
use norn_wire::error::{Error, ErrorCode};
use norn_wire::group::{GroupView, MemberOf};
use norn_wire::ids::TaskId;
use norn_wire::request::{Acks, Request};
use norn_wire::response::{Acked, Response, TaskView};
use tokio::task::JoinSet;

/// Members read at once.
const READS_MAX: usize = 64;
/// How long the read of a member waits for its end to reach a majority.
const END_MS: u64 = 10_000;

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMember {
    /// Number in the group, from 1.
    pub number: u32,
    /// Id of the member's task.
    pub id: TaskId,
    /// State of the task; absent if it has not been enqueued.
    pub task: Option<TaskView>,
}

impl Client {
    /// Enqueues the join of a group under a name, unless its queue has a group of this name whose join has not ended. Returns the id of
    /// the join that exists, which names the group.
    ///
    /// ```no_run
    /// # async fn example(client: norn_client::client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use norn_client::session::Draft;
    /// use norn_client::wire::QueueName;
    /// let (pages, book) = (QueueName::new("pages")?, QueueName::new("books")?);
    /// let group = client.open_group(Draft::new(book, "bind it").join(None, false), "book 7").await?;
    /// for number in 1..=3 {
    ///     client.enqueue(Draft::new(pages.clone(), "print it").member_of(group, number)).await?;
    /// }
    /// client.close_group(group, 3).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn open_group(&self, join: Draft, name: &str) -> Result<TaskId, Error> {
        let (acked, existing) = self.enqueue_unique(join.group_name(name)).await?;
        if existing && self.get(acked.id).await?.group.is_none() {
            return Err(crate::session::explain_name(name, acked.id));
        }
        Ok(acked.id)
    }

    /// Sets the number of members of a group, on a majority of the disks. May be repeated.
    pub async fn close_group(&self, group: TaskId, total: u32) -> Result<Acked, Error> {
        match self.request(Request::CloseGroup { id: group, total, acks: Acks::Quorum }).await {
            Ok(Response::AckedOne(acked)) => Ok(acked),
            Ok(_) => unexpected("close_group"),
            Err(error) => Err(crate::session::explain_close(error)),
        }
    }

    /// The members of a group, in the order of their numbers: all of them, if their number is known, else none. Members whose end the
    /// join has learned of are shown as ended.
    ///
    /// ```no_run
    /// # async fn example(context: norn_client::worker::Context) -> Result<(), norn_client::wire::Error> {
    /// for member in context.client().members(context.id()).await? {
    ///     let result = member.task.and_then(|task| task.result);
    ///     println!("{}: {:?}", member.number, result);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn members(&self, group: TaskId) -> Result<Vec<GroupMember>, Error> {
        let (view, all) = (self.group(group).await?, usize::MAX);
        self.members_of(group, view, 0, all, true).await
    }

    /// Progress of a group. Refuses a task that is no join.
    pub async fn group(&self, group: TaskId) -> Result<GroupView, Error> {
        let view = self.get(group).await?.group;
        view.ok_or_else(|| Error::invalid("the task is no join of a group").about(group))
    }

    /// A page of the members of a group whose progress was read: those with numbers above `after`, `count` at most. If all have ended and
    /// `waits`, the read of a member waits for its end to be on a majority of the disks.
    pub async fn members_of(
        &self,
        group: TaskId,
        view: GroupView,
        after: u32,
        count: usize,
        waits: bool,
    ) -> Result<Vec<GroupMember>, Error> {
        let total = view.total.unwrap_or(0);
        // A join that was cancelled has ended before its members: do not wait for them.
        let ended = waits && view.ended >= total;
        let numbers = after.saturating_add(1)..=total;
        let (mut members, mut reads) = (Vec::new(), JoinSet::new());
        for number in numbers.take(count) {
            while reads.len() >= READS_MAX {
                members.extend(reads.join_next().await.transpose().map_err(lost)?);
            }
            let client = self.clone();
            reads.spawn(async move { client.member(MemberOf { group, number }, ended).await });
        }
        while let Some(member) = reads.join_next().await {
            members.push(member.map_err(lost)?);
        }
        let mut members = members.into_iter().collect::<Result<Vec<GroupMember>, Error>>()?;
        members.sort_unstable_by_key(|member| member.number);
        Ok(members)
    }

    async fn member(&self, member: MemberOf, ended: bool) -> Result<GroupMember, Error> {
        let id = member.id();
        let request = if ended {
            Request::Wait { id, timeout_ms: END_MS }
        } else {
            Request::Get { id, minimum: None, minimum_sequence: None }
        };
        let task = match self.request(request).await {
            Ok(Response::Task(task)) => Some(*task),
            Ok(_) => return unexpected("get"),
            Err(error) if error.code == ErrorCode::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(GroupMember { number: member.number, id, task })
    }
}

fn lost(error: tokio::task::JoinError) -> Error {
    Error::unavailable(format!("a read has not ended: {error}"))
}
