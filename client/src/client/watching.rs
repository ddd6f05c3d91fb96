//! Watches: a stream of changes of tasks.

use super::Client;
use super::answers::unexpected;
use crate::session::{WatchNews, WatchState};
use norn_wire::error::Error;
use norn_wire::limits::WATCH_KEPT_MS;
use norn_wire::response::Response;
use norn_wire::watch::Subject;

/// Waiting time of one call. A call that is lost with its node is repeated well before the node discards the watch's events.
const CALL_MS: u64 = WATCH_KEPT_MS / 3;

/// A watch that has begun.
#[derive(Debug)]
pub struct Watch {
    client: Client,
    state: WatchState,
}

impl Client {
    /// Watches the tasks of a queue, or of a group. The watch has begun when this returns: each task that ends from now on is reported,
    /// once as a rule, as long as [`Watch::next`] is called again within a minute. That tasks become ready or are claimed is reported
    /// as the leaders see it, and may be missed when leaders change.
    ///
    /// ```no_run
    /// # async fn example(client: norn_client::client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use norn_client::session::WatchNews;
    /// use norn_client::wire::{QueueName, Subject};
    /// let mut watch = client.watch(Subject::Queue(QueueName::new("mail")?)).await?;
    /// loop {
    ///     match watch.next().await? {
    ///         WatchNews::Event(event) => println!("{} is {}", event.id, event.state),
    ///         WatchNews::Lagged => println!("something may have been missed: list what is there"),
    ///         WatchNews::Silent(partitions) => println!("nothing can be told of {partitions} partitions now"),
    ///     }
    /// }
    /// # }
    /// ```
    pub async fn watch(&self, subject: Subject) -> Result<Watch, Error> {
        let mut watch = Watch { client: self.clone(), state: WatchState::new(subject) };
        watch.ask(0).await?;
        Ok(watch)
    }
}

impl Watch {
    /// The next item. After an error it can be called again, and continues where it was. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<WatchNews, Error> {
        loop {
            if let Some(news) = self.state.take_news() {
                return Ok(news);
            }
            self.ask(CALL_MS).await?;
        }
    }

    async fn ask(&mut self, wait_ms: u64) -> Result<(), Error> {
        match self.client.request(self.state.request(wait_ms)).await? {
            Response::Watched(watched) => self.state.take(watched),
            _ => return unexpected("watch"),
        }
        Ok(())
    }
}
