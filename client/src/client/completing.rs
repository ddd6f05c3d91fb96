//! Completions that bring tasks, and that may be repeated.
//!
//! The ids of the tasks that a completion brings, and its time, are part of it. A program that repeats such a completion with a new call,
//! since it does not know what became of the first, has other ids and another time, and so is refused as a conflict. Here the ids and the
//! time of the first are found, so that the repeat is the same completion; the cluster decides whether it is.

use super::calling::{Caller, read};
use crate::session::{Call, Finish};
use norn_wire::error::{Error, ErrorCode};
use norn_wire::request::Acks;
use norn_wire::response::{Acked, Response, TaskView};

/// Completes claims. A completion that brings tasks and is refused as a conflict is sent again as the earlier one under its claim, and
/// succeeds if it has the same content.
pub async fn complete(
    caller: &impl Caller,
    items: Vec<Finish>,
    acks: Acks,
) -> Result<Vec<Result<Acked, Error>>, Error> {
    let mut results = sent(caller, items.clone(), acks).await?;
    let mut repeats = Vec::new();
    for (place, (result, item)) in results.iter().zip(items).enumerate() {
        if is_conflict(result)
            && !item.children.is_empty()
            && let Some(again) = as_before(caller, item).await
        {
            repeats.push((place, again));
        }
    }
    if repeats.is_empty() {
        return Ok(results);
    }
    let (places, items): (Vec<usize>, Vec<Finish>) = repeats.into_iter().unzip();
    for (place, result) in places.into_iter().zip(sent(caller, items, acks).await?) {
        if let Some(slot) = results.get_mut(place) {
            *slot = result;
        }
    }
    Ok(results)
}

fn is_conflict(result: &Result<Acked, Error>) -> bool {
    result.as_ref().is_err_and(|error| error.code == ErrorCode::Conflict)
}

async fn sent(caller: &impl Caller, items: Vec<Finish>, acks: Acks) -> Result<Vec<Result<Acked, Error>>, Error> {
    match caller.make(Call::Complete { items, acks }).await? {
        Response::Acked(results) => Ok(results),
        _ => super::answers::unexpected("complete"),
    }
}

/// The completion with the ids and the time of the one that its claim has. Absent if there is none, or if the tasks cannot be told apart
/// from those of other claims.
async fn as_before(caller: &impl Caller, finish: Finish) -> Option<Finish> {
    let task = read(caller, finish.completion.id).await.ok()?;
    adopted(finish, &task)
}

fn adopted(mut finish: Finish, task: &TaskView) -> Option<Finish> {
    let mut completed = task.claims.iter().filter_map(|claim| Some((claim.token, claim.completed_ms?)));
    let (token, at_ms) = completed.next()?;
    let fits = token == finish.completion.token && task.children.len() == finish.children.len();
    if completed.next().is_some() || !fits {
        return None;
    }
    finish.completion.at_ms = at_ms;
    for (child, id) in finish.children.iter_mut().zip(&task.children) {
        // The id of a member follows from its group.
        if child.spec.grouping.as_ref().is_some_and(|grouping| grouping.member.is_some()) {
            continue;
        }
        if child.id.is_some_and(|named| named != *id) {
            return None;
        }
        child.id = Some(*id);
    }
    Some(finish)
}
