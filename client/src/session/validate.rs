//! Refuses, before anything is sent, calls that every node would refuse, and estimates the memory of each call.

use super::{Call, ChangeDraft, Draft, Finish, TransactionDraft};
use norn_wire::error::Error;
use norn_wire::group::Grouping;
use norn_wire::ids::TaskId;
use norn_wire::limits::BATCH_TASKS_MAX;
use norn_wire::request::{Claim, Completion, Request, Spec};
use norn_wire::schedule::ScheduleChange;
use norn_wire::transaction::{self, Change, Transaction};
use norn_wire::validate::{check_children, check_completions, check_delay, check_tasks, check_unique};

/// Estimated memory of a call besides its payloads.
const CALL_BYTES: usize = 512;

/// Checks a call against the limits. Returns its estimated memory in bytes.
pub(super) fn validate(call: &Call) -> Result<usize, Error> {
    let bytes = match call {
        Call::Enqueue { drafts, .. } => {
            let named = drafts.iter().any(has_join);
            drafts.iter().try_for_each(|draft| check_time(draft).and_then(|()| check_named(draft, named)))?;
            check_tasks(drafts.iter().map(|draft| (draft.id, &draft.spec)))?;
            drafts.iter().map(|draft| spec_bytes(&draft.spec)).sum()
        }
        Call::EnqueueUnique { draft } => {
            check_time(draft)?;
            check_named(draft, false)?;
            check_unique(&draft.spec)?;
            check_tasks(std::iter::once((draft.id, &draft.spec)))?;
            spec_bytes(&draft.spec)
        }
        Call::Transact { draft } => check_transaction(draft)?,
        Call::Complete { items, .. } => {
            for Finish { completion, children } in items {
                let named = children.iter().any(has_join);
                let check = |child| check_time(child).and_then(|()| check_named(child, named));
                children.iter().try_for_each(check).map_err(|error| error.about(completion.id))?;
                let specs = children.iter().map(|draft| (draft.id, &draft.spec));
                check_children(specs).map_err(|error| error.about(completion.id))?;
            }
            check_completions(items.iter().map(|item| &item.completion))?;
            items.iter().map(finish_bytes).sum()
        }
        Call::Redrive { id, queue, acks, .. } => {
            Request::Redrive { id: *id, child: TaskId::MIN, queue: queue.clone(), acks: *acks }.check()?;
            0
        }
        Call::LendIds { count, .. } => {
            let count = usize::try_from(*count).unwrap_or(usize::MAX);
            if !(1..=BATCH_TASKS_MAX).contains(&count) {
                return Err(Error::invalid(format!(
                    "{count} ids are asked for; a call lends from 1 to {BATCH_TASKS_MAX}"
                )));
            }
            count * size_of::<TaskId>()
        }
        Call::Request(Request::Hello { .. } | Request::Confirm { .. } | Request::Leave { .. }) => {
            return Err(Error::invalid("sessions say hello, confirm and leave themselves"));
        }
        Call::Request(request) => {
            request.check()?;
            request_bytes(request)
        }
    };
    Ok(bytes + CALL_BYTES)
}

fn check_time(draft: &Draft) -> Result<(), Error> {
    if draft.delay_ms > 0 && draft.spec.not_before_ms > 0 {
        return Err(Error::invalid("a task has a delay or a time, not both; leave one out"));
    }
    if draft.near.is_some() && draft.spec.key.is_some() {
        return Err(Error::invalid("a task lies where its key says, or near another one; leave one of them out"));
    }
    check_delay(draft.delay_ms)
}

/// Checks a transaction. Returns its estimated memory in bytes.
fn check_transaction(draft: &TransactionDraft) -> Result<usize, Error> {
    for ChangeDraft { change, delay_ms } in &draft.changes {
        if delay_ms.is_some() && change.not_before_ms.is_some() {
            let error = Error::invalid("a change names a delay or a time, not both; leave one out");
            return Err(error.about(change.id));
        }
        check_delay(delay_ms.unwrap_or(0)).map_err(|error| error.about(change.id))?;
    }
    let changes: Vec<Change> = draft.changes.iter().map(|draft| draft.change.clone()).collect();
    draft.adds.iter().try_for_each(|add| check_time(add).and_then(|()| check_named(add, false)))?;
    let adds: usize = draft.adds.iter().map(|add| spec_bytes(&add.spec)).sum();
    let carried = Transaction { changes, deletes: draft.deletes.clone(), ..Transaction::default() };
    let bytes = adds + carried.size_bytes();
    let specs = draft.adds.iter().map(|add| (add.id, &add.spec));
    transaction::check(specs, (&carried.changes, &carried.deletes, &draft.depends), bytes)?;
    Ok(bytes)
}

fn grouping(draft: &Draft) -> Option<&Grouping> {
    draft.spec.grouping.as_deref()
}

fn has_join(draft: &Draft) -> bool {
    grouping(draft).is_some_and(|grouping| grouping.join.is_some())
}

/// Checks that a member without a group comes with the join of its group.
fn check_named(draft: &Draft, named: bool) -> Result<(), Error> {
    let unnamed = |grouping: &&Grouping| grouping.member.is_some_and(|member| member.group == TaskId::MIN);
    match grouping(draft).filter(unnamed) {
        Some(grouping) if !named => {
            let number = grouping.member.map_or(0, |member| member.number);
            Err(Error::invalid(format!("member {number} of no group; name its group, or have the join come with it")))
        }
        Some(grouping) if grouping.join.is_some() => Err(Error::invalid("a join is no member of its own group")),
        _ => Ok(()),
    }
}

fn spec_bytes(spec: &Spec) -> usize {
    let headers: usize = spec.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    size_of::<Draft>() + spec.payload.len() + spec.queue.as_str().len() + headers
}

fn completion_bytes(item: &Completion) -> usize {
    let children: usize = item.children.iter().map(|child| spec_bytes(&child.spec)).sum();
    size_of_val(item) + item.result.as_ref().map_or(0, |result| result.len()) + children
}

fn finish_bytes(item: &Finish) -> usize {
    completion_bytes(&item.completion) + item.children.iter().map(|draft| spec_bytes(&draft.spec)).sum::<usize>()
}

fn claim_bytes(claim: &Claim) -> usize {
    claim.queues.iter().map(|queue| queue.as_str().len()).sum()
}

fn schedule_bytes(change: &ScheduleChange) -> usize {
    match change {
        ScheduleChange::Set { schedule, .. } => 1_024 + schedule.payload.len(),
        ScheduleChange::Remove { .. } | ScheduleChange::Pause { .. } => 1_024,
    }
}

fn request_bytes(request: &Request) -> usize {
    match request {
        Request::Enqueue { tasks, .. } => tasks.iter().map(|task| spec_bytes(&task.spec)).sum(),
        Request::EnqueueUnique { task } => spec_bytes(&task.spec),
        Request::Transact(transaction) => transaction.size_bytes(),
        Request::Update { data, .. } => data.len(),
        Request::Complete { items, .. } => items.iter().map(completion_bytes).sum(),
        Request::Cancel { reason, .. } | Request::Fail { reason, .. } => reason.len(),
        Request::Claim(claim) => claim_bytes(claim),
        Request::Renew { items, .. } => size_of_val(items.as_slice()),
        Request::Initialize(genesis) => genesis.assignment.iter().map(|list| 24 + 2 * list.len()).sum(),
        Request::Arrange { nodes, .. } => size_of_val(nodes.as_slice()),
        Request::Join(membership) => membership.genesis.assignment.iter().map(|list| 24 + 2 * list.len()).sum(),
        Request::Change { .. } => 1_024,
        Request::Schedule(change) => schedule_bytes(change),
        Request::Hello { .. }
        | Request::Get { .. }
        | Request::Wait { .. }
        | Request::Watch { .. }
        | Request::List { .. }
        | Request::Count { .. }
        | Request::Queues
        | Request::Release { .. }
        | Request::CloseGroup { .. }
        | Request::Redrive { .. }
        | Request::Purge { .. }
        | Request::Nodes
        | Request::Ring
        | Request::Partitions
        | Request::Status
        | Request::Cluster
        | Request::Schedules { .. }
        | Request::Ping
        | Request::Confirm { .. }
        | Request::Leave { .. }
        | Request::Recover { .. }
        | Request::Identify => 0,
    }
}
