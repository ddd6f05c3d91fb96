//! The typed async API that an application uses.
//!
//! ```no_run
//! use norn_client::client::{ClaimOptions, Client, ClientConfig, CompleteOptions};
//! use norn_client::session::Draft;
//! use norn_client::wire::QueueName;
//! use std::time::Duration;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let config = ClientConfig::new(["localhost:7400", "localhost:7401"], "ca.pem", "client.pem", "client.key");
//! let client = Client::connect(config).await?;
//! let mail = QueueName::new("mail")?;
//! let task = client.enqueue(Draft::new(mail.clone(), "hello").priority(5)).await?;
//! println!("{} is on {} disks", task.id, task.acks);
//! let claims = client.claim(ClaimOptions::new([mail]).wait(Duration::from_secs(10))).await?;
//! for claimed in claims.tasks {
//!     let done = CompleteOptions::new(claimed.granted.id, claimed.granted.token).result("sent");
//!     client.complete(done).await?;
//! }
//! # Ok(())
//! # }
//! ```

mod answers;
#[doc(hidden)]
pub mod calling;
#[doc(hidden)]
pub mod cancelling;
#[doc(hidden)]
pub mod choosing;
#[doc(hidden)]
pub mod cluster;
#[doc(hidden)]
pub mod completing;
mod config;
#[doc(hidden)]
pub mod explaining;
mod groups;
#[doc(hidden)]
pub mod joining;
#[doc(hidden)]
pub mod letters;
mod listing;
mod options;
mod reading;
#[doc(hidden)]
pub mod redriving;
mod schedules;
#[doc(hidden)]
pub mod sessions;
#[cfg(test)]
mod tests;
#[doc(hidden)]
pub mod text_ids;
mod transactions;
#[doc(hidden)]
pub mod walk;
mod watching;
#[doc(hidden)]
pub mod why;

use crate::connection::{Answer, Dialer, Handle};
use crate::endpoint::endpoint;
use crate::local::LocalNode;
use crate::session::{Call, Config, CopyId, Draft, Finish, LentIds};
use crate::tls::{self, CertificateFiles, Outgoing, Renewal};
use answers::{acked, batches, expiry, finish, finish_bytes, millis, one, spread, unexpected};
use norn_wire::Versions;
use norn_wire::address::{Address, parse_address};
use norn_wire::error::Error;
use norn_wire::ids::{QueueName, TaskId, Token};
use norn_wire::limits;
use norn_wire::request::{Acks, Request};
use norn_wire::response::{Acked, Granted, Response};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use choosing::Chosen;
pub use config::{ClientConfig, ConnectError};
pub use groups::GroupMember;
pub use letters::{LetterOptions, Letters, SentBack};
pub use listing::{ListOptions, Listing};
pub use options::{ClaimOptions, CompleteOptions, FailOptions};
pub use redriving::{Existing, RedriveOptions, Redriven, Redriving};
pub use sessions::WorkerSession;
pub use transactions::TransactError;
pub use watching::Watch;
pub use why::{Cause, WHY_TASKS_MAX, Why};

/// A task that this client has claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// The task and its fencing token.
    pub granted: Granted,
    /// Time by which work on the task must have stopped, unless the claim is renewed. Counts from when the call was first sent, or from
    /// the renewal of its result. It leaves a thousandth for differences in clock speed, so that it comes before the cluster's end of
    /// the lease.
    pub expires: Instant,
}

/// Result of a claim call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claims {
    /// The tasks, at most as many as asked for.
    pub tasks: Vec<Claimed>,
    /// Number of partitions that could not be asked; 0 means that the answer is complete.
    pub unavailable: u32,
}

/// A connection to a cluster. Clones share it; it ends with the last clone.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    handle: Handle,
    /// Timeout of a call that names none.
    request_timeout: Duration,
    origin: Origin,
}

/// What a client was made from.
enum Origin {
    /// Addresses and certificates, for clients of single nodes.
    Network(Box<(ClientConfig, Renewal)>),
    /// The node of this process.
    Local,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Client").field("request_timeout", &self.shared.request_timeout).finish_non_exhaustive()
    }
}

/// Longest time that a node lets a claim wait.
const WAIT_ONCE_MAX: Duration = Duration::from_millis(limits::WAIT_MS_MAX);
/// Lease of a claim that names none, at a queue without a lease setting.
const LEASE_DEFAULT: Duration = Duration::from_millis(limits::LEASE_MS_DEFAULT);
/// Lease of a claim under a session that names none.
const LEASE_MAX: Duration = Duration::from_millis(limits::LEASE_MS_MAX);
/// Pause when a node answers a long poll before its time.
const EARLY_PAUSE: Duration = Duration::from_millis(50);

impl Client {
    /// Reads the certificates and opens a socket. Does not wait for a node: the first call does. The certificates are read again for
    /// each connection, so that new ones are used as soon as the three files match.
    pub async fn connect(config: ClientConfig) -> Result<Client, ConnectError> {
        Client::connect_by(config, None).await
    }

    /// As [`Client::connect`], with certificate files that have been read already, instead of those that the configuration names: input
    /// from a pipe can be read only once.
    pub async fn connect_with(config: ClientConfig, certificates: Renewal) -> Result<Client, ConnectError> {
        Client::connect_by(config, Some(certificates)).await
    }

    /// A client of the node at one address alone, with the same certificates, name and timeouts. For what a node reports about itself,
    /// such as its counters, or does by itself.
    ///
    /// ```no_run
    /// # async fn example(client: norn_client::client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// for member in client.nodes().await? {
    ///     let counters = client.node(&member.address).await?.status().await?.counters;
    ///     println!("{}: {counters:?}", member.name);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn node(&self, address: impl Into<String>) -> Result<Client, ConnectError> {
        let Origin::Network(origin) = &self.shared.origin else { return Err(ConnectError::Local) };
        let (config, certificates) = &**origin;
        let config = ClientConfig { addresses: vec![address.into()], ..config.clone() };
        Client::connect_by(config, Some(certificates.clone())).await
    }

    /// A client of the node of the same process, under this name. A call has this timeout with all its retries, unless it names its own.
    pub fn local(node: LocalNode, name: impl Into<String>, request_timeout: Duration) -> Client {
        // The name is for messages alone; it is never resolved.
        let address = Address { host: "local".to_owned(), port: 1 };
        let session = Config { name: name.into(), ..Config::default() };
        let handle = Handle::start(Dialer::Local(node), vec![address], session, rand::random());
        Client { shared: Arc::new(Shared { handle, request_timeout, origin: Origin::Local }) }
    }

    async fn connect_by(config: ClientConfig, certificates: Option<Renewal>) -> Result<Client, ConnectError> {
        if config.addresses.is_empty() {
            return Err(ConnectError::NoAddress);
        }
        let parse = |text: &String| parse_address(text).ok_or_else(|| ConnectError::Address(text.clone()));
        let addresses = config.addresses.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        let ClientConfig { ca: authority, certificate, key, .. } = config.clone();
        let files = CertificateFiles { authority, certificate, key };
        let certificates = certificates.map_or_else(|| Renewal::now(files), Ok)?;
        let outgoing = Outgoing::with(certificates.clone(), |own| tls::transport(own.client(Versions::SPOKEN)?))?;
        let endpoint = endpoint(tls::socket()?, None)?;
        let unreached_ms_max = config.unreached_timeout.map(millis);
        let session = Config { name: config.name.clone(), unreached_ms_max, ..Config::default() };
        let handle = Handle::start(Dialer::quic(endpoint, outgoing), addresses, session, rand::random());
        let request_timeout = config.request_timeout;
        let origin = Origin::Network(Box::new((config, certificates)));
        Ok(Client { shared: Arc::new(Shared { handle, request_timeout, origin }) })
    }

    /// Makes any call. `timeout` bounds it with all its retries; absent, it is the configuration's. The time that a `claim` or `wait`
    /// waits on purpose comes on top of it. A client that no node has served yet does not wait if each node refuses its certificate, or
    /// has no cluster. Dropping the future abandons the call: a request that was sent may still take effect.
    ///
    /// ```no_run
    /// # async fn example(client: norn_client::client::Client) -> Result<(), norn_client::wire::Error> {
    /// use norn_client::session::Call;
    /// use norn_client::wire::Request;
    /// let nodes = client.call(Call::Request(Request::Nodes), None).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn call(&self, body: Call, timeout: Option<Duration>) -> Result<Response, Error> {
        self.answer(body, timeout).await.result
    }

    /// As [`Client::call`], with the time from which the leases in the answer count. For the command line.
    #[doc(hidden)]
    pub async fn call_for_lease(
        &self,
        call: Call,
        timeout: Option<Duration>,
    ) -> (Result<Response, Error>, Option<Instant>) {
        let answer = self.answer(call, timeout).await;
        (answer.result, answer.lease_from)
    }

    async fn answer(&self, body: Call, timeout: Option<Duration>) -> Answer {
        let wait_ms = match &body {
            Call::Request(Request::Claim(claim)) => claim.wait_ms,
            Call::Request(Request::Wait { timeout_ms, .. }) => *timeout_ms,
            Call::Request(Request::Watch { wait_ms, .. }) => *wait_ms,
            Call::Request(_)
            | Call::Enqueue { .. }
            | Call::EnqueueUnique { .. }
            | Call::Transact { .. }
            | Call::Complete { .. }
            | Call::Redrive { .. }
            | Call::LendIds { .. } => 0,
        };
        let wait = Duration::from_millis(wait_ms.min(limits::WAIT_MS_MAX));
        let timeout = timeout.unwrap_or(self.shared.request_timeout).saturating_add(wait);
        // A timeout beyond the range of the clock is cut to a year.
        let now = Instant::now();
        let deadline = now.checked_add(timeout).unwrap_or(now + Duration::from_secs(365 * 86_400));
        self.shared.handle.call(body, deadline).await
    }

    async fn request(&self, request: Request) -> Result<Response, Error> {
        self.call(Call::Request(request), None).await
    }

    /// Why no node is connected: each address with its failure. Absent while a node is connected.
    pub fn unreached(&self) -> Option<String> {
        self.shared.handle.unreached()
    }

    /// Closes the connections and waits until the nodes know. Open calls of all clones fail; writes that may have been sent fail as
    /// `unknown`. Tasks that a claim was granted and its caller did not get go back.
    pub async fn close(&self) {
        self.shared.handle.close().await;
    }

    /// Stores a task on a majority of its replicas.
    pub async fn enqueue(&self, draft: Draft) -> Result<Acked, Error> {
        self.enqueue_with(draft, Acks::Quorum).await
    }

    /// Stores a task. After an `unknown` outcome, repeat it with the error's id in [`Draft::id`].
    ///
    /// ```no_run
    /// # async fn example(client: norn_client::client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use norn_client::session::Draft;
    /// use norn_client::wire::{Acks, ErrorCode, QueueName};
    /// let draft = Draft::new(QueueName::new("mail")?, "hello");
    /// match client.enqueue_with(draft.clone(), Acks::All).await {
    ///     Err(error) if error.code == ErrorCode::Unknown => {
    ///         let again = error.id.into_iter().fold(draft, Draft::id);
    ///         client.enqueue_with(again, Acks::All).await?
    ///     }
    ///     other => other?,
    /// };
    /// # Ok(())
    /// # }
    /// ```
    pub async fn enqueue_with(&self, draft: Draft, acks: Acks) -> Result<Acked, Error> {
        let call = Call::Enqueue { drafts: vec![draft], acks };
        one(acked(self.answer(call, None).await, "enqueue"))
    }

    /// Lends ids, for tasks to be enqueued under them with [`Draft::id`]: from 1 to 1,000, in increasing order. A task enqueued under the
    /// same id several times is stored once. Waits, as long as the client's timeout, until a node has lent this client a part of the ids.
    ///
    /// An id that is not used soon may be refused as [`ErrorCode::TooOld`]. For a task with a key, replace its tag by the key's:
    /// [`TaskId::with_tag`] and [`Spec::tag`].
    ///
    /// ```no_run
    /// # async fn example(client: norn_client::client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use norn_client::session::Draft;
    /// use norn_client::wire::QueueName;
    /// let mail = QueueName::new("mail")?;
    /// for id in client.lend_ids(3).await? {
    ///     client.enqueue(Draft::new(mail.clone(), "hello").id(id)).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [`ErrorCode::TooOld`]: norn_wire::ErrorCode::TooOld
    /// [`Spec::tag`]: norn_wire::Spec::tag
    pub async fn lend_ids(&self, count: u32) -> Result<Vec<TaskId>, Error> {
        let ids = LentIds::default();
        match self.call(Call::LendIds { count, ids: ids.clone() }, None).await? {
            Response::Done => Ok(ids.get().to_vec()),
            _ => unexpected("lend ids"),
        }
    }

    /// Stores a task with a key on a majority of its replicas, unless its queue has a task with this key that has not ended. Returns
    /// the task that exists, and whether it existed before. After an `unknown` outcome, repeat it with the error's id in [`Draft::id`].
    ///
    /// ```no_run
    /// # async fn example(client: norn_client::client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use norn_client::session::Draft;
    /// use norn_client::wire::QueueName;
    /// let draft = Draft::new(QueueName::new("reindex")?, "all of it").key("customer-17");
    /// let (task, existing) = client.enqueue_unique(draft).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn enqueue_unique(&self, draft: Draft) -> Result<(Acked, bool), Error> {
        match self.call(Call::EnqueueUnique { draft: Box::new(draft) }, None).await? {
            Response::AckedUnique { acked, existing } => Ok((acked, existing)),
            _ => unexpected("enqueue"),
        }
    }

    /// Stores a task as [`Client::enqueue_with`] does, if all tasks that it waits for ([`Draft::after`]) are known now. Otherwise the
    /// error is [`ErrorCode::NotFound`] with the id of the first unknown task, and nothing is stored.
    ///
    /// [`ErrorCode::NotFound`]: norn_wire::ErrorCode::NotFound
    pub async fn enqueue_after_known(&self, draft: Draft, acks: Acks) -> Result<Acked, Error> {
        for id in &draft.spec.after {
            self.get(*id).await.map_err(|error| error.about(*id))?;
        }
        self.enqueue_with(draft, acks).await
    }

    /// Stores many tasks, in batches as large as allowed, one after the other. Returns one result for each, in order.
    ///
    /// ```no_run
    /// # async fn example(client: norn_client::client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use norn_client::session::Draft;
    /// use norn_client::wire::{Acks, QueueName};
    /// let mail = QueueName::new("mail")?;
    /// let drafts = (0..1000).map(|number| Draft::new(mail.clone(), format!("letter {number}"))).collect();
    /// for result in client.enqueue_many(drafts, Acks::Quorum).await {
    ///     result?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn enqueue_many(&self, drafts: Vec<Draft>, acks: Acks) -> Vec<Result<Acked, Error>> {
        let mut results = Vec::with_capacity(drafts.len());
        for drafts in batches(drafts, |draft| draft.spec.payload.len()) {
            let count = drafts.len();
            let answer = self.answer(Call::Enqueue { drafts, acks }, None).await;
            results.extend(spread(acked(answer, "enqueue"), count));
        }
        results
    }

    /// Claims tasks to work on; waits for them as the options say.
    ///
    /// The caller holds the tasks once this returns. Dropping the future before that gives them back: the tasks granted meanwhile
    /// become claimable again. If the call waited for a large part of the lease, the claims are renewed first, so that the caller gets
    /// the whole of it.
    pub async fn claim(&self, options: ClaimOptions) -> Result<Claims, Error> {
        let (started, wait) = (Instant::now(), options.wait);
        loop {
            let wait_once = wait.saturating_sub(started.elapsed()).min(WAIT_ONCE_MAX);
            let claims = self.claim_once(&options, wait_once).await?;
            let waited = started.elapsed();
            if !claims.tasks.is_empty() || waited >= wait {
                return Ok(claims);
            }
            // A node that is stopping answers early, so that no client waits long for it.
            tokio::time::sleep(EARLY_PAUSE.min(wait - waited)).await;
        }
    }

    async fn claim_once(&self, options: &ClaimOptions, wait: Duration) -> Result<Claims, Error> {
        let answer = self.answer(Call::Request(Request::Claim(options.claim(wait))), options.timeout).await;
        match answer.result? {
            Response::Claimed { tasks, unavailable, .. } => {
                let claimed = |granted: Granted| {
                    let expires = expiry(answer.lease_from, granted.lease_ms);
                    Claimed { granted, expires }
                };
                Ok(Claims { tasks: tasks.into_iter().map(claimed).collect(), unavailable })
            }
            _ => unexpected("claim"),
        }
    }

    /// Renews a claim, by default for the length of its lease. Returns its new end.
    ///
    /// ```no_run
    /// # async fn example(
    /// #     client: norn_client::client::Client,
    /// #     claimed: norn_client::client::Claimed,
    /// # ) -> Result<(), norn_client::wire::Error> {
    /// let expires = client.renew(claimed.granted.id, claimed.granted.token, None).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn renew(&self, id: TaskId, token: Token, lease: Option<Duration>) -> Result<Instant, Error> {
        one(Ok(self.renew_many(vec![(id, token)], lease).await))
    }

    /// Renews claims. Returns one result for each, in order.
    pub async fn renew_many(
        &self,
        items: Vec<(TaskId, Token)>,
        lease: Option<Duration>,
    ) -> Vec<Result<Instant, Error>> {
        self.renew_within(items, lease, None).await
    }

    pub(crate) async fn renew_within(
        &self,
        items: Vec<(TaskId, Token)>,
        lease: Option<Duration>,
        timeout: Option<Duration>,
    ) -> Vec<Result<Instant, Error>> {
        let mut results = Vec::with_capacity(items.len());
        for items in batches(items, |_| 0) {
            let count = items.len();
            let call = Call::Request(Request::Renew { items, lease_ms: lease.map(millis) });
            let answer = self.answer(call, timeout).await;
            let renewed = match answer.result {
                Ok(Response::Renewed(items)) => Ok(items),
                Ok(_) => unexpected("renew"),
                Err(error) => Err(error),
            };
            let expires = |item: Result<u64, Error>| item.map(|lease_ms| expiry(answer.lease_from, lease_ms));
            results.extend(spread(renewed, count).into_iter().map(expires));
        }
        results
    }

    /// Adds an entry to a claim's log. The first has number 0, and only entries without a gap before them are visible.
    pub async fn update(
        &self,
        id: TaskId,
        token: Token,
        sequence: u32,
        data: impl Into<Vec<u8>>,
        acks: Acks,
    ) -> Result<Acked, Error> {
        match self.request(Request::Update { id, token, sequence, data: data.into(), acks }).await? {
            Response::AckedOne(acked) => Ok(acked),
            _ => unexpected("update"),
        }
    }

    /// Ends a task as done, and with it enqueues the tasks of [`CompleteOptions::then`].
    pub async fn complete(&self, options: CompleteOptions) -> Result<Acked, Error> {
        let acks = options.acks;
        let call = Call::Complete { items: vec![finish(options)], acks };
        one(acked(self.answer(call, None).await, "complete"))
    }

    /// Ends tasks as done, all with the same durability. Returns one result for each, in order.
    pub async fn complete_many(&self, options: Vec<CompleteOptions>, acks: Acks) -> Vec<Result<Acked, Error>> {
        let mut results = Vec::with_capacity(options.len());
        let items: Vec<Finish> = options.into_iter().map(finish).collect();
        for items in batches(items, finish_bytes) {
            let count = items.len();
            let answer = self.answer(Call::Complete { items, acks }, None).await;
            results.extend(spread(acked(answer, "complete"), count));
        }
        results
    }

    /// Reports that an attempt has failed: the task is claimable again after a while, or never. Refused if the claim is over; a repeat
    /// of the call that ended it gets the same answer as the first.
    pub async fn fail(&self, options: FailOptions) -> Result<(), Error> {
        let FailOptions { id, token, reason, retry_in, invalid } = options;
        let (retry_in_ms, retry_open) = (retry_in.map_or(0, millis), retry_in.is_none());
        let request = Request::Fail { id, token, reason, retry_in_ms, invalid, retry_open };
        match self.request(request).await? {
            Response::Done => Ok(()),
            _ => unexpected("fail"),
        }
    }

    /// Releases a claim; the task can be claimed again at once. Refused if the claim is over, as [`Client::fail`] is.
    pub async fn release(&self, id: TaskId, token: Token) -> Result<(), Error> {
        match self.request(Request::Release { id, token }).await? {
            Response::Done => Ok(()),
            _ => unexpected("release"),
        }
    }

    /// Enqueues a dead task again, in another queue than its own if one is given. The acknowledgement is for the copy, under its own
    /// id. If the task was redriven before or has a letter, that is the copy; [`Client::redrive_once`] reports which. An error of code
    /// `unknown` names the copy that may exist: [`Client::redrive_as`] repeats the call for it.
    pub async fn redrive(&self, id: TaskId, queue: Option<QueueName>, acks: Acks) -> Result<Acked, Error> {
        redriving::redrive(self, id, &CopyId::default(), queue, acks).await
    }

    /// Repeats a [`Client::redrive`] or [`Client::redrive_once`] whose outcome was unknown, under the id of the copy that the error
    /// names: however often it is repeated, there is one copy.
    pub async fn redrive_as(
        &self,
        id: TaskId,
        copy: TaskId,
        queue: Option<QueueName>,
        acks: Acks,
    ) -> Result<Acked, Error> {
        redriving::redrive(self, id, &copy.into(), queue, acks).await
    }

    /// Deletes an ended task with its payload, its result and its log, as if its retention were over. It may be shown until its leader
    /// has replaced it by a tombstone. A task that has not ended is refused as [`ErrorCode::Invalid`]: cancel it first.
    ///
    /// [`ErrorCode::Invalid`]: norn_wire::ErrorCode::Invalid
    pub async fn purge(&self, id: TaskId, acks: Acks) -> Result<Acked, Error> {
        match self.request(Request::Purge { id, acks, state: None }).await? {
            Response::AckedOne(acked) => Ok(acked),
            _ => unexpected("purge"),
        }
    }
}
