//! A durable store of tasks in the process of its application.
//!
//! It is one node of Norn, with the engine and the log of any other, but without sockets, certificates and other nodes. An application
//! uses it as it would use a cluster: through a [`Client`], with the same calls, guarantees and handlers.
//!
//! ```no_run
//! use norn_store::Store;
//! use norn_store::client::client::{ClaimOptions, CompleteOptions};
//! use norn_store::client::session::Draft;
//! use norn_store::client::wire::QueueName;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Store::open("tasks").await?;
//! let mail = QueueName::new("mail")?;
//! store.client().enqueue(Draft::new(mail.clone(), "hello")).await?;
//! for claimed in store.client().claim(ClaimOptions::new([mail])).await?.tasks {
//!     store.client().complete(CompleteOptions::new(claimed.granted.id, claimed.granted.token)).await?;
//! }
//! store.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! One process at a time holds a directory. A process that ends without [`Store::close`], or is killed, loses nothing that was
//! acknowledged. The directory can become the first node of a cluster: `node/docs/store.md` says how.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a host, with threads and clocks; the bans are the core's"
)]

mod options;
mod start;
#[cfg(test)]
mod tests;

pub use norn_client as client;
pub use norn_storage::SyncPolicy;
pub use options::StoreOptions;
pub use start::StoreError;

use norn_client::client::Client;
use norn_client::local::LocalNode;
use norn_host::clients::Clients;
use norn_host::driver::{Inputs, Internal};
use norn_host::log_thread::LogThread;
use norn_host::questions::OwnQuestions;
use norn_wire::{Request, Response};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Time limit for the node to stop at [`Store::close`].
const STOP_TIMEOUT: Duration = Duration::from_secs(3);
/// Why a store has stopped whose engine or log has panicked.
const PANICKED: &str = "the engine has panicked; standard error says where";
/// Time limit for delivering the last answers.
const LAST_ANSWERS_TIMEOUT: Duration = Duration::from_millis(500);

/// A store of tasks in this process.
///
/// If its disk fails, the store stops: open calls and later ones fail at once, with the reason, and nothing is acknowledged that may
/// not be on the disk. Open it again to learn what is there. Dropping it without [`Store::close`] is a crash, which is safe: calls
/// under way end as `unknown` where they may have taken effect.
#[derive(Debug)]
pub struct Store {
    client: Client,
    local: LocalNode,
    clients: Arc<Clients>,
    questions: Arc<OwnQuestions>,
    inputs: Inputs,
    /// The driver; absent once the store is closed.
    driver: Option<JoinHandle<LogThread>>,
    /// Watches for the end of the driver by itself.
    watching: JoinHandle<()>,
    /// The driver ends because the store is closed, and not by itself.
    closes: Arc<AtomicBool>,
    /// What else runs for it.
    tasks: Vec<JoinHandle<()>>,
    /// Why the store has stopped.
    ended: Arc<OnceLock<String>>,
}

impl Store {
    /// Opens the store in a directory, which is made if it is not there, with the default options.
    pub async fn open(directory: impl AsRef<Path>) -> Result<Store, StoreError> {
        Store::open_with(directory, StoreOptions::default()).await
    }

    /// Opens the store in a directory, which is made if it is not there. Reads the whole log, and returns once tasks can be claimed.
    pub async fn open_with(directory: impl AsRef<Path>, options: StoreOptions) -> Result<Store, StoreError> {
        start::open(directory.as_ref(), options).await
    }

    /// The store's client. Clones share it; a worker takes one.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Another client, under a name that `watch` and logs show. A call has this timeout with all its retries, unless it names its own.
    pub fn client_named(&self, name: &str, request_timeout: Duration) -> Client {
        let local = if name.is_empty() { self.local.clone() } else { self.local.on_behalf_of(name) };
        Client::local(local, name, request_timeout)
    }

    /// Makes a request of an operator, such as for the store's status. `None`: the store has stopped.
    pub async fn ask(&self, request: Request) -> Option<Response> {
        self.questions.ask(request).await
    }

    /// Why the store has stopped by itself. Absent while it runs.
    pub fn failure(&self) -> Option<&str> {
        self.ended.get().map(String::as_str)
    }

    /// Closes the store once all that was handed to its log is on the disk. Calls that are under way fail; writes that may have taken
    /// effect fail as `unknown`.
    pub async fn close(mut self) -> Result<(), StoreError> {
        self.client.close().await;
        let Some(mut driver) = self.driver.take() else { unreachable!("it is closed once") };
        self.closes.store(true, Ordering::Release);
        let _ = self.inputs.internal.send(Internal::Shutdown).await;
        let failed = |otherwise: &str| StoreError::Failed(self.failure().unwrap_or(otherwise).to_owned());
        let log = match tokio::time::timeout(STOP_TIMEOUT, &mut driver).await {
            Ok(Ok(log)) => log,
            Ok(Err(_)) => return Err(failed(PANICKED)),
            Err(_) => {
                driver.abort();
                return Err(failed("it did not stop in time; what is on the disk is whole"));
            }
        };
        let closed = tokio::task::spawn_blocking(move || log.close()).await;
        let _ = tokio::time::timeout(LAST_ANSWERS_TIMEOUT, self.clients.written()).await;
        closed.map_err(|_| failed(PANICKED))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.ended.set("the store was closed".to_owned());
        if let Some(driver) = self.driver.take() {
            driver.abort();
        }
        self.watching.abort();
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}
