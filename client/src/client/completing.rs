//! Completions that bring tasks, and that may be repeated.
//!
//! The ids of the tasks that a completion brings, and its time, are part of it. A program that repeats such a completion with a new call,
//! since it does not know what became of the first, has other ids and another time, and so is refused as a conflict. Here the ids and the
//! time of the first are found, so that the repeat is the same completion; the cluster decides whether it is.

use super::calling::{Caller, read};
use crate::session::{Call, Finish};
use futures_util::future::join_all;
use norn_wire::error::{Error, ErrorCode};
use norn_wire::ids::TaskId;
use norn_wire::request::Acks;
use norn_wire::response::{Acked, Response, TaskView};

/// Tasks that are read at once.
const READS_AT_ONCE: usize = 16;

/// Completes claims. A completion that brings tasks and is refused as a conflict is sent again as the earlier one under its claim, and
/// succeeds if it has the same content.
pub async fn complete(
    caller: &impl Caller,
    items: Vec<Finish>,
    acks: Acks,
) -> Result<Vec<Result<Acked, Error>>, Error> {
    let mut results = sent(caller, items.clone(), acks).await?;
    let refused = results.iter().zip(items).enumerate();
    let refused: Vec<(usize, Finish)> = refused
        .filter(|(_, (result, item))| is_conflict(result) && !item.children.is_empty())
        .map(|(place, (_, item))| (place, item))
        .collect();
    let (mut places, mut repeats) = (Vec::new(), Vec::new());
    for some in refused.chunks(READS_AT_ONCE) {
        let reads = some.iter().map(|(_, item)| read(caller, item.completion.id));
        for ((place, item), task) in some.iter().zip(join_all(reads).await) {
            match task.map(|task| adopted(item.clone(), &task)) {
                Ok(Some(again)) => {
                    places.push(*place);
                    repeats.push(again);
                }
                Ok(None) => {}
                // The refusal would be final, and whether it is true is not known.
                Err(error) if error.passes() => set(&mut results, *place, Err(error.about(item.completion.id))),
                Err(_) => {}
            }
        }
    }
    if repeats.is_empty() {
        return Ok(results);
    }
    let ids: Vec<TaskId> = repeats.iter().map(|item| item.completion.id).collect();
    match sent(caller, repeats, acks).await {
        Ok(again) => places.into_iter().zip(again).for_each(|(place, result)| set(&mut results, place, result)),
        // The others are what they are.
        Err(error) => {
            places.into_iter().zip(ids).for_each(|(place, id)| set(&mut results, place, Err(error.clone().about(id))));
        }
    }
    Ok(results)
}

fn set(results: &mut [Result<Acked, Error>], place: usize, result: Result<Acked, Error>) {
    if let Some(slot) = results.get_mut(place) {
        *slot = result;
    }
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
fn adopted(mut finish: Finish, task: &TaskView) -> Option<Finish> {
    let mut completed = task.claims.iter().filter_map(|claim| Some((claim.token, claim.completed_ms?)));
    let (token, at_ms) = completed.next()?;
    let fits = token == finish.completion.token && task.children.len() == finish.children.len();
    if completed.next().is_some() || !fits {
        return None;
    }
    finish.completion.at_ms = at_ms;
    for (child, id) in finish.children.iter_mut().zip(&task.children) {
        // Delays of tasks without an id of their own count from the time of the completion.
        if child.delay_ms > 0 && child.id.is_none() {
            child.spec.not_before_ms = at_ms.saturating_add(child.delay_ms);
            child.delay_ms = 0;
        }
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
