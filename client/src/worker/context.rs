//! A claim held by a worker, and the context that its handler gets.

use super::deadline::{Deadline, Limits};
use crate::client::{Claimed, Client, GroupMember, WorkerSession};
use crate::session::Draft;
use norn_wire::error::{Error, ErrorCode};
use norn_wire::group::{GroupView, MemberOf};
use norn_wire::ids::{QueueName, TaskId, Token};
use norn_wire::limits;
use norn_wire::request::Acks;
use norn_wire::response::{Granted, LogEntry};
use norn_wire::text_id::TextId;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Pause before a report is repeated whose call has failed.
pub(super) const REPORT_PAUSE: Duration = Duration::from_millis(100);
/// Longest such pause, whatever the node asks for: the lease goes on meanwhile.
const REPORT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Pause before a report is repeated.
pub(super) fn report_pause(error: &Error) -> Duration {
    Duration::from_millis(error.after_ms.unwrap_or(0)).clamp(REPORT_PAUSE, REPORT_PAUSE_MAX)
}

/// Whether an error means that the claim is over.
pub(super) fn ends_claim(error: &Error) -> bool {
    matches!(error.code, ErrorCode::Superseded | ErrorCode::Ended | ErrorCode::NotFound)
}

/// The claim's log, as far as this claim has written it.
#[derive(Debug, Default)]
struct Log {
    /// Number of the next entry.
    next: u32,
    /// The entry of that number, if its outcome is unknown: no other entry may take its number.
    pending: Option<Vec<u8>>,
}

/// A held claim.
#[derive(Debug)]
pub(super) struct Held {
    pub id: TaskId,
    pub token: Token,
    lease: Duration,
    /// End of the lease; over early if the claim is lost or given up.
    expires: Deadline,
    renew_at: Mutex<Instant>,
    /// Its outcome is being reported. From here on only the report's own answer shows the result: a renewal may find the claim ended
    /// because the report was first.
    reporting: AtomicBool,
    /// The handler has ended after its time limit.
    overran: AtomicBool,
    /// No longer renewed because its handler did not end; to be reported as failed.
    given_up: AtomicBool,
    log: tokio::sync::Mutex<Log>,
    /// The worker session with which the claim ends.
    session: Option<Arc<Held>>,
}

impl Held {
    pub fn new(claimed: &Claimed, session: Option<Arc<Held>>) -> Held {
        let lease = Duration::from_millis(claimed.granted.lease_ms.min(limits::LEASE_MS_MAX));
        Held::until(claimed.granted.id, claimed.granted.token, lease, claimed.expires, session)
    }

    /// The claim of a session, which is a task, too.
    pub fn session(session: &WorkerSession) -> Held {
        Held::until(session.id(), session.token(), session.ttl(), session.expires(), None)
    }

    fn until(id: TaskId, token: Token, lease: Duration, expires: Instant, session: Option<Arc<Held>>) -> Held {
        let held = Held {
            id,
            token,
            lease,
            expires: Deadline::new(expires),
            renew_at: Mutex::new(expires),
            reporting: AtomicBool::new(false),
            overran: AtomicBool::new(false),
            given_up: AtomicBool::new(false),
            log: tokio::sync::Mutex::default(),
            session,
        };
        held.plan_renewal(expires, lease);
        held
    }

    /// Plans the next renewal for a third of the lease after its begin, so that two renewals may fail before the lease is lost.
    fn plan_renewal(&self, expires: Instant, lease: Duration) {
        let at = expires.checked_sub(lease * 2 / 3).unwrap_or(expires);
        *self.renew_at.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    pub fn renew_at(&self) -> Instant {
        *self.renew_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Timeout of a renewal: short enough to leave time for the next.
    pub fn renewal_timeout(&self) -> Duration {
        self.lease / 4
    }

    pub fn renewed(&self, result: Result<Instant, Error>) {
        match result {
            Ok(expires) => {
                self.expires.put_off(expires);
                // Another renewal, for longer, may have been answered before this one.
                let expires = self.expires.at().unwrap_or(expires);
                // The queue may allow only a shorter lease by now.
                self.plan_renewal(expires, self.lease.min(expires.saturating_duration_since(Instant::now())));
            }
            Err(error) if ends_claim(&error) && !self.reporting.load(Ordering::Acquire) => self.lose(),
            Err(error) => {
                tracing::debug!(id = %self.id, token = %self.token, %error, "renewal failed");
                let pause = (self.lease / 20).min(Duration::from_secs(1));
                *self.renew_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + pause;
            }
        }
    }

    pub fn report_begins(&self) {
        self.reporting.store(true, Ordering::Release);
    }

    /// Whether the handler has ended, and its outcome is being reported.
    pub fn is_reporting(&self) -> bool {
        self.reporting.load(Ordering::Acquire)
    }

    pub fn lose(&self) {
        self.expires.end();
    }

    /// Stops renewing the lease, and returns when it ends, unless it is lost already. Concurrent work of the handler learns of it as of
    /// a loss.
    pub fn give_up(&self) -> Option<Instant> {
        let lease_ends = self.expires.end();
        self.given_up.store(lease_ends.is_some(), Ordering::Release);
        lease_ends
    }

    /// Whether the claim was given up before it was lost.
    pub fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }

    pub fn overrun(&self) {
        self.overran.store(true, Ordering::Release);
    }

    pub fn has_overrun(&self) -> bool {
        self.overran.load(Ordering::Acquire)
    }

    /// Whether the claim is lost or given up. It stays listed until its handler is stopped and that is reported, but is not renewed any
    /// more.
    pub fn is_lost(&self) -> bool {
        self.expires.is_over() || self.session.as_ref().is_some_and(|session| session.is_lost())
    }

    /// Ready once the lease or its session is lost: by the local clock, or because a node said so.
    pub async fn lost(&self) {
        tokio::select! {
            () = self.expires.over() => {}
            () = self.session_lost() => {}
        }
    }

    /// Ready once the session is lost; never without a session.
    pub async fn session_lost(&self) {
        match &self.session {
            None => std::future::pending().await,
            Some(session) => session.expires.over().await,
        }
    }

    /// Writes an entry, after any earlier entry of unknown outcome; repeats until the outcome is known.
    async fn write(&self, client: &Client, data: Option<Vec<u8>>) -> Result<u32, Error> {
        let mut log = self.log.lock().await;
        if log.pending.is_some() {
            self.write_pending(client, &mut log).await?;
        }
        if data.is_some() {
            log.pending = data;
            self.write_pending(client, &mut log).await?;
        }
        Ok(log.next)
    }

    async fn write_pending(&self, client: &Client, log: &mut Log) -> Result<(), Error> {
        let data = log.pending.clone().expect("there is one to write");
        loop {
            match client.update(self.id, self.token, log.next, data.clone(), Acks::Quorum).await {
                Ok(_) => {
                    log.pending = None;
                    log.next += 1;
                    return Ok(());
                }
                Err(error) if error.passes() => tokio::time::sleep(report_pause(&error)).await,
                Err(error) => {
                    // Refused: its number is still free.
                    log.pending = None;
                    if ends_claim(&error) {
                        self.lose();
                    }
                    return Err(error);
                }
            }
        }
    }

    /// Number of entries of this claim, once none has an unknown outcome.
    pub async fn sequence(&self, client: &Client) -> Result<u32, Error> {
        self.write(client, None).await
    }
}

fn is_join(draft: &Draft) -> bool {
    draft.spec.grouping.as_ref().is_some_and(|grouping| grouping.join.is_some())
}

/// What a handler works with: its task, its claim and the client. Clones are of the same claim.
#[derive(Debug, Clone)]
pub struct Context {
    pub(super) client: Client,
    pub(super) granted: Arc<Granted>,
    pub(super) held: Arc<Held>,
    pub(super) limits: Arc<Limits>,
    pub(super) children: Arc<Mutex<Vec<Draft>>>,
}

impl Context {
    /// The task as it was claimed.
    pub fn task(&self) -> &Granted {
        &self.granted
    }

    /// Id of the task, the same in all attempts: the idempotency key of effects on outside systems.
    pub fn id(&self) -> TaskId {
        self.granted.id
    }

    /// [Text id](norn_wire::TextId) of the task, if it was enqueued under one.
    pub fn text_id(&self) -> Option<TextId> {
        self.granted.text_id()
    }

    /// Fencing token: send it with every effect on an outside system, which then refuses lower ones. It stops late writers, not
    /// repeats; for these the outside system needs the [id](Context::id).
    pub fn token(&self) -> Token {
        self.granted.token
    }

    /// Queue of the task.
    pub fn queue(&self) -> &QueueName {
        &self.granted.queue
    }

    /// Payload: opaque bytes, as enqueued.
    pub fn payload(&self) -> &[u8] {
        &self.granted.payload
    }

    /// Value of a header, if the task has one of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.granted.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Number of attempts so far: claims that failed or expired, and this one. A claim that was released is no attempt.
    pub fn attempt(&self) -> u32 {
        self.granted.attempt
    }

    /// Logs of earlier claims, as far as the leader's replica knows them: where to continue. A checkpoint that a majority has
    /// acknowledged may be missing; [`Client::get`] asks a majority. See [`Granted::updates`](norn_wire::Granted::updates).
    pub fn updates(&self) -> &[LogEntry] {
        &self.granted.updates
    }

    /// The client, for further calls.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Reports progress: the worker's [progress limit](super::Worker::progress_limit) counts from now. A checkpoint and
    /// [`Context::renew`] report it as well. This sends nothing, and does not put the [time limit](super::Worker::time_limit) off.
    ///
    /// Returns false once the claim is over, at a limit or by the loss of its lease: stop all work on it. A handler is dropped then, so
    /// this is for work outside its future, such as on a blocking thread.
    ///
    /// ```no_run
    /// # use norn_client::worker::{Context, Outcome};
    /// # fn convert(_: usize) {}
    /// async fn film(context: Context) -> Outcome {
    ///     let beside = context.clone();
    ///     let all = move || (0..100_000).all(|frame| {
    ///         convert(frame);
    ///         beside.progress()
    ///     });
    ///     match tokio::task::spawn_blocking(all).await {
    ///         Ok(true) => Outcome::Done(None),
    ///         _ => Outcome::Retry { reason: "not all frames".into() },
    ///     }
    /// }
    /// ```
    pub fn progress(&self) -> bool {
        !self.held.is_lost() && self.limits.progress()
    }

    /// Renews the lease for a length of the handler's own choice, from now. Returns when the lease ends, by this machine's clock. The
    /// worker renews all leases by itself; this is for a step that must not lose the lease although its renewals may fail meanwhile,
    /// as while the step blocks all threads of the runtime.
    ///
    /// A renewal never shortens the lease, and the queue's `lease-max` bounds it. From then on this is the length of the claim: the
    /// worker's own renewals, which begin again shortly before the end of this one, prolong the lease by as much. If the worker dies,
    /// the task is claimable when this lease has ended.
    ///
    /// It reports [progress](Context::progress), and the handler is not stopped for want of progress before the end of this lease. The
    /// [time limit](super::Worker::time_limit) stays. An error leaves the lease as it was, unless the claim is over
    /// ([`ErrorCode::Superseded`], [`ErrorCode::Ended`]).
    ///
    /// ```no_run
    /// # async fn example(context: norn_client::worker::Context) -> Result<(), norn_client::wire::Error> {
    /// context.renew(std::time::Duration::from_secs(600)).await?;
    /// // ... a step of up to ten minutes ...
    /// # Ok(())
    /// # }
    /// ```
    pub async fn renew(&self, lease: Duration) -> Result<Instant, Error> {
        let held = &self.held;
        if held.is_lost() || self.limits.passed().is_some() {
            let message = "the claim is over: its lease is lost, or a limit of the handler has passed";
            return Err(Error::new(ErrorCode::Ended, message).about(held.id));
        }
        let renewed = self.client.renew(held.id, held.token, Some(lease)).await;
        match &renewed {
            Ok(expires) => {
                held.renewed(Ok(*expires));
                self.limits.progress_until(*expires);
            }
            Err(error) if ends_claim(error) => held.renewed(Err(error.clone())),
            Err(_) => {}
        }
        renewed
    }

    /// Adds an entry to the claim's log, on a majority of disks. Returns how many entries the claim has now. Repeats until the outcome
    /// is known, or the lease is lost and the handler with it. An entry whose call was dropped may still have been written, and is
    /// written before the next. An entry that is acknowledged reports [progress](Context::progress).
    ///
    /// ```no_run
    /// # async fn example(context: norn_client::worker::Context) -> Result<(), norn_client::wire::Error> {
    /// let done = context.updates().len();
    /// for part in done..10 {
    ///     // ... the work of one part ...
    ///     context.checkpoint(format!("part {part}")).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn checkpoint(&self, data: impl Into<Vec<u8>>) -> Result<u32, Error> {
        let entries = self.held.write(&self.client, Some(data.into())).await?;
        self.progress();
        Ok(entries)
    }

    /// Adds a task that is enqueued when the handler returns [`Outcome::Done`](super::Outcome::Done), together with the completion: all
    /// added tasks, or none. With any other outcome, or if the lease is lost, they are dropped.
    ///
    /// If several claims of one task each end in a completion, as after a lost lease, each enqueues its own tasks.
    ///
    /// ```no_run
    /// use norn_client::session::Draft;
    /// use norn_client::wire::QueueName;
    /// # use norn_client::worker::{Context, Outcome};
    /// async fn order(context: Context) -> Outcome {
    ///     // ... the work ...
    ///     let invoices = QueueName::new("invoices").expect("a good name");
    ///     context.spawn(Draft::new(invoices, context.payload()));
    ///     Outcome::Done(None)
    /// }
    /// ```
    pub fn spawn(&self, child: Draft) {
        self.children.lock().unwrap_or_else(PoisonError::into_inner).push(child);
    }

    /// Group and number of the task, if it is a member of a group.
    pub fn member_of(&self) -> Option<MemberOf> {
        self.granted.grouping.as_ref()?.member
    }

    /// For the join of a group: the number of members, and how many of them failed.
    pub fn group(&self) -> Option<GroupView> {
        self.granted.group
    }

    /// For the join of a group: its members, in the order of their numbers, with their states and results. All of them have ended.
    pub async fn members(&self) -> Result<Vec<GroupMember>, Error> {
        self.client.members(self.id()).await
    }

    /// Adds a group that is enqueued with the completion, as [`Context::spawn`] adds a task: its members, numbered from 1 in this
    /// order, and its join. If this task is itself a member of a group, the join of that group also waits for the new join.
    ///
    /// A completion brings one group, and at most [99 members](limits::CHILDREN_MAX) with the join, other tasks included. For more, let
    /// members bring groups in turn.
    ///
    /// ```no_run
    /// use norn_client::session::Draft;
    /// use norn_client::wire::QueueName;
    /// # use norn_client::worker::{Context, Outcome};
    /// async fn chapter(context: Context) -> Outcome {
    ///     let (pages, chapters) = (QueueName::new("pages").expect("a name"), QueueName::new("chapters").expect("a name"));
    ///     let members = (1..=20).map(|page| Draft::new(pages.clone(), format!("page {page}"))).collect();
    ///     match context.spawn_group(Draft::new(chapters, context.payload()), members) {
    ///         Ok(()) => Outcome::Done(None),
    ///         Err(error) => Outcome::Invalid { reason: error.to_string() },
    ///     }
    /// }
    /// ```
    pub fn spawn_group(&self, join: Draft, members: Vec<Draft>) -> Result<(), Error> {
        let mut children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        if children.iter().any(is_join) {
            return Err(Error::invalid("a completion brings one group; have a member of it bring the next one"));
        }
        let (count, room) = (members.len(), limits::CHILDREN_MAX.saturating_sub(children.len() + 1));
        if count > room {
            return Err(Error::invalid(format!(
                "a group of {count} with a completion that has room for {room}; have its members bring groups in turn"
            )));
        }
        let told = join.spec.grouping.as_ref().and_then(|grouping| grouping.join).unwrap_or_default();
        // The count fits: it is bounded by the limit of children.
        let count = count as u32;
        let total = told.total.unwrap_or(count);
        if total < count {
            return Err(Error::invalid(format!("a group of {count} whose join says that there are {total}")));
        }
        let members = (1..).zip(members).map(|(number, member)| member.member_of(TaskId::MIN, number));
        children.extend(members.chain([join.join(Some(total), told.fail_fast)]));
        Ok(())
    }

    /// Ready once the lease is lost, or given up at a limit of the handler. The handler's own future is dropped then; this is for
    /// concurrent work that it started.
    ///
    /// ```no_run
    /// # use norn_client::worker::{Context, Outcome};
    /// async fn handler(context: Context) -> Outcome {
    ///     let watch = context.clone();
    ///     tokio::spawn(async move {
    ///         watch.lease_lost().await;
    ///         // ... stop an outside process ...
    ///     });
    ///     Outcome::Done(None)
    /// }
    /// ```
    pub async fn lease_lost(&self) {
        self.held.lost().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // O40
    /// Goal: a lease that is renewed late is lost with one lost answer. Method: two renewals that take their whole timeout leave time for
    /// a third, for short leases and for long ones.
    #[tokio::test]
    async fn two_renewals_may_fail_before_a_lease_is_lost() {
        for lease in [300, 9_000, 3_600_000].map(Duration::from_millis) {
            let begins = Instant::now();
            let held = Held::until(TaskId::MIN, Token { epoch: 1, number: 1 }, lease, begins + lease, None);
            let first = held.renew_at().duration_since(begins);
            assert!(first > Duration::ZERO && first + 2 * held.renewal_timeout() < lease, "{lease:?}: after {first:?}");
        }
    }
}
