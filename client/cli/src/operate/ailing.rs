//! Reasons for missing progress that the metadata group cannot know: what each member reports of itself, and why one does not answer.

use super::super::nodes_beside::{ASKED_MAX, ask};
use super::super::text::clean;
use super::super::{Call, Runner, Transport};
use futures_util::{StreamExt, stream};
use norn_wire::response::{NodeView, Status};
use norn_wire::{Error, ErrorCode, Request, Response};
use std::collections::BTreeMap;
use std::time::Duration;

/// Most members named in a message.
const NAMED_MAX: usize = 5;

/// Returns the members that are not reached or are short of disk, with what to do about each. Empty if no node lists the members in time.
pub async fn reasons<T: Transport>(runner: &Runner<T>, timeout: Duration) -> Vec<String> {
    let call = Call::Request(Request::Nodes);
    let Ok(Response::Nodes(nodes)) = runner.transport.call(call, Some(timeout)).await else { return Vec::new() };
    let names: BTreeMap<_, _> = nodes.iter().map(|node| (node.node, clean(&node.name))).collect();
    let present: Vec<&NodeView> =
        nodes.iter().filter(|node| node.state.is_none_or(|state| state.is_present())).collect();
    let asks = present.iter().map(|member| ask(runner, &member.address));
    let answers: Vec<Result<Status, Error>> = stream::iter(asks).buffered(ASKED_MAX).collect().await;
    let mut reasons: Vec<String> =
        present.iter().zip(&answers).filter_map(|(member, answer)| of_member(member, answer)).collect();
    for member in present.iter().filter(|member| !member.unreached_from.is_empty()) {
        let others: Vec<&str> =
            member.unreached_from.iter().filter_map(|node| names.get(node)).map(String::as_str).collect();
        reasons.push(format!("{} is not reached from {}", clean(&member.name), others.join(" ")));
    }
    let more = reasons.len().saturating_sub(NAMED_MAX);
    reasons.truncate(NAMED_MAX);
    if more > 0 {
        reasons.push(format!("{more} more such members"));
    }
    reasons
}

fn of_member(member: &NodeView, answer: &Result<Status, Error>) -> Option<String> {
    let (name, address) = (clean(&member.name), clean(&member.address));
    match answer {
        // This program cannot ask single nodes.
        Err(error) if error.code == ErrorCode::Unsupported => None,
        Err(error) => Some(format!("{name} at {address} does not answer this command: {}", clean(&error.message))),
        Ok(status) => {
            let counts =
                |counter: &str| status.counters.iter().any(|(counted, value)| counted == counter && *value > 0);
            if counts("disk_bounded") {
                return Some(format!("{name} takes nothing new, by its setting `disk_bytes_max`: raise that"));
            }
            let short = format!("{name} is short of disk and takes nothing new: make room there");
            counts("disk_short").then_some(short)
        }
    }
}
