//! `cluster recover --unsafe`: partitions go on without a majority of their members, which are lost for good (unsafe recovery).
//!
//! Each surviving node reports which of its partitions have no majority without the lost ones. The latest replica of each is then told to
//! go on. The verb only finds that replica: each surviving replica checks for itself that nothing else is possible. The same verb again
//! resumes where it ended.

use super::super::runner::unexpected;
use super::super::text::{clean, duration, number};
use super::super::{Exit, Failure, Runner, Transport, parse};
use super::not_yet;
use clap::Args;
use comfy_table::Cell;
use norn_client::api::{ChangeState, RecoveredPartition, RecoveryReport};
use norn_wire::limits::LEASE_MS_MAX;
use norn_wire::membership::{MemberState, Remnant};
use norn_wire::response::{NodeView, PartitionView};
use norn_wire::{Error, NodeId, PartitionId, Request, Response};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// Interval of polls.
const LOOK_INTERVAL: Duration = Duration::from_millis(300);
/// Longest time without progress.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Most obstacles shown.
const OBSTACLES_MAX: usize = 5;
/// Most partitions without a replica that are named.
const BEYOND_MAX: usize = 10;

/// Arguments of `cluster recover`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct RecoverArguments {
    /// Accept that data which only the lost nodes have may be lost
    #[arg(long = "unsafe", required_unless_present = "dry_run")]
    pub accepts_loss: bool,
    /// Nodes that never come back: names, or the beginnings of ids
    #[arg(long, value_name = "NODE,...", value_delimiter = ',', required = true)]
    pub lost: Vec<String>,
    /// Upper bound of all leases in use; nothing is granted for this long [default: 1h]
    #[arg(long, value_name = "DUR", value_parser = parse::duration_ms, allow_hyphen_values = true)]
    pub longest_lease: Option<u64>,
    /// Show which partitions would go on with which members, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Stop waiting after this long without progress [default: 1m]
    #[arg(long, value_name = "DUR", value_parser = parse::duration_ms, allow_hyphen_values = true)]
    pub timeout: Option<u64>,
}

/// Partition, and the node whose replica is to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Plan {
    node: NodeId,
    remnant: Remnant,
}

/// Partitions with the same plan: the node with the latest replica, the survivors, and the members.
type Group<'a> = (NodeId, &'a [NodeId], &'a [NodeId]);

/// Nodes as one of them sees them.
struct Nodes {
    views: Vec<NodeView>,
    lost: Vec<NodeId>,
}

impl Nodes {
    fn new(views: Vec<NodeView>, lost: &[String]) -> Result<Nodes, Failure> {
        let mut nodes = Nodes { views, lost: Vec::new() };
        let lost: BTreeSet<NodeId> = lost.iter().map(|text| nodes.find(text)).collect::<Result<_, _>>()?;
        nodes.lost = lost.into_iter().collect();
        Ok(nodes)
    }

    fn find(&self, text: &str) -> Result<NodeId, Failure> {
        let present = || self.views.iter().filter(|view| view.state != Some(MemberState::Gone));
        let named: Vec<&NodeView> = present().filter(|view| view.name == text).collect();
        let begins = |view: &&NodeView| text.len() >= 4 && view.node.to_string().starts_with(text);
        let found = if named.is_empty() { present().filter(begins).collect() } else { named };
        match found[..] {
            [view] => Ok(view.node),
            _ => {
                let known: Vec<String> = present().map(|view| clean(&view.name)).collect();
                let (text, known) = (clean(text), known.join(", "));
                Err(Failure::invalid(format!("{text:?} is not the one member that is meant; the members are {known}")))
            }
        }
    }

    fn name(&self, node: NodeId) -> String {
        let found = self.views.iter().find(|view| view.node == node);
        found.map_or_else(|| format!("{node:?}"), |view| clean(&view.name))
    }

    fn names(&self, nodes: &[NodeId]) -> String {
        nodes.iter().map(|node| self.name(*node)).collect::<Vec<_>>().join(" ")
    }

    fn left(&self) -> impl Iterator<Item = &NodeView> {
        self.views.iter().filter(|view| view.state != Some(MemberState::Gone) && !self.lost.contains(&view.node))
    }

    /// Refuses if all live members are named as lost: the node that answers is one of them.
    fn check_left(&self) -> Result<(), Failure> {
        if self.left().any(|view| view.alive) {
            return Ok(());
        }
        let names = |views: Vec<&NodeView>| self.names(&views.iter().map(|view| view.node).collect::<Vec<_>>());
        let lost = |view: &&NodeView| self.lost.contains(&view.node);
        let there = names(self.views.iter().filter(lost).filter(|view| view.alive).collect());
        let left = match names(self.left().collect()) {
            none if none.is_empty() => "no member is left that partitions could go on with".to_owned(),
            silent => format!("of those that are left ({silent}) none is heard: start one of them"),
        };
        Err(Failure::invalid(format!(
            "nothing was changed: of those named as lost {there} can be heard, and {left}. Name only nodes that never come back"
        )))
    }

    /// Refuses to report success if no partition goes on, unless all of them have gone on already.
    fn check_use(&self, beyond: &[PartitionId]) -> Result<(), Failure> {
        let lost = self.names(&self.lost);
        let majority = "nothing was changed: every partition of which a member is left has a majority";
        if !beyond.is_empty() {
            let count = number(beyond.len() as u64, "partition");
            return Err(Failure::invalid(format!(
                "{majority}, and of {count} no member is left: {}. Start one of {lost} again, be it on another machine with its old \
                 disk, and name the others as lost. Do not remove them as long as a disk of them may come back",
                some_of(beyond)
            )));
        }
        let heard: Vec<NodeId> = self.views.iter().filter(|view| view.alive).map(|view| view.node).collect();
        let heard: Vec<NodeId> = self.lost.iter().copied().filter(|node| heard.contains(node)).collect();
        if heard.is_empty() {
            return Ok(());
        }
        let heard = self.names(&heard);
        Err(Failure::invalid(format!(
            "{majority}, and of those named as lost {heard} can be heard: a member that runs is drained, and then removed"
        )))
    }
}

/// Formats some partitions, and the number of the others.
fn some_of(partitions: &[PartitionId]) -> String {
    let ids: Vec<String> = partitions.iter().take(BEYOND_MAX).map(PartitionId::to_string).collect();
    match partitions.len().saturating_sub(BEYOND_MAX) {
        0 => ids.join(" "),
        more => format!("{} and {more} more", ids.join(" ")),
    }
}

impl RecoverArguments {
    pub(super) async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        let lease_ms = self.longest_lease.unwrap_or(LEASE_MS_MAX);
        let Response::Nodes(views) = runner.request(Request::Nodes).await? else { return Err(unexpected("nodes")) };
        let nodes = Nodes::new(views, &self.lost)?;
        nodes.check_left()?;
        let Response::Partitions(ring) = runner.request(Request::Ring).await? else { return Err(unexpected("ring")) };
        let plans = survey(runner, &nodes, lease_ms).await?;
        let beyond = beyond(&ring, &nodes.lost);
        if plans.is_empty() && !self.dry_run {
            nodes.check_use(&beyond)?;
        }
        if !runner.output.json() {
            self.tell(runner, &nodes, &plans, &beyond, lease_ms)?;
        }
        if self.dry_run || plans.is_empty() {
            let state = if self.dry_run { ChangeState::Planned } else { ChangeState::Done };
            return conclude(runner, &nodes, state, &plans, &beyond);
        }
        self.go_on(runner, &nodes, plans.clone(), lease_ms).await?;
        if !runner.output.json() {
            let (count, lost) = (number(plans.len() as u64, "partition"), nodes.names(&nodes.lost));
            let next = match beyond.len() as u64 {
                0 => "take the lost out now: `norn cluster remove NODE --no-wait`".to_owned(),
                left => format!(
                    "do not remove the lost as long as a disk of them may come back: of {} no other member is left",
                    number(left, "partition")
                ),
            };
            runner.output.line(&format!("done: {count} without {lost}; {next}"))?;
        }
        conclude(runner, &nodes, ChangeState::Done, &plans, &beyond)
    }

    /// Has the latest replicas go on, and polls until no partition is left to recover.
    async fn go_on<T: Transport>(
        &self,
        runner: &Runner<T>,
        nodes: &Nodes,
        mut plans: Vec<Plan>,
        lease_ms: u64,
    ) -> Result<(), Failure> {
        let patience = self.timeout.map_or(TIMEOUT, Duration::from_millis);
        let mut moved = Instant::now();
        loop {
            let obstacles: Vec<String> = plans.iter().filter_map(|plan| obstacle(nodes, plan)).collect();
            // Obstacles may pass, for example while nodes only just notice which nodes are silent.
            let over = moved.elapsed() >= patience;
            if over && !obstacles.is_empty() {
                let more = obstacles.len().saturating_sub(OBSTACLES_MAX);
                let told = obstacles[..obstacles.len().min(OBSTACLES_MAX)].join("; ");
                let more = if more > 0 { format!("; and {more} more") } else { String::new() };
                return Err(Failure::invalid(format!("not all can go on: {told}{more}")));
            }
            if over {
                let count = number(plans.len() as u64, "partition");
                return Err(not_yet(format!("{count} did not go on in {patience:?}; the same command tries again")));
            }
            let mut asked: BTreeMap<NodeId, Vec<PartitionId>> = BTreeMap::new();
            for plan in plans.iter().filter(|plan| plan.remnant.obstacle.is_none()) {
                asked.entry(plan.node).or_default().push(plan.remnant.partition);
            }
            for (node, partitions) in asked {
                let Some(view) = nodes.views.iter().find(|view| view.node == node) else { continue };
                let request = Request::Recover { lost: nodes.lost.clone(), partitions, lease_ms };
                // Ignore the answer: the next poll shows the effect.
                let _ = runner.transport.ask(&view.address, request).await;
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
            let open = survey(runner, nodes, lease_ms).await?;
            if open.is_empty() {
                return Ok(());
            }
            if open.len() < plans.len() {
                moved = Instant::now();
            }
            plans = open;
        }
    }

    fn tell<T: Transport>(
        &self,
        runner: &mut Runner<T>,
        nodes: &Nodes,
        plans: &[Plan],
        beyond: &[PartitionId],
        lease_ms: u64,
    ) -> Result<(), Failure> {
        let (output, lost) = (&mut runner.output, nodes.names(&nodes.lost));
        if plans.is_empty() {
            output.line(&format!("every partition that anybody is left of has a majority without {lost}"))?;
        } else {
            let mut groups: BTreeMap<Group<'_>, Vec<&Remnant>> = BTreeMap::new();
            for plan in plans {
                let key = (plan.node, &plan.remnant.left[..], &plan.remnant.cohort[..]);
                groups.entry(key).or_default().push(&plan.remnant);
            }
            let mut table = output
                .new_table(&["LATEST", "LEFT", "OF", "#PARTITIONS", "ROOT", "#TASKS", "#CLAIMS"])
                .spare(&["OF", "CLAIMS"]);
            for ((node, left, cohort), remnants) in groups {
                let sum = |what: fn(&Remnant) -> u64| remnants.iter().map(|remnant| what(remnant)).sum::<u64>();
                let root = remnants.iter().any(|remnant| remnant.partition == PartitionId::METADATA);
                table.add_row([
                    Cell::new(nodes.name(node)),
                    Cell::new(nodes.names(left)),
                    Cell::new(nodes.names(cohort)),
                    Cell::new(remnants.len() - usize::from(root)),
                    Cell::new(if root { "yes" } else { "" }),
                    Cell::new(sum(|remnant| remnant.tasks)),
                    Cell::new(sum(|remnant| remnant.claims)),
                ]);
            }
            output.table(&mut table)?;
            let wait = duration(lease_ms);
            output.note(&format!(
                "what only {lost} had is lost: tasks, updates, endings and claims that were acknowledged, too. Claims that \
                 no replica is left to know of may be worked on, so nothing is granted in these partitions for {wait}, or for as long \
                 as the longest lease that is known there. Where only {lost} knew that a task in a queue of mode `holder` \
                 had ended, a second worker may end it, and be told so. Never start {lost} again with their old data"
            ))?;
        }
        if !beyond.is_empty() {
            let (count, ids) = (number(beyond.len() as u64, "partition"), some_of(beyond));
            output.note(&format!(
                "of {count} no replica is left, and nothing can be done without one of {lost}: {ids}"
            ))?;
        }
        output.flush()
    }
}

/// Asks all surviving nodes, and picks the latest replica of each partition.
async fn survey<T: Transport>(runner: &Runner<T>, nodes: &Nodes, lease_ms: u64) -> Result<Vec<Plan>, Failure> {
    let mut plans: BTreeMap<PartitionId, Plan> = BTreeMap::new();
    let mut heard = false;
    let mut failure = None;
    for view in nodes.left() {
        let request = Request::Recover { lost: nodes.lost.clone(), partitions: Vec::new(), lease_ms };
        let remnants = match runner.transport.ask(&view.address, request).await {
            Ok(Response::Remnants(remnants)) => remnants,
            Ok(Response::Error(error)) | Err(error) => {
                failure = Some(Error { message: format!("{}: {}", clean(&view.name), error.message), ..error });
                continue;
            }
            Ok(_) => return Err(unexpected("recover")),
        };
        heard = true;
        for remnant in remnants {
            let plan = Plan { node: view.node, remnant };
            let rank = |plan: &Plan| (plan.remnant.epoch, plan.remnant.length);
            match plans.get(&plan.remnant.partition) {
                Some(other) if rank(other) >= rank(&plan) => {}
                _ => {
                    plans.insert(plan.remnant.partition, plan);
                }
            }
        }
    }
    match failure {
        Some(error) if !heard => Err(error.into()),
        _ => Ok(plans.into_values().collect()),
    }
}

/// Returns the partitions without a surviving member.
fn beyond(ring: &[PartitionView], lost: &[NodeId]) -> Vec<PartitionId> {
    let gone = |view: &&PartitionView| view.cohort.iter().chain(&view.next).all(|node| lost.contains(node));
    ring.iter().filter(gone).map(|view| view.partition).collect()
}

fn obstacle(nodes: &Nodes, plan: &Plan) -> Option<String> {
    let why = plan.remnant.obstacle.as_ref()?;
    Some(format!("partition {} at {}: {}", plan.remnant.partition, nodes.name(plan.node), clean(why)))
}

fn conclude<T: Transport>(
    runner: &mut Runner<T>,
    nodes: &Nodes,
    state: ChangeState,
    plans: &[Plan],
    beyond: &[PartitionId],
) -> Result<Exit, Failure> {
    if runner.output.json() {
        let line = |Plan { node, remnant }: &Plan| RecoveredPartition {
            partition: remnant.partition,
            node: *node,
            left: remnant.left.clone(),
            cohort: remnant.cohort.clone(),
            tasks: remnant.tasks,
            claims: remnant.claims,
            obstacle: remnant.obstacle.as_ref().map(|obstacle| obstacle.clone().into()),
        };
        let partitions = plans.iter().map(line).collect();
        let (change, lost, beyond) = ("recover".into(), nodes.lost.clone(), beyond.into());
        runner.output.object(&RecoveryReport { change, state, lost, partitions, beyond })?;
    }
    Ok(Exit::Done)
}
