//! Schedules: tasks that the cluster enqueues by itself.

use super::Client;
use super::answers::unexpected;
use norn_wire::error::Error;
use norn_wire::request::Request;
use norn_wire::response::Response;
use norn_wire::schedule::{Schedule, ScheduleChange, ScheduleView};
use std::sync::Arc;

impl Client {
    /// Sets a schedule: tasks are enqueued at certain times, once in the whole cluster, however many nodes there are. A schedule equal
    /// to the present one of this name changes nothing; a different one replaces it, and starts afresh.
    ///
    /// ```no_run
    /// # async fn example(client: norn_client::client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use norn_client::wire::QueueName;
    /// use norn_client::wire::schedule::{CatchUp, Schedule, When};
    /// let nightly = Schedule {
    ///     when: When::Cron { expression: "30 2 * * *".into(), zone: "Europe/Berlin".into() },
    ///     queue: QueueName::new("backups")?,
    ///     payload: b"everything".to_vec(),
    ///     priority: 0,
    ///     attempts_max: 3,
    ///     catch_up: CatchUp::Last,
    /// };
    /// let view = client.set_schedule("nightly", nightly).await?;
    /// println!("next: {:?}", view.next_ms.first());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn set_schedule(&self, name: &str, schedule: Schedule) -> Result<ScheduleView, Error> {
        let change = ScheduleChange::Set { name: name.to_owned(), schedule: Arc::new(schedule) };
        self.changed_schedule(change).await
    }

    /// Removes a schedule. Its tasks stay. Returns whether it existed.
    pub async fn remove_schedule(&self, name: &str) -> Result<bool, Error> {
        let change = ScheduleChange::Remove { name: name.to_owned() };
        match self.request(Request::Schedule(Box::new(change))).await? {
            Response::Scheduled { already, .. } => Ok(!already),
            _ => unexpected("schedule"),
        }
    }

    /// Pauses or resumes a schedule. Times that pass while it is paused are skipped.
    pub async fn pause_schedule(&self, name: &str, paused: bool) -> Result<ScheduleView, Error> {
        self.changed_schedule(ScheduleChange::Pause { name: name.to_owned(), paused }).await
    }

    /// All schedules, in the order of their names.
    pub async fn schedules(&self) -> Result<Vec<ScheduleView>, Error> {
        match self.request(Request::Schedules { name: None }).await? {
            Response::Schedules(views) => Ok(views),
            _ => unexpected("schedules"),
        }
    }

    /// A schedule, with its next and its past runs.
    pub async fn schedule(&self, name: &str) -> Result<ScheduleView, Error> {
        match self.request(Request::Schedules { name: Some(name.to_owned()) }).await? {
            Response::Schedules(mut views) if views.len() == 1 => Ok(views.remove(0)),
            _ => unexpected("schedules"),
        }
    }

    async fn changed_schedule(&self, change: ScheduleChange) -> Result<ScheduleView, Error> {
        match self.request(Request::Schedule(Box::new(change))).await? {
            Response::Scheduled { view: Some(view), .. } => Ok(*view),
            _ => unexpected("schedule"),
        }
    }
}
