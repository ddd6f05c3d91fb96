//! Checks requests against the limits; each refusal says what to do instead. Sessions check before they send and nodes before they act,
//! so that both apply the same limits.

use super::error::Error;
use super::group::Join;
use super::headers::TOLD;
use super::ids::{NodeId, TaskId};
use super::limits::*;
use super::membership::ClusterChange;
use super::request::{Claim, Completion, Request, SESSIONS_QUEUE, Spec};
use super::schedule;
use super::watch::{WatchCursor, WatchPlace};
use std::collections::BTreeSet;

/// Room in a frame for a batch's queue names and headers; the remainder covers the encoding.
const NAMES_BYTES_MAX: usize = FRAME_BYTES_MAX - BATCH_BYTES_MAX - (2 << 20);

fn check(fits: bool, message: impl FnOnce() -> String) -> Result<(), Error> {
    if fits { Ok(()) } else { Err(Error::invalid(message())) }
}

impl Request {
    /// Checks the limits.
    pub fn check(&self) -> Result<(), Error> {
        match self {
            Request::Hello { name, .. } => check_text("name of a client", name),
            Request::Enqueue { tasks, .. } => check_tasks(tasks.iter().map(|task| (Some(task.id), &task.spec))),
            Request::EnqueueUnique { task } => {
                check_unique(&task.spec).map_err(|error| error.about(task.id))?;
                check_tasks(std::iter::once((Some(task.id), &task.spec)))
            }
            Request::Transact(transaction) => transaction.check(),
            Request::CloseGroup { total, .. } => check_total(*total),
            Request::Update { token, sequence, data, .. } => {
                let bytes = data.len();
                check(bytes <= UPDATE_BYTES_MAX, || {
                    format!("an update of {bytes} bytes; at most {UPDATE_BYTES_MAX} are allowed, write several")
                })?;
                check(*sequence < UPDATES_MAX, || {
                    format!("update {sequence}; a claim has {UPDATES_MAX} updates, numbered from 0")
                })?;
                check(token.number > 0, || format!("{token} is no token; give the one that `claim` answered"))
            }
            Request::Complete { items, .. } => check_completions(items.iter()),
            Request::Cancel { reason, .. } => check_text("reason", reason),
            Request::Wait { timeout_ms, .. } => check_wait(*timeout_ms),
            Request::Watch { cursor, wait_ms, .. } => {
                check_wait(*wait_ms)?;
                cursor.as_ref().map_or(Ok(()), check_cursor)
            }
            Request::List { limit, .. } => check((1..=LIST_PAGE_MAX).contains(limit), || {
                format!("a page of {limit} tasks; ask for 1 to {LIST_PAGE_MAX} at once")
            }),
            Request::Claim(claim) => check_claim(claim),
            Request::Renew { items, lease_ms } => {
                check_batch("renewals", items.len())?;
                lease_ms.map_or(Ok(()), check_lease)
            }
            Request::Fail { reason, retry_in_ms, .. } => {
                check_text("reason", reason)?;
                check_delay(*retry_in_ms)
            }
            Request::Arrange { nodes, .. } => check_holders(nodes),
            // The metadata group checks everything else: it knows the members.
            Request::Change { change, .. } => match &**change {
                ClusterChange::Arrange { nodes, .. } => check_holders(nodes),
                _ => Ok(()),
            },
            Request::Recover { lost, partitions, lease_ms } => {
                check((1..=LOST_MAX).contains(&lost.len()), || format!("name 1 to {LOST_MAX} nodes that are lost"))?;
                check(partitions.len() <= RECOVERED_MAX, || format!("at most {RECOVERED_MAX} partitions at once"))?;
                check_lease(*lease_ms)
            }
            Request::Leave { keeps, .. } => check(keeps.len() <= CLAIM_TASKS_MAX as usize, || {
                format!("a claim keeps at most {CLAIM_TASKS_MAX} tasks")
            }),
            Request::Schedule(change) => change.check(),
            Request::Schedules { name } => name.as_deref().map_or(Ok(()), schedule::check_name),
            Request::Redrive { queue, .. } => {
                check(queue.as_ref().is_none_or(|queue| queue.as_str() != SESSIONS_QUEUE), for_sessions)
            }
            Request::Cluster
            | Request::Join(_)
            | Request::Get { .. }
            | Request::Count { .. }
            | Request::Queues
            | Request::Release { .. }
            | Request::Purge { .. }
            | Request::Nodes
            | Request::Ring
            | Request::Partitions
            | Request::Status
            | Request::Identify
            | Request::Ping
            | Request::Confirm { .. }
            | Request::Initialize(_) => Ok(()),
        }
    }
}

fn check_holders(nodes: &[NodeId]) -> Result<(), Error> {
    let count = nodes.len();
    check((1..=NODES_OF_PARTITION_MAX).contains(&count), || {
        format!("{count} nodes: a partition is held by 1 to {NODES_OF_PARTITION_MAX}")
    })?;
    let twice = nodes.iter().enumerate().any(|(at, node)| nodes[..at].contains(node));
    check(!twice, || "a node is named twice".to_owned())
}

/// Checks the tasks of one batch, with the ids that are known already.
pub fn check_tasks<'a>(tasks: impl ExactSizeIterator<Item = (Option<TaskId>, &'a Spec)>) -> Result<(), Error> {
    check_batch("tasks", tasks.len())?;
    let mut payload_bytes = 0;
    let mut names_bytes = 0;
    let mut ids = BTreeSet::new();
    for (id, spec) in tasks {
        let about = |error: Error| if let Some(id) = id { error.about(id) } else { error };
        names_bytes += check_spec(spec).map_err(about)?;
        check_apart(id, spec).map_err(about)?;
        check_tag(id, spec).and_then(|()| check_member(id, spec)).map_err(about)?;
        payload_bytes += spec.payload.len();
        let new = id.is_none_or(|id| ids.insert(id));
        check(new, || "two tasks of a batch have the same id; give each its own".into()).map_err(about)?;
    }
    check_batch_bytes("payloads", payload_bytes, BATCH_BYTES_MAX)?;
    check_batch_bytes("queue names and headers", names_bytes, NAMES_BYTES_MAX)
}

fn check_apart(id: Option<TaskId>, spec: &Spec) -> Result<(), Error> {
    check(id.is_none_or(|id| !spec.after.contains(&id)), || "a task waits for itself; leave that out".into())
}

/// Checks a task that must be unique: it needs a key.
pub fn check_unique(spec: &Spec) -> Result<(), Error> {
    check(spec.key.is_some(), || "a task that is to be unique needs a key to be so by; give it one".into())
}

/// Checks that a task's id has the tag of its key: all tasks with one key are in one partition.
pub(crate) fn check_tag(id: Option<TaskId>, spec: &Spec) -> Result<(), Error> {
    let differs = id.zip(spec.tag()).is_some_and(|(id, tag)| id.tag() != tag);
    check(!differs, || "the id of a task with a key ends with what its key says; leave the id to the client".into())
}

/// Checks a member of a group: its id follows from the group.
fn check_member(id: Option<TaskId>, spec: &Spec) -> Result<(), Error> {
    let Some(grouping) = &spec.grouping else { return Ok(()) };
    if let Some(Join { total: Some(total), .. }) = grouping.join {
        check_total(total)?;
    }
    let Some(member) = grouping.member else { return Ok(()) };
    check((1..=GROUP_MEMBERS_MAX).contains(&member.number), || {
        let number = member.number;
        format!(
            "member {number} of a group; they are numbered from 1 to at most {GROUP_MEMBERS_MAX}, have groups of groups"
        )
    })?;
    check(spec.key.is_none(), || {
        "a member of a group with a key; its id would have to say both, so leave one of them out".into()
    })?;
    check(id.is_none_or(|id| id == member.id()), || {
        "the id of a group's member follows from the group and the number; leave it to the client".into()
    })
}

fn check_total(total: u32) -> Result<(), Error> {
    check(total <= GROUP_MEMBERS_MAX, || {
        format!("a group of {total} tasks; at most {GROUP_MEMBERS_MAX} are allowed, have groups of groups")
    })
}

/// Checks a spec. Returns the bytes of its names and headers.
pub(crate) fn check_spec(spec: &Spec) -> Result<usize, Error> {
    let bytes = spec.payload.len();
    check(bytes <= PAYLOAD_BYTES_MAX, || {
        format!(
            "a payload of {bytes} bytes; at most {PAYLOAD_BYTES_MAX} are allowed, enqueue where more is to be found"
        )
    })?;
    let after = spec.after.len();
    check(after <= AFTER_MAX, || {
        format!("a task that waits for {after} others; at most {AFTER_MAX} are allowed, have one wait for several")
    })?;
    let different = spec.after.iter().collect::<BTreeSet<_>>().len();
    check(different == after, || "a task that waits for another one is to name it once".into())?;
    let key = spec.key.as_ref().map_or(0, String::len);
    check(key <= KEY_BYTES_MAX, || format!("a key of {key} bytes; at most {KEY_BYTES_MAX} are allowed"))?;
    check(spec.key.as_deref() != Some(""), || "a key that is empty; leave it out".into())?;
    check(spec.queue.as_str() != SESSIONS_QUEUE || is_session(spec), for_sessions)?;
    check(spec.revision.is_none(), || "a task that says it was changed; leave that to the cluster".into())?;
    let headers_bytes = check_headers(&spec.headers)?;
    Ok(spec.queue.as_str().len() + key + after * size_of::<TaskId>() + headers_bytes)
}

/// Refusal of other tasks in the queue of sessions.
pub(crate) fn for_sessions() -> String {
    format!("queue {SESSIONS_QUEUE} is for sessions: `session open`; choose another name")
}

/// Whether a task is a session: it has one attempt and is claimable at once.
fn is_session(spec: &Spec) -> bool {
    let waits = spec.not_before_ms > 0 || !spec.after.is_empty() || spec.key.is_some() || spec.grouping.is_some();
    spec.attempts_max == 1 && !waits
}

/// Checks headers and returns their bytes. Headers that nodes add to copies of dead tasks do not count toward the limit.
pub(crate) fn check_headers(headers: &[(String, String)]) -> Result<usize, Error> {
    let told: BTreeSet<&str> =
        headers.iter().map(|(name, _)| name.as_str()).filter(|name| TOLD.contains(name)).collect();
    let count = headers.len() - told.len();
    check(count <= HEADERS_MAX, || {
        format!("{count} headers of a task; at most {HEADERS_MAX} are allowed, the payload has room for more")
    })?;
    let mut headers_bytes = 0;
    for (name, value) in headers {
        check(!name.is_empty(), || "a header without a name; give it one".into())?;
        let bytes = name.len() + value.len();
        check(bytes <= HEADER_BYTES_MAX, || {
            format!("a header of {bytes} bytes; at most {HEADER_BYTES_MAX} are allowed, the payload has room for more")
        })?;
        headers_bytes += bytes;
    }
    Ok(headers_bytes)
}

/// Checks a batch of completions, and the children of each.
pub fn check_completions<'a>(items: impl ExactSizeIterator<Item = &'a Completion>) -> Result<(), Error> {
    check_batch("completions", items.len())?;
    let mut results_bytes = 0;
    for item in items {
        let bytes = item.result.as_ref().map_or(0, |result| result.len());
        let small = check(bytes <= PAYLOAD_BYTES_MAX, || {
            format!("a result of {bytes} bytes; at most {PAYLOAD_BYTES_MAX} are allowed, say where more is to be found")
        });
        small.map_err(|error| error.about(item.id))?;
        let children = item.children.iter().map(|child| (Some(child.id), &child.spec));
        results_bytes += bytes + check_children(children).map_err(|error| error.about(item.id))?;
    }
    check_batch_bytes("results and children", results_bytes, BATCH_BYTES_MAX)
}

/// Checks the children of one completion, with the ids that are known already. Returns their bytes.
pub fn check_children<'a>(children: impl ExactSizeIterator<Item = (Option<TaskId>, &'a Spec)>) -> Result<usize, Error> {
    let count = children.len();
    check(count <= CHILDREN_MAX, || {
        format!(
            "{count} tasks with one completion; at most {CHILDREN_MAX} are allowed, let one of them enqueue the rest"
        )
    })?;
    let (mut bytes, mut joins, mut ids) = (0, 0, BTreeSet::new());
    for (id, spec) in children {
        bytes += check_spec(spec)? + spec.payload.len();
        check_apart(id, spec)?;
        check_tag(id, spec)?;
        check_member(id, spec)?;
        joins += usize::from(spec.grouping.as_ref().is_some_and(|grouping| grouping.join.is_some()));
        let new = id.is_none_or(|id| ids.insert(id));
        check(new, || "two tasks of a completion have the same id; give each its own".into())?;
    }
    check(joins <= 1, || format!("{joins} joins of groups with one completion; have one of them wait for the others"))?;
    check(bytes <= CHILDREN_BYTES_MAX, || {
        format!("{bytes} bytes of tasks with one completion; at most {CHILDREN_BYTES_MAX} are allowed")
    })?;
    Ok(bytes)
}

fn check_claim(claim: &Claim) -> Result<(), Error> {
    let (queues, max) = (claim.queues.len(), claim.max);
    check((1..=CLAIM_QUEUES_MAX).contains(&queues), || {
        format!("a claim from {queues} queues; name 1 to {CLAIM_QUEUES_MAX}")
    })?;
    check((1..=CLAIM_TASKS_MAX).contains(&max), || {
        format!("a claim of {max} tasks; ask for 1 to {CLAIM_TASKS_MAX} at once")
    })?;
    let depends = claim.depends.len();
    check(depends <= CLAIM_DEPENDS_MAX, || {
        format!("a claim that depends on {depends} tasks; at most {CLAIM_DEPENDS_MAX} are allowed")
    })?;
    check_wait(claim.wait_ms)?;
    check_text("name of a worker", &claim.worker)?;
    check_lease(claim.lease_ms)
}

fn check_batch(what: &str, count: usize) -> Result<(), Error> {
    check((1..=BATCH_TASKS_MAX).contains(&count), || {
        format!("{count} {what} in one batch; 1 to {BATCH_TASKS_MAX} are allowed")
    })
}

fn check_batch_bytes(what: &str, bytes: usize, most: usize) -> Result<(), Error> {
    check(bytes <= most, || format!("{bytes} bytes of {what} in one batch; at most {most} are allowed, divide it"))
}

fn check_lease(lease_ms: u64) -> Result<(), Error> {
    check((LEASE_MS_MIN..=LEASE_MS_MAX).contains(&lease_ms), || {
        let [low, high, lease] = [LEASE_MS_MIN, LEASE_MS_MAX, lease_ms].map(span);
        format!("a lease of {lease}; {low} to {high} are allowed, renew it to work longer")
    })
}

fn check_wait(wait_ms: u64) -> Result<(), Error> {
    check(wait_ms <= WAIT_MS_MAX, || {
        format!("a wait of {}; at most {} are allowed, ask again to wait longer", span(wait_ms), span(WAIT_MS_MAX))
    })
}

fn check_cursor(cursor: &WatchCursor) -> Result<(), Error> {
    let sound = |place: &WatchPlace| place.whole.len() <= WATCH_WHOLE_BYTES_MAX;
    let fits = cursor.places.len() <= WATCH_PLACES_MAX && cursor.places.iter().all(sound);
    check(fits, || "this is no cursor of a watch; give the one of the last answer, or none to begin".to_owned())
}

/// Checks the delay before a task can be claimed, for the first time or again.
pub fn check_delay(delay_ms: u64) -> Result<(), Error> {
    check(delay_ms <= DELAY_MS_MAX, || {
        format!("a delay of {}; at most ten years, {}, are allowed", span(delay_ms), span(DELAY_MS_MAX))
    })
}

/// Formats a duration in the largest unit of which it is a whole number.
fn span(ms: u64) -> String {
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
    let fits = units.into_iter().find(|(_, unit)| ms >= *unit && ms.is_multiple_of(*unit));
    fits.map_or_else(|| format!("{ms}ms"), |(name, unit)| format!("{}{name}", ms / unit))
}

fn check_text(what: &str, text: &str) -> Result<(), Error> {
    let bytes = text.len();
    check(bytes <= TEXT_BYTES_MAX, || {
        format!("a {what} of {bytes} bytes; at most {TEXT_BYTES_MAX} are allowed, shorten it")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Acks, ClaimId, ErrorCode, NewTask, QueueName, Token};
    use serde_bytes::ByteBuf;

    fn queue() -> QueueName {
        QueueName::new("mail").unwrap()
    }

    fn task(number: u32, change: impl FnOnce(&mut Spec)) -> NewTask {
        let (queue, payload, headers) = (queue(), Vec::new(), Vec::new());
        let mut spec = Spec {
            queue,
            payload,
            priority: 0,
            not_before_ms: 0,
            headers,
            attempts_max: 0,
            after: Vec::new(),
            key: None,
            grouping: None,
            revision: None,
        };
        change(&mut spec);
        NewTask { id: TaskId::new(1, number, 0, 0), spec }
    }

    fn enqueue(count: usize, change: impl Fn(&mut Spec)) -> Request {
        Request::Enqueue { tasks: (0..count as u32).map(|number| task(number, &change)).collect(), acks: Acks::One }
    }

    fn headers(count: usize, bytes: usize) -> Vec<(String, String)> {
        vec![("n".into(), "v".repeat(bytes - 1)); count]
    }

    fn complete(count: usize, bytes: usize) -> Request {
        let (id, token) = (TaskId::MIN, Token::default());
        let item = Completion {
            id,
            token,
            sequence: None,
            result: Some(ByteBuf::from(vec![0; bytes])),
            at_ms: 0,
            children: Vec::new(),
        };
        Request::Complete { items: vec![item; count], acks: Acks::One }
    }

    fn complete_with(children: Vec<NewTask>) -> Request {
        let (id, token) = (TaskId::MIN, Token::default());
        let item = Completion { id, token, sequence: None, result: None, at_ms: 0, children };
        Request::Complete { items: vec![item], acks: Acks::One }
    }

    #[test]
    fn bounds_of_time_are_told_in_units_that_people_use() {
        let day = 86_400_000;
        let delay = check_delay(20 * 365 * day).unwrap_err().message;
        assert_eq!(delay, "a delay of 7300d; at most ten years, 87660h, are allowed");
        let wait = check_wait(WAIT_MS_MAX + 1).unwrap_err().message;
        assert_eq!(wait, "a wait of 300001ms; at most 5m are allowed, ask again to wait longer");
        assert_eq!([0, 250, 90_000, 7_200_000].map(span), ["0ms", "250ms", "90s", "2h"]);
    }

    fn update(number: u64, sequence: u32, bytes: usize) -> Request {
        let token = Token { epoch: 1, number };
        Request::Update { id: TaskId::MIN, token, sequence, data: vec![0; bytes], acks: Acks::One }
    }

    fn claim(change: impl FnOnce(&mut Claim)) -> Request {
        let (queues, worker) = (vec![queue()], String::new());
        let (claim, repeated, lease_open) = (ClaimId(1), false, false);
        let mut claim = Claim {
            claim,
            repeated,
            queues,
            lease_ms: 1_000,
            wait_ms: 0,
            max: 1,
            worker,
            lease_open,
            session: None,
            depends: Vec::new(),
            confirms: false,
        };
        change(&mut claim);
        Request::Claim(claim)
    }

    fn renew(count: usize, lease_ms: Option<u64>) -> Request {
        Request::Renew { items: vec![(TaskId::MIN, Token::default()); count], lease_ms }
    }

    fn fail(reason: &str, retry_in_ms: u64) -> Request {
        let (id, token) = (TaskId::MIN, Token::default());
        Request::Fail { id, token, reason: reason.to_owned(), retry_in_ms, invalid: false, retry_open: false }
    }

    fn list(limit: u32) -> Request {
        Request::List { queue: None, state: None, after: None, from: None, to: None, limit }
    }

    fn wait(timeout_ms: u64) -> Request {
        Request::Wait { id: TaskId::MIN, timeout_ms }
    }

    fn cancel(reason: String) -> Request {
        Request::Cancel { id: TaskId::MIN, reason, at_ms: 0, acks: Acks::One }
    }

    fn leave(keeps: u32) -> Request {
        Request::Leave { claim: ClaimId(1), elsewhere: true, over: true, keeps: vec![TaskId::MIN; keeps as usize] }
    }

    /// Goal: every limit. Method: a request that just keeps to it, beside one that just does not.
    #[test]
    fn limits_are_kept_to_the_last_and_not_beyond() {
        let text = |bytes: usize| "x".repeat(bytes);
        let good = [
            Request::Hello { name: text(TEXT_BYTES_MAX), bare: true },
            enqueue(BATCH_TASKS_MAX, |_| {}),
            enqueue(8, |spec| spec.payload = vec![0; PAYLOAD_BYTES_MAX]),
            enqueue(1, |spec| spec.headers = headers(HEADERS_MAX, HEADER_BYTES_MAX)),
            update(1, UPDATES_MAX - 1, UPDATE_BYTES_MAX),
            complete(BATCH_TASKS_MAX, 0),
            complete(8, PAYLOAD_BYTES_MAX),
            complete_with((0..CHILDREN_MAX as u32).map(|number| task(number, |_| {})).collect()),
            complete_with(vec![task(1, |spec| spec.payload = vec![0; CHILDREN_BYTES_MAX - 4])]),
            cancel(text(TEXT_BYTES_MAX)),
            wait(WAIT_MS_MAX),
            list(1),
            list(LIST_PAGE_MAX),
            claim(|claim| claim.queues = vec![queue(); CLAIM_QUEUES_MAX]),
            claim(|claim| claim.max = CLAIM_TASKS_MAX),
            claim(|claim| claim.wait_ms = WAIT_MS_MAX),
            claim(|claim| claim.worker = text(TEXT_BYTES_MAX)),
            claim(|claim| claim.lease_ms = LEASE_MS_MIN),
            renew(BATCH_TASKS_MAX, None),
            renew(1, Some(LEASE_MS_MAX)),
            fail(&text(TEXT_BYTES_MAX), DELAY_MS_MAX),
            Request::Status,
            Request::Ping,
            Request::Confirm { claim: ClaimId(1) },
            leave(CLAIM_TASKS_MAX),
        ];
        for request in good {
            assert_eq!(request.check(), Ok(()), "{}", request.verb());
        }
        let bad = [
            Request::Hello { name: text(TEXT_BYTES_MAX + 1), bare: true },
            enqueue(0, |_| {}),
            enqueue(BATCH_TASKS_MAX + 1, |_| {}),
            enqueue(1, |spec| spec.payload = vec![0; PAYLOAD_BYTES_MAX + 1]),
            enqueue(9, |spec| spec.payload = vec![0; PAYLOAD_BYTES_MAX]),
            enqueue(1, |spec| spec.headers = headers(HEADERS_MAX + 1, 1)),
            enqueue(1, |spec| spec.headers = headers(1, HEADER_BYTES_MAX + 1)),
            enqueue(1, |spec| spec.headers = vec![(String::new(), "v".into())]),
            enqueue(500, |spec| spec.headers = headers(HEADERS_MAX, 500)),
            Request::Enqueue { tasks: vec![task(1, |_| {}); 2], acks: Acks::One },
            update(0, 0, 0),
            update(1, UPDATES_MAX, 0),
            update(1, 0, UPDATE_BYTES_MAX + 1),
            complete(0, 0),
            complete(BATCH_TASKS_MAX + 1, 0),
            complete(1, PAYLOAD_BYTES_MAX + 1),
            complete(9, PAYLOAD_BYTES_MAX),
            complete_with((0..=CHILDREN_MAX as u32).map(|number| task(number, |_| {})).collect()),
            complete_with(vec![task(1, |spec| spec.payload = vec![0; CHILDREN_BYTES_MAX - 3])]),
            complete_with(vec![task(1, |_| {}), task(1, |_| {})]),
            cancel(text(TEXT_BYTES_MAX + 1)),
            wait(WAIT_MS_MAX + 1),
            list(0),
            list(LIST_PAGE_MAX + 1),
            claim(|claim| claim.queues.clear()),
            claim(|claim| claim.queues = vec![queue(); CLAIM_QUEUES_MAX + 1]),
            claim(|claim| claim.max = 0),
            claim(|claim| claim.max = CLAIM_TASKS_MAX + 1),
            claim(|claim| claim.wait_ms = WAIT_MS_MAX + 1),
            claim(|claim| claim.worker = text(TEXT_BYTES_MAX + 1)),
            claim(|claim| claim.lease_ms = LEASE_MS_MIN - 1),
            renew(0, None),
            renew(BATCH_TASKS_MAX + 1, None),
            renew(1, Some(LEASE_MS_MAX + 1)),
            leave(CLAIM_TASKS_MAX + 1),
            fail(&text(TEXT_BYTES_MAX + 1), 0),
            fail("", DELAY_MS_MAX + 1),
        ];
        for (index, request) in bad.into_iter().enumerate() {
            let refused = request.check().expect_err(&format!("{index}: {}", request.verb()));
            assert_eq!(refused.code, ErrorCode::Invalid);
        }
    }

    #[test]
    fn the_task_that_breaks_a_limit_is_named() {
        let large = task(2, |spec| spec.payload = vec![0; PAYLOAD_BYTES_MAX + 1]);
        let id = large.id;
        let request = Request::Enqueue { tasks: vec![task(1, |_| {}), large], acks: Acks::One };
        assert_eq!(request.check().unwrap_err().id, Some(id));
    }
}
