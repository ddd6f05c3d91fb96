//! Verbs that show the cluster: nodes, ring, partitions, status.

use super::error::{Exit, Failure};
use super::operate::overview::{self, Peaks};
use super::output::{Output, Style};
use super::parse;
use super::runner::{Place, unexpected};
use super::{Runner, Transport, counters, nodes_beside, text};
use clap::Args;
use comfy_table::{Attribute, Cell, Color};
use norn_client::api;
use norn_wire::membership::MemberState;
use norn_wire::response::{Agreement, Health, NodeView, PartitionView, Standing, Status};
use norn_wire::{NodeId, Request, Response, State};
use std::collections::BTreeMap;
use std::time::Duration;

const ROOT_CHARACTERS: usize = 12;

/// Lists the nodes of the cluster.
pub(super) async fn nodes<T: Transport>(runner: &mut Runner<T>) -> Result<Exit, Failure> {
    let Response::Nodes(nodes) = runner.request(Request::Nodes).await? else {
        return Err(unexpected("nodes"));
    };
    if runner.output.json() {
        for node in &nodes {
            runner.output.row(&api::Node::from(node))?;
        }
        runner.output.end_rows()?;
        return Ok(Exit::Done);
    }
    let names: BTreeMap<NodeId, String> = nodes.iter().map(|node| (node.node, text::clean(&node.name))).collect();
    let titles = ["NAME", "ADDRESS", "ZONE", "STATE", "#LEADS", "#HOLDS", "#CLOCK", "#ROUND TRIP", "#VERSION", "NODE"];
    let mut table = runner.output.new_table(&titles).spare(&["NODE", "VERSION", "ROUND TRIP", "ZONE"]);
    for node in &nodes {
        table.add_row(node_row(node, &names));
    }
    runner.output.table(&mut table)?;
    Ok(Exit::Done)
}

fn node_row(node: &NodeView, names: &BTreeMap<NodeId, String>) -> [Cell; 10] {
    let unreached: Vec<String> = node.unreached_from.iter().map(|other| name(names, *other)).collect();
    let (heard, color) = match (node.alive, node.this) {
        (true, _) if !unreached.is_empty() => ("alive", Color::Yellow),
        (true, true) => ("answers", Color::Green),
        (true, false) => ("alive", Color::Green),
        (false, _) => ("silent", Color::Red),
    };
    let mut state = match node.state {
        None | Some(MemberState::Up) => heard.to_owned(),
        Some(state) => format!("{heard}, {state}"),
    };
    if !unreached.is_empty() {
        state += &format!(", unreached from {}", unreached.join(" "));
    }
    let state = Cell::new(state).fg(color);
    let offset = match (node.clock_offset_ms, node.clock_error_ms) {
        (Some(ms), Some(error_ms)) => format!("{ms:+}ms ±{error_ms}"),
        (Some(ms), None) => format!("{ms:+}ms"),
        (None, _) => "-".to_owned(),
    };
    let clock = match node.clock {
        Standing::Good | Standing::Unknown => Cell::new(offset),
        Standing::Suspect => Cell::new(format!("{offset} suspect")).fg(Color::Yellow),
        Standing::Fenced => Cell::new(format!("{offset} fenced")).fg(Color::Red),
    };
    let round_trip = match node.round_trip_us {
        None => "-".to_owned(),
        Some(us @ 0..1_000) => format!("{us}us"),
        Some(us) => format!("{}.{}ms", us / 1_000, us % 1_000 / 100),
    };
    [
        Cell::new(text::clean(&node.name)).add_attribute(Attribute::Bold),
        Cell::new(text::clean(&node.address)),
        Cell::new(text::clean(&node.zone)),
        state,
        Cell::new(node.leads),
        Cell::new(node.holds),
        clock,
        Cell::new(round_trip),
        Cell::new(node.version.map_or_else(|| "-".to_owned(), |version| version.to_string())),
        Cell::new(node.node),
    ]
}

/// Returns the names of the nodes, for people. Without an answer it returns none: a table of ids is better than no table.
async fn names<T: Transport>(runner: &Runner<T>) -> BTreeMap<NodeId, String> {
    match runner.request(Request::Nodes).await {
        Ok(Response::Nodes(nodes)) => nodes.into_iter().map(|node| (node.node, text::clean(&node.name))).collect(),
        Ok(_) | Err(_) => BTreeMap::new(),
    }
}

fn name(names: &BTreeMap<NodeId, String>, node: NodeId) -> String {
    names.get(&node).cloned().unwrap_or_else(|| format!("{node:?}"))
}

/// Formats the members, the next members, and draining replicas.
fn cohort(names: &BTreeMap<NodeId, String>, partition: &PartitionView) -> String {
    let list = |nodes: &[NodeId]| nodes.iter().map(|node| name(names, *node)).collect::<Vec<_>>().join(" ");
    let mut text = list(&partition.cohort);
    if !partition.next.is_empty() {
        text += &format!(", then {}", list(&partition.next));
    }
    if !partition.leaving.is_empty() {
        text += &format!(", left by {}", list(&partition.leaving));
    }
    text
}

async fn fetch<T: Transport>(runner: &Runner<T>, request: Request) -> Result<Vec<PartitionView>, Failure> {
    let verb = request.verb();
    match runner.request(request).await? {
        Response::Partitions(partitions) => Ok(partitions),
        _ => Err(unexpected(verb)),
    }
}

/// Shows which nodes hold which partition.
pub(super) async fn ring<T: Transport>(runner: &mut Runner<T>) -> Result<Exit, Failure> {
    let partitions = fetch(runner, Request::Ring).await?;
    if runner.output.json() {
        for partition in &partitions {
            runner.output.row(&api::RingPlace::from(partition))?;
        }
        runner.output.end_rows()?;
        return Ok(Exit::Done);
    }
    let names = names(runner).await;
    let mut table = runner.output.new_table(&["#PARTITION", "NODES, THE PREFERRED ONE FIRST"]);
    for partition in &partitions {
        table.add_row([Cell::new(partition.partition), Cell::new(cohort(&names, partition))]);
    }
    runner.output.table(&mut table)?;
    Ok(Exit::Done)
}

/// Shows leaders, epochs and sizes of the partitions.
pub(super) async fn partitions<T: Transport>(runner: &mut Runner<T>) -> Result<Exit, Failure> {
    let partitions = fetch(runner, Request::Partitions).await?;
    if runner.output.json() {
        for partition in &partitions {
            runner.output.row(&api::Partition::from(partition))?;
        }
        runner.output.end_rows()?;
        return Ok(Exit::Done);
    }
    let names = names(runner).await;
    let titles = [
        "#PARTITION",
        "LEADER",
        "#EPOCH",
        "#APPLIED",
        "#TASKS",
        "#CLAIMS",
        "#TOMBS",
        "HEALTH",
        "AGREES",
        "ROOT",
        "NODES",
    ];
    let spare = &["ROOT", "APPLIED", "EPOCH", "CLAIMS", "TASKS", "TOMBS", "AGREES"];
    let mut table = runner.output.new_table(&titles).spare(spare);
    for partition in &partitions {
        table.add_row(partition_row(partition, &names));
    }
    runner.output.table(&mut table)?;
    Ok(Exit::Done)
}

/// Returns which other replicas differ; if none does, the age of the oldest agreement.
fn agreement(partition: &PartitionView, names: &BTreeMap<NodeId, String>) -> Cell {
    let age = |agreement: &Agreement| match agreement.agreed_ms {
        Some(ms) => format!("{}s ago", ms / 1_000),
        None => "never".to_owned(),
    };
    let apart = |agreement: &Agreement| {
        let tasks = agreement.differing.map_or_else(String::new, |tasks| format!(" by {tasks} tasks"));
        format!("{} apart{tasks}, agreed {}", name(names, agreement.node), age(agreement))
    };
    let all: Vec<String> = partition.agreements.iter().filter(|agreement| agreement.apart).map(apart).collect();
    if !all.is_empty() {
        return Cell::new(all.join("; ")).fg(Color::Yellow);
    }
    // A replica that never agreed comes before all others.
    let oldest = partition.agreements.iter().max_by_key(|agreement| agreement.agreed_ms.unwrap_or(u64::MAX));
    match oldest {
        None => Cell::new("-"),
        Some(Agreement { agreed_ms: Some(0..1_000), .. }) => Cell::new("yes"),
        Some(agreement) => Cell::new(age(agreement)),
    }
}

fn partition_row(partition: &PartitionView, names: &BTreeMap<NodeId, String>) -> [Cell; 11] {
    let held = |count: Option<u64>| count.map_or("-".to_owned(), |count| count.to_string());
    let root = partition.root.as_ref().map_or("-".to_owned(), |root| api::hexadecimal(root));
    let leader = match partition.leader {
        Some(leader) => Cell::new(name(names, leader)),
        None => Cell::new("none").fg(Color::Red),
    };
    let mut tombstones = Cell::new(held(partition.tombstones));
    if !partition.held_up_by.is_empty() {
        let members: Vec<String> = partition.held_up_by.iter().map(|node| name(names, *node)).collect();
        tombstones = Cell::new(format!("{}, waiting for {}", held(partition.tombstones), members.join(", ")));
        tombstones = tombstones.fg(Color::Yellow);
    }
    let health = match partition.health {
        None => Cell::new("-"),
        Some(Health::Whole) => Cell::new(Health::Whole.name()),
        Some(health) => Cell::new(health.name()).fg(Color::Red),
    };
    [
        Cell::new(partition.partition),
        leader,
        Cell::new(partition.epoch),
        Cell::new(partition.applied),
        Cell::new(held(partition.tasks)),
        Cell::new(held(partition.claims)),
        tombstones,
        health,
        agreement(partition, names),
        Cell::new(root.get(..ROOT_CHARACTERS).unwrap_or(&root)),
        Cell::new(cohort(names, partition)),
    ]
}

/// Options that repeat a status.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct StatusArguments {
    /// Repeat until Ctrl-C, every second or at this interval; once if left out
    #[arg(long, value_name = "DUR", num_args = 0..=1, require_equals = true, default_missing_value = "1s",
        value_parser = parse::duration_ms, allow_hyphen_values = true)]
    pub watch: Option<u64>,
}

/// Arguments of `status`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct NodeStatusArguments {
    /// Repetition.
    #[command(flatten)]
    pub status: StatusArguments,
    /// Show the counters of all members side by side, each as reported by that member
    #[arg(long, conflicts_with = "watch")]
    pub nodes: bool,
}

impl NodeStatusArguments {
    pub(super) async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        if self.nodes { nodes_beside::run(runner).await } else { self.status.run(runner, Shown::Node).await }
    }
}

/// Subject of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// The cluster as the answering node counts it.
    Node,
    /// Layout: which nodes hold what, and what moves.
    Layout,
}

impl StatusArguments {
    pub(super) async fn run<T: Transport>(self, runner: &mut Runner<T>, shown: Shown) -> Result<Exit, Failure> {
        let Some(interval_ms) = self.watch else {
            show(runner, shown, None).await?;
            return Ok(Exit::Done);
        };
        if runner.place == Place::Script {
            return Err(Failure::Usage("--watch never ends, so that no further command would be read".to_owned()));
        }
        if interval_ms == 0 {
            return Err(Failure::Usage("--watch needs a time above 0".to_owned()));
        }
        let interrupt = runner.interrupt.clone();
        if let Some(failure) = interrupt.before(watch(runner, shown, Duration::from_millis(interval_ms))).await {
            return Err(failure);
        }
        runner.output.leave_line()?;
        Ok(Exit::Done)
    }
}

async fn status<T: Transport>(runner: &Runner<T>) -> Result<Status, Failure> {
    match runner.request(Request::Status).await? {
        Response::Status(status) => Ok(*status),
        _ => Err(unexpected("status")),
    }
}

/// Shows the status once. When it is repeated, it clears the screen first.
async fn show<T: Transport>(runner: &mut Runner<T>, shown: Shown, peaks: Option<&mut Peaks>) -> Result<(), Failure> {
    let status = status(runner).await?;
    let once = peaks.is_none();
    match shown {
        Shown::Layout => match overview::show(runner, &status, peaks).await {
            // Show what the node knows by itself nevertheless. A program gets one object, or the failure.
            Err(Failure::Call(error)) if error.passes() && once && !runner.output.json() => {
                let short = Status { counters: Vec::new(), ..status };
                print_status(&mut runner.output, &short, None)?;
                Err(Failure::Call(error))
            }
            shown => shown,
        },
        Shown::Node => {
            if peaks.is_some() {
                runner.output.clear()?;
            }
            let lines = peaks.and_then(|_| runner.output.size()).map(|(_, lines)| lines);
            print_status(&mut runner.output, &status, lines)
        }
    }
}

/// Shows the status repeatedly until it fails for good. A temporary outage of the node is shown as part of the status.
async fn watch<T: Transport>(runner: &mut Runner<T>, shown: Shown, interval: Duration) -> Failure {
    let mut peaks = Peaks::default();
    loop {
        let shown = match show(runner, shown, Some(&mut peaks)).await {
            Ok(()) => Ok(()),
            Err(Failure::Call(error)) if error.passes() => {
                runner.output.clear().and_then(|()| runner.output.failure(&Failure::Call(error)))
            }
            Err(failure) => Err(failure),
        };
        if let Err(failure) = shown.and_then(|()| runner.output.flush()) {
            return failure;
        }
        tokio::time::sleep(interval).await;
    }
}

/// Prints a status; on a screen, no more lines than fit.
fn print_status(output: &mut Output, status: &Status, screen: Option<u16>) -> Result<(), Failure> {
    if output.json() {
        return output.object(&api::Status::from(status));
    }
    // The cursor needs a line as well.
    let room = screen.map_or(usize::MAX, |lines| usize::from(lines).saturating_sub(1));
    let mut lines = head(output, status);
    lines.truncate(room);
    lines.iter().try_for_each(|line| output.line(line))?;
    let room = room.saturating_sub(lines.len() + 1);
    if status.counters.is_empty() || room == 0 {
        return Ok(());
    }
    output.line("")?;
    let shown = counters_shown(output, status.counters.len(), room);
    if shown > 0 {
        let mut table = output.new_table(&["COUNTER", "#VALUE", "MEANING"]);
        if screen.is_some() {
            table = table.one_line();
        }
        for (name, value) in status.counters.iter().take(shown) {
            table.add_row([Cell::new(text::clean(name)), Cell::new(value), Cell::new(counters::meaning(name))]);
        }
        output.table(&mut table)?;
    }
    more_counters(output, status.counters.len() - shown).iter().take(room).try_for_each(|line| output.line(line))
}

/// Returns how many of these counters fit into this many lines, below titles and above the count of the others.
fn counters_shown(output: &Output, count: usize, room: usize) -> usize {
    let room = room.saturating_sub(1);
    if count <= room { count } else { room.saturating_sub(more_counters(output, count).len()) }
}

fn more_counters(output: &Output, more: usize) -> Vec<String> {
    if more == 0 {
        return Vec::new();
    }
    let columns = output.size().map_or(usize::MAX, |(columns, _)| columns.into());
    text::wrapped(&format!("and {more} more, which `status` without --watch shows"), columns)
}

/// Returns the lines of a status except its counters.
fn head(output: &Output, status: &Status) -> Vec<String> {
    let share = |label: &str, (total, well): (u32, u32), what: &str| {
        let style = if well == total { Style::Good } else { Style::Bad };
        overview::labelled(output, label, Some(style), &format!("{well} of {total} {what}"))
    };
    let mut lines = overview::cluster(output, &status.name, status.cluster);
    let answered = format!("{}, start {}", status.node, status.boot);
    lines.extend(overview::labelled(output, "answered by", None, &answered));
    lines.extend(share("nodes", status.nodes, "alive"));
    if let Some(warning) = overview::unreached(status) {
        lines.extend(overview::labelled(output, "", Some(Style::Bad), &warning));
    }
    lines.extend(share("partitions", status.partitions, "with a leader"));
    let counts: Vec<String> =
        State::ALL.into_iter().zip(status.counts).map(|(state, count)| format!("{count} {state}")).collect();
    lines.extend(overview::labelled(output, "tasks", None, &counts.join(", ")));
    if status.uncounted > 0 {
        let uncounted = text::number(u64::from(status.uncounted), "partition");
        let warning = format!("without those of {uncounted}, of which no majority can be read");
        lines.extend(overview::labelled(output, "", Some(Style::Bad), &warning));
    }
    lines
}
