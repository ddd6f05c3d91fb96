//! A member that stays away is declared gone, and what it held is placed elsewhere.

use super::*;
use norn_model::limits::HEAL_AFTER_MS_MIN as HEAL_AFTER_MS;
use norn_model::metadata::{Metadata, Operation};
use norn_wire::membership::Settings;

/// Allowance for heartbeats to report a silence, and for the periodic check.
const GRACE_MS: u64 = 5_000;

impl Cluster {
    /// A cluster in which an operator has set when a silent member is gone.
    fn healing(size: usize) -> Cluster {
        // Minutes pass: fewer heartbeats mean fewer events.
        let mut cluster =
            Cluster::with_config(size, &Config { heartbeat_ms: 500, election_timeout_ms: 1_500, ..Config::default() });
        cluster.connect_all();
        cluster.advance(GRACE_MS);
        let settings = Settings { heal_after_ms: Some(HEAL_AFTER_MS), ..Settings::default() };
        let change = Box::new(ClusterChange::Settings { settings });
        let response = cluster.ask(0, Request::Change { change, dry_run: false });
        assert!(policies::is_changed(&response), "{response:?}");
        cluster
    }

    fn up(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.nodes.len()).filter(|index| !self.down.contains(index))
    }

    /// The leader of a partition, and its replica there.
    fn led(&self, partition: PartitionId) -> Option<(usize, &Partition)> {
        let replicas = self.up().filter_map(|index| Some((index, self.nodes[index].partitions.get(&partition)?)));
        replicas
            .filter(|(_, replica)| replica.consensus.established())
            .max_by_key(|(_, of)| of.consensus.viewstamp.epoch)
    }

    fn metadata(&self) -> &Metadata {
        let (_, replica) = self.led(PartitionId::METADATA).expect("the root has a leader");
        replica.consensus.table.metadata.as_deref().expect("it is the root's")
    }

    /// Members that are not gone.
    fn present(&self) -> Vec<NodeId> {
        let members = self.metadata().members().values();
        members.filter(|member| member.state.is_present()).map(|member| member.node).collect()
    }

    /// Nodes that were declared gone, in that order.
    fn gone(&self) -> Vec<NodeId> {
        let gone = self.observed.iter().filter_map(|(index, observation)| match observation {
            Observation::DeclaredGone { node } => Some((*index, *node)),
            _ => None,
        });
        gone.map(|(_, node)| node).collect()
    }

    /// Whether each of these tasks is at three members of its partition, which make up the whole cohort.
    fn are_whole(&self, ids: &[TaskId]) -> bool {
        ids.iter().all(|id| {
            let partition = self.nodes[0].partition_of(id);
            let Some((_, replica)) = self.led(partition) else { return false };
            let cohort = replica.cohort();
            let has = |node: NodeId| {
                let index = node.0 as usize - 1;
                let replica = self.nodes[index].partitions.get(&partition).filter(|_| !self.down.contains(&index));
                replica.is_some_and(|replica| replica.store.task(id).is_some())
            };
            cohort.is_stable() && cohort.members().count() == 3 && cohort.members().all(has)
        })
    }

    /// Whether the layout or a cohort still counts on a node.
    fn is_named(&self, node: NodeId) -> bool {
        let metadata = self.metadata();
        let member = metadata.members().iter().find(|(_, member)| member.node == node);
        let in_layout =
            member.is_some_and(|(number, _)| metadata.layout().lists.iter().any(|list| list.contains(number)));
        let ids = (0..PARTITIONS as u16).map(PartitionId).chain([PartitionId::METADATA]);
        in_layout || ids.into_iter().any(|id| self.led(id).is_none_or(|(_, replica)| replica.cohort().has(node)))
    }

    /// Tasks in all partitions, each acknowledged by a majority.
    fn enqueue_everywhere(&mut self, index: usize) -> Vec<TaskId> {
        (0..8).map(|number| self.enqueue(index, b"x", number << 21)).collect()
    }
}

/// Goal: a member that stays away costs nothing but a while with fewer replicas. Method: each node of four stops once, the one that
/// leads the root among them; checked shortly before it counts as gone and after that.
#[test]
fn a_silent_member_is_taken_for_gone_and_what_it_held_is_placed_elsewhere() {
    for stopped in 0..4 {
        let mut cluster = Cluster::healing(4);
        let mut ids = cluster.enqueue_everywhere(stopped);
        let node = cluster.nodes[stopped].founding.node;
        assert!(cluster.is_named(node), "it holds something");
        cluster.down.insert(stopped);
        cluster.advance(1_000);
        ids.extend(cluster.enqueue_everywhere((stopped + 1) % 4));
        cluster.advance(HEAL_AFTER_MS - GRACE_MS);
        assert_eq!(cluster.gone(), [], "it may come back");
        cluster.advance(2 * GRACE_MS);
        assert_eq!(cluster.gone(), [node]);
        cluster.run_until(|cluster| cluster.are_whole(&ids) && !cluster.is_named(node));
        cluster.advance(HEAL_AFTER_MS);
        assert_eq!(cluster.gone(), [node], "everybody else is there");
        assert!(cluster.present().len() == 3 && !cluster.present().contains(&node), "{:?}", cluster.present());
        let last = *ids.last().expect("there are some");
        assert_eq!(cluster.get(cluster.leader(&last), last).spec.payload, b"x");
    }
}

/// Goal: members that are lost together are healed one after the other, so that a leader with a wrong view of the cluster costs one
/// member's data a move and no more. Method: two members stop that leave a majority of each partition, and of which the first can be
/// healed without the second.
#[test]
fn of_two_that_stop_together_the_second_is_gone_once_the_first_is_healed() {
    let mut cluster = Cluster::healing(7);
    let metadata = cluster.metadata();
    let healed_without = |first: u16, second: u16| {
        let mut after = metadata.clone();
        after.apply(&Operation::Remove { number: first }).expect("it is a member");
        let lists = after.plan().expect("a member is gone").lists;
        let with = |lists: &[Vec<u16>]| lists.iter().filter(|list| list.contains(&second)).count();
        let apart = metadata.layout().lists.iter().all(|list| !(list.contains(&first) && list.contains(&second)));
        let held = [first, second].iter().all(|number| metadata.layout().lists.iter().flatten().any(|of| of == number));
        apart && held && with(&lists) == with(&metadata.layout().lists)
    };
    let pairs =
        metadata.members().keys().flat_map(|first| metadata.members().keys().map(move |second| (*first, *second)));
    let (first, second) = pairs.into_iter().find(|(first, second)| healed_without(*first, *second)).expect("of seven");
    let [first, second] = [first, second].map(|number| metadata.members()[&number].node);
    let ids = cluster.enqueue_everywhere(0);
    // One is silent a little longer, so that it is the first.
    for node in [first, second] {
        cluster.down.insert(node.0 as usize - 1);
        cluster.advance(1_000);
    }
    cluster.advance(HEAL_AFTER_MS - GRACE_MS);
    cluster.run_until(|cluster| !cluster.gone().is_empty());
    cluster.run_until(|cluster| {
        assert!(cluster.gone().len() == 1 || !cluster.is_named(first), "{:?} at once", cluster.gone());
        cluster.gone().len() > 1
    });
    assert_eq!(cluster.gone(), [first, second]);
    cluster.run_until(|cluster| cluster.are_whole(&ids) && !cluster.is_named(second));
    assert_eq!(cluster.gone(), [first, second]);
}

/// Goal: nothing stands still if the second of two that stop together is the one that was to take over from the first.
#[test]
fn one_that_was_to_take_over_and_stopped_as_well_is_gone_too() {
    let mut cluster = Cluster::healing(7);
    let metadata = cluster.metadata();
    let waits = |first: u16, second: u16| {
        let mut after = metadata.clone();
        after.apply(&Operation::Remove { number: first }).expect("it is a member");
        let lists = after.plan().expect("a member is gone").lists;
        let before = &metadata.layout().lists;
        let apart = before.iter().all(|list| !(list.contains(&first) && list.contains(&second)));
        let mut moves = before.iter().zip(&lists).filter(|(before, _)| before.contains(&first));
        apart && moves.any(|(_, after)| after.contains(&second))
    };
    let pairs =
        metadata.members().keys().flat_map(|first| metadata.members().keys().map(move |second| (*first, *second)));
    let (first, second) = pairs.into_iter().find(|(first, second)| waits(*first, *second)).expect("of seven");
    let [first, second] = [first, second].map(|number| metadata.members()[&number].node);
    let ids = cluster.enqueue_everywhere(0);
    for node in [first, second] {
        cluster.down.insert(node.0 as usize - 1);
        cluster.advance(1_000);
    }
    cluster.advance(HEAL_AFTER_MS - GRACE_MS);
    cluster.run_until(|cluster| cluster.are_whole(&ids) && !cluster.is_named(first) && !cluster.is_named(second));
    assert_eq!(cluster.gone(), [first, second]);
}

/// Goal: a member that comes back in time stays a member, however often that happens and whichever member was away.
#[test]
fn who_comes_back_before_its_time_is_over_is_left_alone() {
    let mut cluster = Cluster::healing(4);
    for stopped in [3, 3, 0] {
        cluster.down.insert(stopped);
        cluster.advance(HEAL_AFTER_MS - GRACE_MS);
        cluster.restart(stopped);
        cluster.connect_all();
        cluster.advance(GRACE_MS);
    }
    // The next leader of the metadata group has not led it for as long.
    cluster.down.insert(3);
    cluster.advance(HEAL_AFTER_MS - GRACE_MS);
    let (leader, _) = cluster.led(PartitionId::METADATA).expect("the root has a leader");
    cluster.down.insert(leader);
    cluster.run_until(|cluster| cluster.led(PartitionId::METADATA).is_some());
    cluster.restart(leader);
    cluster.connect_all();
    cluster.advance(HEAL_AFTER_MS - GRACE_MS);
    cluster.restart(3);
    cluster.connect_all();
    cluster.advance(HEAL_AFTER_MS);
    assert_eq!(cluster.gone(), []);
    assert_eq!(cluster.present().len(), 4);
}
