//! `cluster move`: moves one partition to the given nodes.

use super::super::parse;
use super::super::{Exit, Failure, Runner, Transport};
use super::change::{CourseArguments, Texts, Wish};
use super::follow::Goal;
use super::survey::Survey;
use clap::Args;
use norn_wire::limits::NODES_OF_PARTITION_MAX;
use norn_wire::membership::ClusterChange;
use norn_wire::{NodeId, PartitionId};

/// Arguments of `cluster move`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct MoveArguments {
    /// Number of the partition; `partitions` lists them
    #[arg(value_name = "PARTITION", value_parser = parse::partition, allow_negative_numbers = true)]
    pub partition: u16,
    /// Names, or beginnings of the ids, of all members to hold it, the preferred leader first
    #[arg(value_name = "NODE", required = true, value_delimiter = ',')]
    pub nodes: Vec<String>,
    /// How to carry the change out
    #[command(flatten)]
    pub course: CourseArguments,
}

impl MoveArguments {
    pub(super) async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        let survey = Survey::take(runner, None).await?;
        let partition = PartitionId(self.partition);
        let nodes = self.check(&survey)?;
        let names = survey.names(&nodes);
        let told = Texts {
            already: format!("partition {partition} shall be at {names} already"),
            begun: format!("partition {partition} moves to {names}"),
            done: format!("partition {partition} is at {names}"),
        };
        let change = ClusterChange::Arrange { partition, nodes: nodes.clone() };
        let wish = Wish { goal: Goal::Held(partition, nodes), ..Wish::new("move", change, told) };
        wish.carry_out(runner, &self.course).await
    }

    /// Checks and returns the nodes to hold it.
    fn check(&self, survey: &Survey) -> Result<Vec<NodeId>, Failure> {
        let Some(partition) = survey.partition(PartitionId(self.partition)) else {
            let last = survey.partitions.len().saturating_sub(1);
            let message = format!("there is no partition {}; they are numbered from 0 to {last}", self.partition);
            return Err(Failure::invalid(message));
        };
        let mut nodes: Vec<NodeId> = Vec::with_capacity(self.nodes.len());
        for text in &self.nodes {
            let node = survey.find(text)?.node;
            if nodes.contains(&node) {
                return Err(Failure::invalid("a node is named twice; each holds a partition once"));
            }
            nodes.push(node);
        }
        if nodes.len() > NODES_OF_PARTITION_MAX {
            let message =
                format!("{} nodes are too many: at most {NODES_OF_PARTITION_MAX} hold a partition", nodes.len());
            return Err(Failure::invalid(message));
        }
        let is_new = |node: &&NodeId| !partition.cohort.contains(node) && !survey.is_alive(**node);
        let dead: Vec<&NodeId> = nodes.iter().filter(is_new).collect();
        if !dead.is_empty() {
            return Err(Failure::invalid(format!(
                "{} is down and cannot take the partition; start it, or name another member",
                survey.names(dead)
            )));
        }
        Ok(nodes)
    }
}
