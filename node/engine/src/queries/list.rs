//! Lists: pages of tasks in the order of their ids, merged from the replicas, in bounded memory.
//!
//! A list asks every node it can reach, leaders among them. So it would show an operation that only the leader has appended, while a read
//! of the task may ask two other replicas and show less. Therefore a list does not show what only a minority has.

use crate::Node;
use crate::event::ClientId;
use crate::write_read::PendingRequest;
use crate::write_read::read::{Seen, combine, view};
use norn_model::claim_table::entry::ClaimEntry;
use norn_model::cohort::Cohort;
use norn_model::limits::{LIST_BYTES_MAX, LIST_SCAN_MAX};
use norn_model::message::{Known, PeerMessage, Query};
use norn_model::ring;
use norn_model::task::{Outline, Task};
use norn_model::viewstamp::Viewstamp;
use norn_wire::error::Error;
use norn_wire::response::Page;
use norn_wire::{NodeId, PartitionId, QueueName, Response, State, TaskId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// The filter and bounds of a list.
#[derive(Debug, Clone)]
pub struct Selection {
    /// Only this queue.
    pub queue: Option<QueueName>,
    /// Only this state.
    pub state: Option<State>,
    /// Only ids after this.
    pub after: Option<TaskId>,
    /// Only ids up to this.
    pub to: Option<TaskId>,
    /// Most tasks wanted.
    pub limit: u32,
}

/// A pending page.
#[derive(Debug)]
pub struct PendingList {
    /// The waiting client.
    pub client: ClientId,
    number: u64,
    selection: Selection,
    /// Tasks by node.
    answers: BTreeMap<NodeId, Answer>,
    /// Time of giving up.
    pub deadline_us: u64,
}

#[derive(Debug)]
struct Answer {
    partitions: BTreeMap<PartitionId, Viewstamp>,
    tasks: Vec<(TaskId, Known)>,
    /// Complete up to here.
    end: Option<TaskId>,
}

impl PendingList {
    /// Whether a majority of the members, as one version of the cohort names them, speaks for the partition.
    fn is_heard(&self, partition: PartitionId, cohort: &Cohort) -> bool {
        let at = |node: NodeId| self.answers.get(&node).and_then(|answer| answer.partitions.get(&partition));
        cohort.members_quorum(|node| at(node) == Some(&cohort.version))
    }
}

impl Node {
    pub(crate) fn list(&mut self, client: ClientId, number: u64, selection: Selection) {
        let deadline_us = self.now.mono_after_ms(self.config.request_timeout_ms);
        let request_id = self.pending_requests.open(PendingRequest::List(PendingList {
            client,
            number,
            selection,
            answers: BTreeMap::new(),
            deadline_us,
        }));
        self.send_list_asks(request_id);
    }

    /// Asks every node that has not answered.
    pub(crate) fn send_list_asks(&mut self, request_id: u64) {
        let Some(PendingRequest::List(list)) = self.pending_requests.get(request_id) else { return };
        let Selection { queue, after, to, limit, .. } = list.selection.clone();
        let nodes: Vec<NodeId> = self.others().chain([self.me]).collect();
        // If every live node has answered and the page is still open, cohorts have changed meanwhile and too few answers are of one
        // version: all nodes are asked again.
        let late = self.now.mono_us + self.config.resend_ms * 2_000 < list.deadline_us;
        let all = nodes.iter().all(|node| list.answers.contains_key(node) || !self.is_alive(*node)) && late;
        let silent: Vec<NodeId> = nodes.into_iter().filter(|node| all || !list.answers.contains_key(node)).collect();
        for node in silent {
            let queue = queue.clone();
            self.outbox.send(node, Query::ListAsk { request_id, partition: None, queue, after, to, limit });
        }
        self.set_request_timer(request_id);
        self.conclude_list(request_id);
    }

    pub(crate) fn on_list_ask(
        &mut self,
        from: NodeId,
        request_id: u64,
        (partition, queue): (Option<PartitionId>, Option<QueueName>),
        (after, to): (Option<TaskId>, Option<TaskId>),
        limit: u32,
    ) {
        let chosen = |id: &PartitionId| partition.is_none_or(|partition| partition == *id);
        let partitions: Vec<PartitionId> = self.partitions.keys().copied().filter(chosen).collect();
        let mut sources: Vec<_> = partitions.iter().map(|id| self.partitions[id].store.after(after)).collect();
        let mut heads: BinaryHeap<Reverse<(TaskId, usize)>> = BinaryHeap::new();
        let mut current: Vec<Option<(&TaskId, &Task<Outline>)>> = sources.iter_mut().map(Iterator::next).collect();
        heads
            .extend(current.iter().enumerate().filter_map(|(source, head)| head.map(|(id, _)| Reverse((*id, source)))));
        let (mut tasks, mut lacks, mut end, mut scanned, mut bytes) = (Vec::new(), Vec::new(), None, 0, 0);
        while let Some(Reverse((id, source))) = heads.peek().copied() {
            let full = tasks.len() >= limit as usize || scanned >= LIST_SCAN_MAX || bytes >= LIST_BYTES_MAX;
            if full || to.is_some_and(|to| id > to) {
                break;
            }
            heads.pop();
            scanned += 1;
            end = Some(id);
            let (_, task) = current[source].take().expect("the heap holds current heads");
            let fits = queue.as_ref().is_none_or(|queue| task.spec.as_ref().is_some_and(|spec| spec.queue == *queue));
            if fits && let Some((known, wanted)) = self.known(partitions[source], &id) {
                bytes += task.size_bytes() + known.entry.as_ref().map_or(0, ClaimEntry::size_bytes);
                lacks.extend(wanted.into_iter().map(|wanted| (tasks.len(), wanted)));
                tasks.push((id, known));
            }
            current[source] = sources[source].next();
            heads.extend(current[source].map(|(id, _)| Reverse((*id, source))));
        }
        let exhausted = heads.peek().is_none_or(|Reverse((id, _))| to.is_some_and(|to| *id > to));
        let end = if exhausted { None } else { end };
        // The answer does not speak for partitions of which this node may have lost something.
        let whole = |id: &PartitionId| self.speaks_for(*id);
        let version = |id: PartitionId| (id, self.partitions[&id].cohort().version);
        let partitions = partitions.iter().copied().filter(whole).map(version).collect();
        drop(sources);
        self.send_whole(
            from,
            PeerMessage::Query(Query::ListAnswer { request_id, partitions, tasks, end }),
            lacks,
            false,
        );
    }

    pub(crate) fn on_list_answer(
        &mut self,
        from: NodeId,
        request_id: u64,
        partitions: &[(PartitionId, Viewstamp)],
        mut tasks: Vec<(TaskId, Known)>,
        end: Option<TaskId>,
    ) {
        let Some(PendingRequest::List(list)) = self.pending_requests.get_mut(request_id) else { return };
        tasks.iter_mut().for_each(|(_, known)| known.take_losses());
        list.answers.insert(from, Answer { partitions: partitions.iter().copied().collect(), tasks, end });
        self.conclude_list(request_id);
    }

    /// Answers once every reachable node has answered, and every partition was heard from a majority.
    fn conclude_list(&mut self, request_id: u64) {
        let Some(genesis) = self.genesis.clone() else { return };
        let Some(PendingRequest::List(list)) = self.pending_requests.get(request_id) else { return };
        let alive = self.others().chain([self.me]).filter(|node| self.is_alive(*node));
        let all = alive.into_iter().all(|node| list.answers.contains_key(&node));
        let heard = |partition: PartitionId| list.is_heard(partition, &self.cohort_of(partition));
        if !all || !(0..genesis.partitions as u16).map(PartitionId).all(heard) {
            return;
        }
        let Some(PendingRequest::List(list)) = self.close_request(request_id) else { return };
        let cohorts: Vec<Cohort> = (0..genesis.partitions as u16).map(|id| self.cohort_of(PartitionId(id))).collect();
        let cohort = |id: &TaskId| &cohorts[usize::from(ring::partition_of_task(id, genesis.partitions).0)];
        let page = merge(list.answers, &list.selection, self.now.wall_ms, cohort);
        self.outbox.reply(list.client, list.number, Response::Page(page));
    }

    pub(crate) fn list_deadline(&mut self, request_id: u64) {
        let Some(PendingRequest::List(list)) = self.pending_requests.get(request_id) else { return };
        let error = Error::unavailable(self.unlisted(list));
        let Some(PendingRequest::List(list)) = self.close_request(request_id) else { return };
        self.outbox.reply(list.client, list.number, Response::Error(error));
    }

    /// The reason why a page is not complete: the first partition that no majority speaks for, or else a node that has not answered.
    fn unlisted(&self, list: &PendingList) -> String {
        let partitions = self.genesis.as_ref().map_or(0, |genesis| genesis.partitions) as u16;
        let open = (0..partitions).map(PartitionId).find(|id| !list.is_heard(*id, &self.cohort_of(*id)));
        let Some(partition) = open else {
            let silent = self.others().find(|node| self.is_alive(*node) && !list.answers.contains_key(node));
            let name = silent.map_or_else(String::new, |node| format!(" by {}", self.name_of(node)));
            return format!("the list was not answered{name} in time; repeat the call");
        };
        let cohort = self.cohort_of(partition);
        let of = |node: NodeId| match list.answers.get(&node).map(|answer| answer.partitions.get(&partition)) {
            None => "no answer",
            Some(None) => "lacks a part, which others are to give it",
            Some(Some(version)) if *version != cohort.version => "answered of another cohort",
            Some(Some(_)) => "answered",
        };
        let said: Vec<_> = cohort.members().map(|node| format!("{}: {}", self.name_of(node), of(node))).collect();
        let said = said.join(", ");
        format!("no majority of the replicas of partition {} was heard in time ({said}); repeat the call", partition.0)
    }
}

/// The table whose entry for a task a page shows: of those heard, the newest that a majority may have. Operations that only the leader
/// has appended are left out, as a read may ask other replicas. Every committed operation is in it.
fn agreed(cohort: &Cohort, several: &[(NodeId, Known)]) -> Viewstamp {
    let tables = || several.iter().map(|(_, known)| known.viewstamp);
    let newest = tables().max().unwrap_or_default();
    // A node that was not heard for certain may have any table.
    let may_have = |node: NodeId, at: Viewstamp| {
        let answer = several.iter().find(|(from, _)| *from == node).map(|(_, known)| known);
        answer.is_none_or(|known| known.incomplete || known.at != cohort.version || known.viewstamp >= at)
    };
    let of_majority = tables().filter(|at| cohort.members_quorum(|node| may_have(node, *at))).max();
    // The table of another epoch need not be a prefix of the newest one.
    of_majority.filter(|at| at.epoch == newest.epoch).unwrap_or(newest)
}

/// Combines what several nodes of a cohort know of a task.
fn seen(cohort: &Cohort, several: Vec<(NodeId, Known)>) -> Seen {
    let at = agreed(cohort, &several);
    let entry = several.iter().find(|(_, known)| known.viewstamp == at).and_then(|(_, known)| known.entry.clone());
    Seen { entry, ..combine(several.into_iter().map(|(_, known)| known)) }
}

/// One page from the answers of several nodes, complete up to where the shortest of them ends.
fn merge<'a>(
    answers: BTreeMap<NodeId, Answer>,
    selection: &Selection,
    wall_ms: u64,
    cohort: impl Fn(&TaskId) -> &'a Cohort,
) -> Page {
    let end = answers.values().filter_map(|answer| answer.end).min();
    let mut known: BTreeMap<TaskId, Vec<(NodeId, Known)>> = BTreeMap::new();
    for (node, (id, one)) in
        answers.into_iter().flat_map(|(node, answer)| answer.tasks.into_iter().map(move |it| (node, it)))
    {
        if end.is_none_or(|end| id <= end) {
            known.entry(id).or_default().push((node, one));
        }
    }
    let mut tasks = Vec::new();
    let mut next = end;
    for (id, several) in known {
        if tasks.len() >= selection.limit as usize {
            next = tasks.last().map(|view: &norn_wire::TaskView| view.id);
            break;
        }
        let Some(mut view) = view(id, &seen(cohort(&id), several), wall_ms) else { continue };
        let right_queue = selection.queue.as_ref().is_none_or(|queue| view.spec.queue == *queue);
        if right_queue && selection.state.is_none_or(|state| state == view.state) {
            view.updates.clear();
            view.claims.iter_mut().for_each(|claim| claim.superseded = None);
            tasks.push(view);
        }
    }
    Page { tasks, next }
}

#[cfg(test)]
mod tests {
    use super::*;
    use norn_model::viewstamp::ReplicaId;

    /// Goal: a page shows whatever may be committed, and of the rest only what a majority has. Method: three members, and the table of
    /// each one that answers.
    #[test]
    fn the_newest_table_that_a_majority_may_have_is_shown() {
        let members = [1, 2, 3].map(|node| ReplicaId { node: NodeId(node), incarnation: 7 });
        let cohort = Cohort::founded(&members);
        let at = |(epoch, length)| Viewstamp { epoch, length };
        let shown = |heard: &[(u64, u64)], is_whole: bool| {
            let known = |(place, table): (usize, &(u64, u64))| {
                let (viewstamp, incomplete) = (at(*table), !is_whole && place > 0);
                let (task, entry) = (Task::default(), None);
                (
                    NodeId(place as u128 + 1),
                    Known { task, entry, viewstamp, at: cohort.version, advertised: None, incomplete, lost: None },
                )
            };
            agreed(&cohort, &heard.iter().enumerate().map(known).collect::<Vec<_>>())
        };
        let (ahead, behind, other) = ((3, 5), (3, 4), (4, 1));
        assert_eq!(shown(&[ahead, behind, behind], true), at(behind), "a minority alone has it");
        assert_eq!(shown(&[ahead, behind, ahead], true), at(ahead));
        assert_eq!(shown(&[ahead, behind], true), at(ahead), "the third one may have it");
        assert_eq!(shown(&[ahead, behind, behind], false), at(ahead), "they may have forgotten it");
        assert_eq!(shown(&[other, ahead, behind], true), at(other), "what an earlier leader appended may be gone");
    }
}
