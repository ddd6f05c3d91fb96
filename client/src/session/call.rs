//! One call: its body before and after its ids and times are fixed, its open items, and the meaning of an answer.

use super::id_generator::{IdGenerator, Minted, Needs, any_claim, any_tag};
use super::{Call, ChangeDraft, Draft, Finish, LentIds, TransactionDraft, ensure};
use norn_wire::error::{Cause, Error, ErrorCode, Retry};
use norn_wire::group::MemberOf;
use norn_wire::ids::{ClaimId, TaskId};
use norn_wire::limits;
use norn_wire::random::Random;
use norn_wire::request::{Acks, NewTask, Request};
use norn_wire::response::{Acked, Granted, Response};
use norn_wire::transaction::Transaction;

/// Stage of a call.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stage {
    /// To be sent as soon as a connection has room.
    Queued,
    /// To be sent again after a pause.
    Paused { until_us: u64 },
    /// Sent; to be sent again elsewhere if no answer comes before `until_us`.
    Sent { number: u64, endpoint: usize, until_us: u64 },
}

impl Stage {
    pub fn until_us(self) -> u64 {
        match self {
            Stage::Queued => u64::MAX,
            Stage::Paused { until_us } | Stage::Sent { until_us, .. } => until_us,
        }
    }
}

#[derive(Debug)]
enum Body {
    /// As submitted.
    Open(Call),
    /// As sent. Every attempt carries this, or those of its items that are still open.
    Settled(Request),
}

/// Results of the items of a batch.
#[derive(Debug)]
enum Items {
    /// The call is no batch.
    None,
    Acked(Vec<Option<Result<Acked, Error>>>),
    Renewed(Vec<Option<Result<u64, Error>>>),
}

/// Meaning of an answer for its call.
pub(super) enum Verdict {
    Done(Result<Response, Error>),
    Retry(Error),
    Ignore,
}

#[derive(Debug)]
pub(super) struct Pending {
    /// Position in the order of submission.
    pub order: u64,
    pub bytes: usize,
    pub needs: Needs,
    is_claim: bool,
    pub deadline_us: u64,
    pub stage: Stage,
    /// Time of the next timer: the deadline or the end of the stage.
    pub wake_us: u64,
    /// Attempts that may still be answered.
    pub numbers: Vec<u64>,
    pub first_sent_us: Option<u64>,
    /// Time from which the leases of its answer count, if later than the first sending.
    pub lease_from_us: Option<u64>,
    /// Tasks granted to a claim, while their confirmation is pending.
    pub granted: Vec<Granted>,
    /// Number of confirmations sent. A node that was sent one may hold its grants for good.
    pub confirmations: u32,
    /// The answer last confirmed was incomplete: the claim may hold more tasks than it names.
    pub is_unsure: bool,
    /// The application chose the claim's id, and may repeat the claim under it.
    named: bool,
    pub failures: u32,
    pub error_last: Option<Error>,
    /// Attempts sent...
    pub sent: u32,
    /// ...those that were answered...
    pub answered: u32,
    /// ...and those that stored nothing more, because the node refused them.
    turned_away: u32,
    /// The session's loan of ids when those of the call were fixed.
    minted: Option<Minted>,
    /// Some of these ids are ahead of the nodes' clocks.
    ids_ahead: bool,
    body: Body,
    items: Items,
}

/// Whether repeating the identical request can help. For `stale` the node has already waited, and `clock_ahead` passes only when the
/// clock has caught up.
pub(super) fn is_retryable(error: &Error) -> bool {
    error.passes() && !matches!(error.code, ErrorCode::Stale | ErrorCode::ClockAhead)
}

/// Whether a refusal concerns only its attempt: it is for the clock, the room, the age or the program of the node asked, not for the
/// content of the call.
fn is_of_the_attempt(error: &Error) -> bool {
    let is_of_the_call = matches!(
        error.code,
        ErrorCode::Invalid
            | ErrorCode::NotFound
            | ErrorCode::Conflict
            | ErrorCode::Superseded
            | ErrorCode::Ended
            | ErrorCode::Stale
            | ErrorCode::Unknown
    );
    !is_of_the_call && !is_retryable(error)
}

/// Turns the refusal of one attempt into `unknown`, because another attempt may have been taken. Keeps the refusal's advice on when to
/// try again.
fn doubt(error: &mut Error) {
    if matches!(error.code, ErrorCode::ClockAhead | ErrorCode::IdFromFuture) {
        error.cause = Some(Cause::IdAhead);
    }
    error.code = ErrorCode::Unknown;
    error.message = format!("another attempt may have been taken, and this one was refused: {}", error.message);
}

/// Whether an error was made by `doubt`, and no repeat helps.
fn is_doubted(error: &Error) -> bool {
    error.code == ErrorCode::Unknown && !error.passes()
}

/// The tasks of a request, one for each item of a batch.
fn ids(request: &Request) -> Vec<TaskId> {
    match request {
        Request::Enqueue { tasks, .. } => tasks.iter().map(|task| task.id).collect(),
        Request::EnqueueUnique { task } => vec![task.id],
        Request::Transact(transaction) => vec![transaction.id],
        Request::Complete { items, .. } => items.iter().map(|item| item.id).collect(),
        Request::Renew { items, .. } => items.iter().map(|(id, _)| *id).collect(),
        Request::CloseGroup { id, .. }
        | Request::Update { id, .. }
        | Request::Cancel { id, .. }
        | Request::Get { id, .. }
        | Request::Wait { id, .. }
        | Request::Release { id, .. }
        | Request::Fail { id, .. }
        | Request::Redrive { id, .. }
        | Request::Purge { id, .. } => vec![*id],
        _ => Vec::new(),
    }
}

impl Pending {
    pub fn new(order: u64, body: Call, bytes: usize, deadline_us: u64) -> Self {
        let needs = Needs::of(&body);
        let is_claim = matches!(&body, Call::Request(Request::Claim(_)));
        let named = matches!(&body, Call::Request(Request::Claim(claim)) if claim.claim != ClaimId(0));
        Pending {
            order,
            bytes,
            needs,
            is_claim,
            deadline_us,
            stage: Stage::Queued,
            wake_us: deadline_us,
            numbers: Vec::new(),
            first_sent_us: None,
            lease_from_us: None,
            granted: Vec::new(),
            confirmations: 0,
            is_unsure: false,
            named,
            failures: 0,
            error_last: None,
            sent: 0,
            answered: 0,
            turned_away: 0,
            minted: None,
            ids_ahead: false,
            body: Body::Open(body),
            items: Items::None,
        }
    }

    /// For a call that asks for ids: how many, and where they go.
    pub fn lends(&self) -> Option<(u32, LentIds)> {
        match &self.body {
            Body::Open(Call::LendIds { count, ids }) => Some((*count, ids.clone())),
            _ => None,
        }
    }

    /// Whether the call may fare better at another node: it is a claim, or it was refused repeatedly.
    pub fn seeks(&self) -> bool {
        self.is_claim || self.failures > 1
    }

    /// Id of a claim that was sent and is not repeated once this call is over.
    pub fn claim_to_leave(&self) -> Option<ClaimId> {
        self.claim().filter(|_| !self.named)
    }

    /// Id of a claim that was sent.
    pub fn claim(&self) -> Option<ClaimId> {
        match &self.body {
            Body::Settled(Request::Claim(claim)) => Some(claim.claim),
            _ => None,
        }
    }

    /// Length of the lease that a sent claim names.
    pub fn lease_ms(&self) -> u64 {
        match &self.body {
            Body::Settled(Request::Claim(claim)) => claim.lease_ms,
            _ => 0,
        }
    }

    /// Fixes ids, times and the claim id, once.
    pub fn resolve(&mut self, now_us: u64, id_generator: &mut IdGenerator, random: &mut Random) {
        let Body::Open(open) = &mut self.body else {
            return;
        };
        let open = std::mem::replace(open, Call::Request(Request::Status));
        let server_ms = || id_generator.server_time_ms(now_us).expect("calls that need the time wait for a welcome");
        let request = match open {
            Call::Enqueue { drafts, acks } => resolve_drafts(now_us, drafts, acks, id_generator, random),
            Call::EnqueueUnique { draft } => {
                let mut minter = Minter { now_us, id_generator, random, tag: 0, minted: 0 };
                Request::EnqueueUnique { task: Box::new(minter.resolve(*draft)) }
            }
            Call::Transact { draft } => {
                let mut minter = Minter { now_us, id_generator, random, tag: 0, minted: 0 };
                Request::Transact(Box::new(minter.transaction(*draft)))
            }
            Call::Complete { items, acks } => resolve_finishes(now_us, items, acks, id_generator, random),
            Call::Request(Request::Complete { mut items, acks }) => {
                items.iter_mut().filter(|item| item.at_ms == 0).for_each(|item| item.at_ms = server_ms());
                Request::Complete { items, acks }
            }
            Call::Request(Request::Cancel { id, reason, at_ms: 0, acks }) => {
                Request::Cancel { id, reason, at_ms: server_ms(), acks }
            }
            Call::Request(Request::Claim(mut claim)) => {
                if claim.claim == ClaimId(0) {
                    claim.claim = any_claim(random);
                }
                Request::Claim(claim)
            }
            Call::Redrive { id, copy, queue, acks } => {
                let child = copy.settle(|| id_generator.generate(now_us, any_tag(random)));
                Request::Redrive { id, child, queue, acks }
            }
            Call::LendIds { .. } => unreachable!("ids are lent, not asked for"),
            Call::Request(Request::Redrive { id, child: TaskId::MIN, queue, acks }) => {
                let child = id_generator.generate(now_us, any_tag(random));
                Request::Redrive { id, child, queue, acks }
            }
            Call::Request(request) => request,
        };
        self.items = match &request {
            Request::Enqueue { tasks, .. } => Items::Acked(vec![None; tasks.len()]),
            Request::Complete { items, .. } => Items::Acked(vec![None; items.len()]),
            Request::Renew { items, .. } => Items::Renewed(vec![None; items.len()]),
            _ => Items::None,
        };
        self.body = Body::Settled(request);
        self.minted = id_generator.minted();
    }

    /// Positions of the items that have no final answer yet.
    pub fn outstanding(&self) -> Vec<usize> {
        fn empty<T>(slots: &[Option<T>]) -> Vec<usize> {
            slots.iter().enumerate().filter(|(_, slot)| slot.is_none()).map(|(place, _)| place).collect()
        }
        match &self.items {
            Items::None => Vec::new(),
            Items::Acked(slots) => empty(slots),
            Items::Renewed(slots) => empty(slots),
        }
    }

    /// The request of the next attempt, and how long the node may wait on purpose.
    pub fn attempt(&self, now_us: u64, positions: &[usize]) -> (Request, u64) {
        let Body::Settled(request) = &self.body else {
            unreachable!("a call is resolved before it is sent");
        };
        let elapsed_ms = self.first_sent_us.map_or(0, |sent_us| now_us.saturating_sub(sent_us) / 1_000);
        match request {
            Request::Claim(claim) => {
                let mut claim = claim.clone();
                claim.repeated |= self.first_sent_us.is_some();
                claim.confirms = true;
                claim.wait_ms = claim.wait_ms.saturating_sub(elapsed_ms);
                let wait_ms = claim.wait_ms;
                (Request::Claim(claim), wait_ms)
            }
            Request::Wait { id, timeout_ms } => {
                let timeout_ms = timeout_ms.saturating_sub(elapsed_ms);
                (Request::Wait { id: *id, timeout_ms }, timeout_ms)
            }
            Request::Watch { subject, cursor, wait_ms } => {
                let (subject, cursor, wait_ms) = (subject.clone(), cursor.clone(), wait_ms.saturating_sub(elapsed_ms));
                (Request::Watch { subject, cursor, wait_ms }, wait_ms)
            }
            Request::Enqueue { tasks, acks } => (Request::Enqueue { tasks: pick(tasks, positions), acks: *acks }, 0),
            Request::Complete { items, acks } => (Request::Complete { items: pick(items, positions), acks: *acks }, 0),
            Request::Renew { items, lease_ms } => {
                (Request::Renew { items: pick(items, positions), lease_ms: *lease_ms }, 0)
            }
            other => (other.clone(), 0),
        }
    }

    /// Takes an answer to the attempt that carried `positions`. An answer to an attempt that was given up also counts if it settles
    /// something: the request is the same.
    pub fn absorb(&mut self, positions: &[usize], mut response: Response, current: bool) -> Verdict {
        if let Some(minted) = self.minted {
            self.ids_ahead |= explain_own_ids(minted, &mut response);
        }
        let retry = |error| if current { Verdict::Retry(error) } else { Verdict::Ignore };
        let in_doubt = self.is_in_doubt();
        self.turned_away += u32::from(self.is_turned_away(&response));
        if in_doubt {
            errors_of(&mut response).into_iter().filter(|error| is_of_the_attempt(error)).for_each(doubt);
        }
        let open = match (response, &mut self.items) {
            // To an early call `not_ready` means that a cluster already exists: no repeat changes that.
            (Response::Error(error), _)
                if is_retryable(&error) && !(self.needs == Needs::Connection && error.code == ErrorCode::NotReady) =>
            {
                return retry(error);
            }
            // Another attempt may still be answered.
            (Response::Error(error), _) if is_doubted(&error) && !current => return Verdict::Ignore,
            (Response::Error(error), _) => return Verdict::Done(self.refused(error)),
            (response, Items::None) => return Verdict::Done(Ok(response)),
            (Response::Acked(items), Items::Acked(slots)) if items.len() == positions.len() => {
                merge(slots, positions, items, current)
            }
            (Response::Renewed(items), Items::Renewed(slots)) if items.len() == positions.len() => {
                merge(slots, positions, items, current)
            }
            _ => return Verdict::Done(self.undecided("the answer does not fit the request", None)),
        };
        match open {
            Some(error) if !self.outstanding().is_empty() => retry(error),
            _ if self.outstanding().is_empty() => Verdict::Done(Ok(self.take_items(|_| unreachable!("none is open")))),
            _ => Verdict::Ignore,
        }
    }

    /// Result of a final refusal of all items that are still open.
    fn refused(&mut self, error: Error) -> Result<Response, Error> {
        if is_doubted(&error) {
            return self.told_of_each(error);
        }
        let count = match &self.items {
            Items::None => 0,
            Items::Acked(slots) => slots.len(),
            Items::Renewed(slots) => slots.len(),
        };
        if self.outstanding().len() == count { Err(error) } else { Ok(self.take_items(|_| error.clone())) }
    }

    /// The session's loan of ids, if nodes have refused ids of it as ahead of their clocks.
    pub fn minted_ahead(&self) -> Option<Minted> {
        self.minted.filter(|_| self.ids_ahead)
    }

    /// Whether the call is a write that a node may have taken.
    pub fn may_have_effect(&self) -> bool {
        self.sent > 0 && matches!(&self.body, Body::Settled(request) if request.facts().writes)
    }

    /// Whether an attempt refused with this error has stored nothing, and will not.
    fn turns_away(&self, error: &Error) -> bool {
        let Body::Settled(request) = &self.body else { return false };
        // A node that is not ready refuses before it does anything.
        if error.code == ErrorCode::NotReady {
            return request.facts().writes;
        }
        // A request that another node forwards to a leader may reach the leader again, later than the refusal.
        let stores = matches!(request, Request::Enqueue { .. } | Request::Update { .. });
        error.code.is_full() && request.facts().writes && (stores || error.cause == Some(Cause::TurnedAway))
    }

    /// Whether an answer shows that its attempt has stored nothing more, and will not.
    fn is_turned_away(&self, response: &Response) -> bool {
        let is_sure = |error: &Error| !is_retryable(error) || self.turns_away(error);
        match response {
            Response::Error(error) => is_sure(error),
            Response::Acked(items) => items.iter().filter_map(|item| item.as_ref().err()).all(is_sure),
            _ => false,
        }
    }

    /// Whether an attempt other than the one just answered may have been taken.
    fn is_in_doubt(&self) -> bool {
        self.may_have_effect() && self.sent > self.turned_away.saturating_add(1)
    }

    /// Whether each attempt was refused before anything more was stored.
    fn was_turned_away(&self) -> bool {
        self.sent > 0 && self.turned_away == self.sent
    }

    /// The answer when nothing more will be tried: `unknown` for a write that may have taken effect, `unavailable` for a call that
    /// surely has not, or the refusal, if every attempt was refused. Each item of a batch that was sent gets its own error, so that the
    /// caller learns its ids. `refusal` is a node's last answer to `hello`.
    pub fn undecided(&mut self, why: &str, refusal: Option<Error>) -> Result<Response, Error> {
        let ahead = refusal.clone().filter(|error| error.code == ErrorCode::ClockAhead);
        self.error_last = self.error_last.take().or(refusal);
        let write = matches!(&self.body, Body::Settled(request) if request.facts().writes);
        let code = if write { ErrorCode::Unknown } else { ErrorCode::Unavailable };
        let message = match &self.error_last {
            Some(error) => format!("{why}; the last refusal was: {}", error.message),
            None => why.to_owned(),
        };
        let refusal = ahead.or_else(|| self.error_last.clone().filter(|_| self.was_turned_away()));
        // The last refusal knows best when to try again.
        let retry = self.error_last.as_ref().map_or(code.retry(), |error| error.retry);
        let cause = self.error_last.as_ref().and_then(|error| error.cause).filter(|cause| *cause == Cause::IdAhead);
        let error = refusal.unwrap_or_else(|| Error { retry, cause, ..Error::new(code, message) });
        self.told_of_each(error)
    }

    /// Ends all open items with an error that names the task of each.
    fn told_of_each(&mut self, error: Error) -> Result<Response, Error> {
        let ids = match &self.body {
            Body::Settled(request) => ids(request),
            Body::Open(Call::Enqueue { drafts, .. }) => drafts.iter().filter_map(|draft| draft.id).collect(),
            Body::Open(Call::EnqueueUnique { draft }) => draft.id.into_iter().collect(),
            Body::Open(Call::Transact { draft }) => draft.id.into_iter().collect(),
            Body::Open(Call::Complete { items, .. }) => items.iter().map(|item| item.completion.id).collect(),
            Body::Open(Call::Redrive { id, .. }) => vec![*id],
            Body::Open(Call::LendIds { .. }) => Vec::new(),
            Body::Open(Call::Request(request)) => ids(request),
        };
        match (&self.items, ids.as_slice()) {
            (Items::None, [id]) | (_, [id]) => Err(error.about(*id)),
            (Items::None, _) => Err(error),
            (Items::Acked(_) | Items::Renewed(_), ids) => {
                let ids = ids.to_vec();
                Ok(self.take_items(|place| error.clone().about(ids[place])))
            }
        }
    }

    fn take_items(&mut self, open: impl Fn(usize) -> Error) -> Response {
        fn fill<T>(slots: Vec<Option<Result<T, Error>>>, open: impl Fn(usize) -> Error) -> Vec<Result<T, Error>> {
            slots.into_iter().enumerate().map(|(place, slot)| slot.unwrap_or_else(|| Err(open(place)))).collect()
        }
        match std::mem::replace(&mut self.items, Items::None) {
            Items::Acked(slots) => Response::Acked(fill(slots, open)),
            Items::Renewed(slots) => Response::Renewed(fill(slots, open)),
            Items::None => unreachable!("only batches have items"),
        }
    }

    pub fn check(&self) -> Result<(), String> {
        let settled = matches!(self.body, Body::Settled(_));
        ensure(settled == self.first_sent_us.is_some(), || "settled and sent are not the same".into())?;
        ensure(self.wake_us == self.deadline_us.min(self.stage.until_us()), || "the timer is not the stage's".into())?;
        let batch = !matches!(self.items, Items::None);
        ensure(!batch || !self.outstanding().is_empty(), || "everything is answered, but the call goes on".into())
    }
}

fn pick<T: Clone>(all: &[T], positions: &[usize]) -> Vec<T> {
    positions.iter().map(|position| all[*position].clone()).collect()
}

/// Whether a node refused ids of this session's loan as ahead of its clock: the clock of the lending node was ahead. Rewrites such
/// errors to `clock_ahead`.
fn explain_own_ids(minted: Minted, response: &mut Response) -> bool {
    let mut some = false;
    let mut explain = |error: &mut Error| {
        let is_own = error.id.is_some_and(|id| minted.has(id));
        // An outcome that may be stored stays `unknown`.
        some |= is_own && error.cause == Some(Cause::IdAhead);
        if error.code == ErrorCode::IdFromFuture && is_own {
            let message = "the ids of this call are ahead of the nodes' clocks, as that of the node was that lent them; the next \
                           call asks for others";
            some = true;
            *error = Error { id: error.id, after_ms: error.after_ms, ..Error::new(ErrorCode::ClockAhead, message) };
        }
    };
    errors_of(response).into_iter().for_each(&mut explain);
    some
}

/// The errors of an answer, as a whole or item by item.
fn errors_of(response: &mut Response) -> Vec<&mut Error> {
    match response {
        Response::Error(error) => vec![error],
        Response::Acked(items) => items.iter_mut().filter_map(|item| item.as_mut().err()).collect(),
        _ => Vec::new(),
    }
}

/// Fills in final results. Returns an error that asks for a repeat, if any: preferably one with [`Retry::Later`].
fn merge<T>(
    slots: &mut [Option<Result<T, Error>>],
    positions: &[usize],
    items: Vec<Result<T, Error>>,
    current: bool,
) -> Option<Error> {
    assert_eq!(positions.len(), items.len());
    let mut again: Option<Error> = None;
    for (position, item) in positions.iter().zip(items) {
        let slot = &mut slots[*position];
        match item {
            _ if slot.is_some() => {}
            Err(error) if is_retryable(&error) => {
                if again.as_ref().is_none_or(|kept| kept.retry != Retry::Later) {
                    again = Some(error);
                }
            }
            // Another attempt may still be answered.
            Err(error) if is_doubted(&error) && !current => {}
            item => *slot = Some(item),
        }
    }
    again
}

fn resolve_drafts(
    now_us: u64,
    drafts: Vec<Draft>,
    acks: Acks,
    id_generator: &mut IdGenerator,
    random: &mut Random,
) -> Request {
    let mut minter = Minter { now_us, id_generator, random, tag: 0, minted: 0 };
    let drafts = minter.group(drafts);
    Request::Enqueue { tasks: drafts.into_iter().map(|draft| minter.resolve(draft)).collect(), acks }
}

/// Fixes the ids of each completion's children together, as one partition handles them.
fn resolve_finishes(
    now_us: u64,
    items: Vec<Finish>,
    acks: Acks,
    id_generator: &mut IdGenerator,
    random: &mut Random,
) -> Request {
    let resolve = |Finish { mut completion, children }| {
        let mut minter = Minter { now_us, id_generator: &mut *id_generator, random: &mut *random, tag: 0, minted: 0 };
        let children = minter.group(children);
        completion.children.extend(children.into_iter().map(|draft| minter.resolve(draft)));
        if completion.at_ms == 0 {
            completion.at_ms = minter.server_ms();
        }
        completion
    };
    Request::Complete { items: items.into_iter().map(resolve).collect(), acks }
}

/// Fixes ids and times of the tasks of one call.
struct Minter<'a> {
    now_us: u64,
    id_generator: &'a mut IdGenerator,
    random: &'a mut Random,
    tag: u32,
    minted: usize,
}

impl Minter<'_> {
    fn server_ms(&self) -> u64 {
        self.id_generator.server_time_ms(self.now_us).expect("calls that mint wait for a welcome")
    }

    /// Makes members without a group members of the join among the drafts, if there is one.
    fn group(&mut self, mut drafts: Vec<Draft>) -> Vec<Draft> {
        let is_join = |draft: &Draft| draft.spec.grouping.as_ref().is_some_and(|grouping| grouping.join.is_some());
        if let Some(place) = drafts.iter().position(is_join) {
            let join = drafts[place].clone();
            let id = self.resolve(join).id;
            drafts[place].id = Some(id);
            let members = drafts.iter_mut().filter_map(|draft| draft.spec.grouping.as_mut()?.member.as_mut());
            members.filter(|member| member.group == TaskId::MIN).for_each(|member| member.group = id);
        }
        drafts
    }

    /// Fixes a transaction. All its tasks get the tag of the first part that has one.
    fn transaction(&mut self, draft: TransactionDraft) -> Transaction {
        let TransactionDraft { id, near, adds, changes, deletes, depends } = draft;
        let named = changes.iter().map(|draft| draft.change.id);
        let named = named.chain(deletes.iter().map(|delete| delete.id)).chain(depends.iter().map(|depend| depend.id));
        let of_add = |draft: &Draft| draft.spec.tag().or(draft.id.or(draft.near).map(|id| id.tag()));
        let tag = id.or(named.into_iter().next()).map(|id| id.tag());
        let tag = tag.or_else(|| adds.iter().find_map(of_add)).or(near.map(|near| near.tag()));
        let tag = tag.unwrap_or_else(|| any_tag(self.random));
        let lies = TaskId::new(0, 0, 0, tag);
        let adds =
            adds.into_iter().map(|draft| self.resolve(Draft { near: draft.near.or(Some(lies)), ..draft })).collect();
        let server_ms = self.server_ms();
        let change = |ChangeDraft { mut change, delay_ms }: ChangeDraft| {
            let until_ms = |delay_ms: u64| if delay_ms == 0 { 0 } else { server_ms.saturating_add(delay_ms) };
            change.not_before_ms = delay_ms.map(until_ms).or(change.not_before_ms);
            change
        };
        let changes = changes.into_iter().map(change).collect();
        let id = id.unwrap_or_else(|| self.id_generator.generate(self.now_us, tag));
        Transaction { id, at_ms: server_ms, adds, changes, deletes, depends }
    }

    fn resolve(&mut self, draft: Draft) -> NewTask {
        let member = draft.spec.grouping.as_ref().and_then(|grouping| grouping.member);
        let id = draft.id.or(member.map(MemberOf::id)).unwrap_or_else(|| {
            if self.minted.is_multiple_of(limits::BATCH_TAG_TASKS) {
                self.tag = any_tag(self.random);
            }
            self.minted += 1;
            let tag = draft.spec.tag().or(draft.near.map(|near| near.tag()));
            self.id_generator.generate(self.now_us, tag.unwrap_or(self.tag))
        });
        let mut spec = draft.spec;
        if draft.delay_ms > 0 {
            // An id that the caller names tells when it was made, so that a repeat under it asks for the same.
            let from_ms = draft.id.map_or_else(|| self.server_ms(), |id| id.time_ms());
            spec.not_before_ms = from_ms.saturating_add(draft.delay_ms);
        }
        NewTask { id, spec }
    }
}
