//! Read-only calls.

use super::answers::{millis, unexpected};
use super::{Client, ListOptions, Listing};
use norn_wire::error::Error;
use norn_wire::ids::{QueueName, TaskId};
use norn_wire::request::Request;
use norn_wire::response::{NodeView, PartitionView, QueueCounts, Response, State, Status, TaskView};
use std::time::Duration;

impl Client {
    /// Reads a task with its log and claims.
    pub async fn get(&self, id: TaskId) -> Result<TaskView, Error> {
        self.task(Request::Get { id, minimum: None, minimum_sequence: None }).await
    }

    /// Waits until a task has ended; after the timeout, returns it in its present state.
    pub async fn wait(&self, id: TaskId, timeout: Duration) -> Result<TaskView, Error> {
        self.task(Request::Wait { id, timeout_ms: millis(timeout) }).await
    }

    async fn task(&self, request: Request) -> Result<TaskView, Error> {
        let verb = request.verb();
        match self.request(request).await? {
            Response::Task(task) => Ok(*task),
            _ => unexpected(verb),
        }
    }

    /// Lists tasks in the order of their ids, a page at a time.
    ///
    /// ```no_run
    /// # async fn example(client: norn_client::client::Client) -> Result<(), norn_client::wire::Error> {
    /// use norn_client::client::ListOptions;
    /// use norn_client::wire::State;
    /// let mut dead = client.list(ListOptions::new().state(State::Dead));
    /// while let Some(task) = dead.next().await? {
    ///     println!("{} {:?}", task.id, task.reason);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn list(&self, options: ListOptions) -> Listing {
        Listing::new(self.clone(), options)
    }

    /// Number of tasks, of one queue or all, in one state or all.
    pub async fn count(&self, queue: Option<QueueName>, state: Option<State>) -> Result<u64, Error> {
        match self.request(Request::Count { queue, state }).await? {
            Response::Count(count) => Ok(count),
            _ => unexpected("count"),
        }
    }

    /// Every queue with its counts.
    pub async fn queues(&self) -> Result<Vec<QueueCounts>, Error> {
        match self.request(Request::Queues).await? {
            Response::Queues(queues) => Ok(queues),
            _ => unexpected("queues"),
        }
    }

    /// The members of the cluster, as the answering node sees them.
    pub async fn nodes(&self) -> Result<Vec<NodeView>, Error> {
        match self.request(Request::Nodes).await? {
            Response::Nodes(nodes) => Ok(nodes),
            _ => unexpected("nodes"),
        }
    }

    /// All partitions with their preference lists.
    pub async fn ring(&self) -> Result<Vec<PartitionView>, Error> {
        self.partition_views(Request::Ring).await
    }

    /// All partitions with their leaders, epochs and sizes.
    pub async fn partitions(&self) -> Result<Vec<PartitionView>, Error> {
        self.partition_views(Request::Partitions).await
    }

    async fn partition_views(&self, request: Request) -> Result<Vec<PartitionView>, Error> {
        let verb = request.verb();
        match self.request(request).await? {
            Response::Partitions(partitions) => Ok(partitions),
            _ => unexpected(verb),
        }
    }

    /// Status of the answering node, and a summary of the cluster.
    pub async fn status(&self) -> Result<Status, Error> {
        match self.request(Request::Status).await? {
            Response::Status(status) => Ok(*status),
            _ => unexpected("status"),
        }
    }
}
