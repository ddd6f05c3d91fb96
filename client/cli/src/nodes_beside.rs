//! `status --nodes`: counters of all members, side by side.

use super::error::{Exit, Failure};
use super::runner::unexpected;
use super::{Runner, Transport, text};
use comfy_table::Cell;
use futures_util::{StreamExt, stream};
use norn_client::api;
use norn_wire::response::{NodeView, Status};
use norn_wire::{Error, Request, Response};
use std::collections::BTreeMap;

/// Members asked concurrently.
pub(super) const ASKED_MAX: usize = 16;
/// Width of a counter's name, and of one node's value.
const NAME_CHARACTERS: usize = 28;
const VALUE_CHARACTERS: usize = 16;

/// Asks each present member for its own counters. Shows those that answer; if one does not, the verb ends with its reason.
pub(super) async fn run<T: Transport>(runner: &mut Runner<T>) -> Result<Exit, Failure> {
    let Response::Nodes(nodes) = runner.request(Request::Nodes).await? else {
        return Err(unexpected("nodes"));
    };
    let present = nodes.into_iter().filter(|node| node.state.is_none_or(|state| state.is_present()));
    let mut members: Vec<NodeView> = present.collect();
    members.sort_by(|a, b| a.name.cmp(&b.name));
    let asks = members.iter().map(|member| ask(runner, &member.address));
    let answers: Vec<Result<Status, Error>> = stream::iter(asks).buffered(ASKED_MAX).collect().await;
    let answers: Vec<(&NodeView, Result<Status, Error>)> = members.iter().zip(answers).collect();
    if runner.output.json() {
        for (member, answer) in &answers {
            runner.output.row(&api::NodeCounters::new(member, answer))?;
        }
        runner.output.end_rows()?;
    } else {
        print(runner, &answers)?;
    }
    let silent = |(member, answer): &(&NodeView, Result<Status, Error>)| {
        let error = answer.as_ref().err()?;
        Some(format!(
            "{} at {}: {}",
            text::clean(&member.name),
            text::clean(&member.address),
            text::clean(&error.message)
        ))
    };
    let silent: Vec<String> = answers.iter().filter_map(silent).collect();
    if silent.is_empty() {
        return Ok(Exit::Done);
    }
    // In JSON, each row says itself whether its node was reached.
    if runner.output.json() {
        return Ok(Exit::Unavailable);
    }
    Err(Error::unavailable(format!("not all members answer: {}", silent.join("; "))).into())
}

/// Asks one member for its status, within the time left to the command.
pub(super) async fn ask<T: Transport>(runner: &Runner<T>, address: &str) -> Result<Status, Error> {
    match ask_for(runner, address, Request::Status).await? {
        Response::Status(status) => Ok(*status),
        _ => Err(Error::invalid("what answers there does not say its status; is it a node of this version?")),
    }
}

/// Makes a request to one member, within the time left to the command.
pub(super) async fn ask_for<T: Transport>(
    runner: &Runner<T>,
    address: &str,
    request: Request,
) -> Result<Response, Error> {
    let asked = runner.transport.ask(address, request);
    let answer = match runner.left() {
        Some(left) => tokio::time::timeout(left, asked)
            .await
            .unwrap_or_else(|_| Err(Error::unavailable("no answer within the time of the command"))),
        None => asked.await,
    };
    match answer? {
        Response::Error(error) => Err(error),
        response => Ok(response),
    }
}

/// Prints as many members side by side as fit the screen, the others below.
fn print<T: Transport>(runner: &mut Runner<T>, answers: &[(&NodeView, Result<Status, Error>)]) -> Result<(), Failure> {
    let answered: Vec<(&str, &Status)> =
        answers.iter().filter_map(|(member, answer)| Some((member.name.as_str(), answer.as_ref().ok()?))).collect();
    let columns = runner.output.size().map_or(usize::MAX, |(columns, _)| columns.into());
    let beside = (columns.saturating_sub(NAME_CHARACTERS) / VALUE_CHARACTERS).max(1);
    for (place, part) in answered.chunks(beside).enumerate() {
        if place > 0 {
            runner.output.line("")?;
        }
        let mut rows: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for (column, (_, status)) in part.iter().enumerate() {
            for (counter, value) in &status.counters {
                rows.entry(counter.as_str()).or_insert_with(|| vec![0; part.len()])[column] = *value;
            }
        }
        let names = part.iter().map(|(name, _)| format!("#{}", text::clean(name)));
        let titles: Vec<String> = std::iter::once("COUNTER".to_owned()).chain(names).collect();
        let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
        let mut table = runner.output.new_table(&titles);
        for (counter, values) in rows {
            let cells = std::iter::once(Cell::new(text::clean(counter))).chain(values.into_iter().map(Cell::new));
            table.add_row(cells.collect::<Vec<_>>());
        }
        runner.output.table(&mut table)?;
    }
    Ok(())
}
