//! A grant to a call whose client is never reached goes back soon, and is not held until its lease is over. If the lease is over
//! before, the grant still was no attempt, unless it was found again or confirmed once.
//!
//! Judged by what leaders hold while time passes. The time counts from the grant, as its answer may never be sent, and from when the
//! client stops waiting. A client is reached when it confirms the answer, and no longer reached when it leaves its claim. As long as
//! it waits, a grant that was found again may be in its hands.
//!
//! Left to the lease are grants of a client that vanished, if it had confirmed them or they had been found again; also where a node
//! crashed that the client had asked, or the leader that had made them before any node answered with them, for it may have been the
//! only one that knew which question they were made for. Such a lease may be an attempt, too. So may one whose leader could not reach
//! a node that the client had asked: it does not wait for that node. A network that delays messages for as long as it takes to elect
//! a leader does that as well, though nothing is cut. The claim of a task that has ended is dropped, and no client gets it back: a
//! lease that is over before that is not judged. Grants are not judged where clocks may have any rate.
//!
//! Troubles are crashes and starts, pauses, cuts, changes of a partition's replicas and of its leader, and, of the client itself,
//! what stops it and breaks its connections. Messages that were sent in vain in the meantime are repeated after pauses that double.
//! So after a trouble it may take as long again as since the grant had to go back, up to the longest pause.

use super::Property;
use crate::adapter::Call;
use crate::history::{Happening, Held, History, Look, Moment};
use norn_engine::Observation;
use norn_model::claim_table::table::Op;
use norn_model::record::Record;
use norn_wire::request::Request;
use norn_wire::response::Response;
use norn_wire::{ClaimId, PartitionId, TaskId, Token};
use std::collections::{BTreeMap, BTreeSet};

/// Two seconds in which a client confirms, and the time that it takes to give back and to look.
const BACK_US: u64 = 3_000_000;
/// The same after a trouble: a session that is not answered tries another node after two and a half seconds.
const BACK_TROUBLED_US: u64 = 4_000_000;
/// The same where any message may be lost: a return is sent for the fifth time 3.75 s after the first.
const BACK_ROUGH_US: u64 = 6_000_000;
/// Longest pause between repeats, up to which pauses double.
const PAUSE_US_MAX: u64 = 16_000_000;
/// Time after which a trouble is over: nodes hear of each other again, and sessions have found their nodes.
const SETTLED_US: u64 = 5_000_000;
/// A clock may be faster than true time by one part in this number.
const FAST_PART: u64 = 100;

/// A call for work, by the id of its claim.
#[derive(Debug)]
struct Asked {
    client: usize,
    /// Nodes that the claim was sent to.
    nodes: BTreeSet<usize>,
    /// One of these nodes has crashed since.
    forgotten: bool,
    /// Calls to one of which the claim belongs.
    calls: BTreeSet<Moment>,
    /// The client has confirmed an answer, and has not left the claim since.
    confirmed: bool,
    /// Since when no client waits for the claim.
    ended_us: Option<u64>,
    /// The client vanished with it.
    vanished: bool,
}

/// A leader's grant.
#[derive(Debug)]
struct Grant {
    claim: ClaimId,
    /// The leader's node.
    node: usize,
    /// The leader has crashed since, and with it what it had granted to which question.
    crashed: bool,
    /// A node has answered its client with the grant, and can give it back to any leader.
    told: bool,
    at_us: u64,
    /// It was renewed, as when it is found again.
    renewed: bool,
}

/// What a node knows of another one.
#[derive(Debug)]
struct Link {
    /// When it last heard it.
    heard_us: u64,
    /// The latest heartbeat, and whether the other node hears this one, by that.
    latest: (u64, u64),
    hears: bool,
    /// Until when the other node was last out of reach.
    unreached_us: Option<u64>,
}

impl Link {
    fn reaches(&self, silent_us: u64, now_us: u64) -> bool {
        self.hears && now_us < self.heard_us + silent_us
    }
}

#[derive(Debug, Default)]
pub struct Reached {
    /// Monotonic clocks have the right rate.
    even: bool,
    /// Time after which a node that is not heard is out of reach, by the fastest clock.
    silent_us: u64,
    /// By node, and the node that it hears.
    links: BTreeMap<(usize, usize), Link>,
    /// Calls for work.
    asked: BTreeMap<ClaimId, Asked>,
    /// Calls that have ended.
    over: BTreeSet<Moment>,
    /// Claims of clients that confirm answers.
    confirming: BTreeSet<ClaimId>,
    /// Grants to these claims that no client has yet.
    granted: BTreeMap<(TaskId, Token), Grant>,
    /// Grants that clients were given.
    taken: BTreeSet<(TaskId, Token)>,
    /// Claims that were ever confirmed, also those that were left since.
    confirmed: BTreeSet<ClaimId>,
    /// Tasks that have ended, as far as a node has heard since its start.
    ended: BTreeSet<(usize, TaskId)>,
    /// When messages were last lost, duplicated or delayed at any time.
    rough_us: u64,
    /// Time of the last trouble of all, and of each partition.
    trouble_us: u64,
    partitions_us: BTreeMap<PartitionId, u64>,
}

impl Reached {
    /// Takes in records. Each node writes down a grant; the first to do so is the leader. It also writes down that a task has ended.
    fn note(&mut self, node: usize, records: &[Record], now_us: u64) {
        for record in records {
            if let Record::Facts { items, .. } = record {
                let ended = items.iter().filter(|(_, task)| task.ended().is_some());
                self.ended.extend(ended.map(|(id, _)| (node, *id)));
            }
            let Record::Ops { after, ops, .. } = record else { continue };
            for op in ops {
                if let Op::Renew { items } = &**op {
                    for (id, token, ..) in items {
                        if let Some(grant) = self.granted.get_mut(&(*id, *token)) {
                            grant.renewed = true;
                        }
                    }
                }
                let Op::Grant { claim, items, .. } = &**op else { continue };
                for (id, number) in items.iter().filter(|_| self.confirming.contains(claim)) {
                    let grant = (*id, Token { epoch: after.epoch, number: *number });
                    if !self.taken.contains(&grant) {
                        let (crashed, told, renewed) = (false, false, false);
                        let new = || Grant { claim: *claim, node, crashed, told, at_us: now_us, renewed };
                        self.granted.entry(grant).or_insert_with(new);
                    }
                }
            }
        }
    }

    /// Takes in a claim that is sent. It belongs to the call that no other claim belongs to, if that is known.
    fn claims(&mut self, client: usize, node: usize, claim: ClaimId, calls: &[Moment]) {
        if let Some(asked) = self.asked.get_mut(&claim) {
            asked.nodes.insert(node);
            return;
        }
        let others = self.asked.values().filter(|asked| asked.client == client && asked.calls.len() == 1);
        let taken: BTreeSet<Moment> = others.flat_map(|asked| asked.calls.iter().copied()).collect();
        let calls = calls.iter().copied().filter(|call| !self.over.contains(call) && !taken.contains(call)).collect();
        let (nodes, forgotten) = (BTreeSet::from([node]), false);
        let asked = Asked { client, nodes, forgotten, calls, confirmed: false, ended_us: None, vanished: false };
        self.asked.insert(claim, asked);
    }

    fn call_ends(&mut self, call: Moment, now_us: u64) {
        self.over.insert(call);
        for asked in self.asked.values_mut() {
            if asked.calls.remove(&call) && asked.calls.is_empty() {
                asked.ended_us.get_or_insert(now_us);
            }
        }
    }

    fn looked(&mut self, look: &Look<'_>, now_us: u64) -> Result<(), String> {
        if look.troubled {
            self.trouble_us = now_us;
        }
        if look.rough {
            self.rough_us = now_us;
        }
        if !self.even {
            return Ok(());
        }
        look.held.iter().try_for_each(|held| self.judge(held, look, now_us))
    }

    fn judge(&mut self, held: &Held, look: &Look<'_>, now_us: u64) -> Result<(), String> {
        let Some(grant) = self.granted.get(&(held.id, held.token)) else { return Ok(()) };
        let Some(asked) = self.asked.get(&grant.claim) else { return Ok(()) };
        if asked.ended_us.is_none() && (asked.confirmed || grant.renewed) {
            return Ok(());
        }
        let forgotten = asked.forgotten || grant.crashed && !grant.told;
        if asked.vanished && (asked.confirmed || grant.renewed || forgotten) {
            return Ok(());
        }
        let since_us = grant.at_us.max(asked.ended_us.unwrap_or_default());
        // While the client waits, its node takes back by itself what it does not confirm; and so it does once the client is gone.
        let speaks = asked.ended_us.is_some() && !asked.vanished;
        let client_us = look.clients_us.get(&asked.client).copied().filter(|_| speaks).unwrap_or_default();
        let partition_us = self.partitions_us.get(&held.partition).copied().unwrap_or_default();
        let trouble_us = self.trouble_us.max(client_us).max(partition_us);
        let bound_us = match () {
            () if self.rough_us >= since_us => BACK_ROUGH_US,
            () if trouble_us + SETTLED_US > since_us => BACK_TROUBLED_US,
            () => BACK_US,
        };
        let pause_us = trouble_us.saturating_sub(since_us).min(PAUSE_US_MAX);
        let from_us = trouble_us.max(since_us) + pause_us;
        if now_us > from_us + bound_us {
            let (id, token) = (held.id, held.token);
            let (held_ms, late_ms) = ((now_us - grant.at_us) / 1_000, (now_us - from_us) / 1_000);
            return Err(format!(
                "task {id} is held for {held_ms} ms under {token}, of which no client knows, and {late_ms} ms behind all troubles"
            ));
        }
        Ok(())
    }

    /// Takes in that a node hears another one.
    fn hears(&mut self, nodes: (usize, usize), report: Option<((u64, u64), bool)>, now_us: u64) {
        let (heard_us, latest) = (now_us, (0, 0));
        let link = self.links.entry(nodes).or_insert(Link { heard_us, latest, hears: true, unreached_us: None });
        if !link.reaches(self.silent_us, now_us) {
            link.unreached_us = Some(now_us);
        }
        link.heard_us = now_us;
        // The counter of starts goes back where another machine takes over, or an earlier image of a disk.
        let is_late = |(boot, number): (u64, u64)| boot == link.latest.0 && number <= link.latest.1;
        if let Some((number, hears)) = report.filter(|(number, _)| !is_late(*number)) {
            (link.latest, link.hears) = (number, hears);
        }
    }

    /// Whether a node could reach another one all the time since then.
    fn has_reached(&self, nodes: (usize, usize), since_us: u64, now_us: u64) -> bool {
        let Some(link) = self.links.get(&nodes) else { return true };
        link.reaches(self.silent_us, now_us) && link.unreached_us < Some(since_us)
    }

    /// Judges the end of a grant's lease at a leader: whether that had to be no attempt.
    fn expired(
        &mut self,
        history: &History,
        leader: usize,
        (id, token): (TaskId, Token),
        now_us: u64,
    ) -> Result<(), String> {
        let Some(grant) = self.granted.remove(&(id, token)) else { return Ok(()) };
        // The crashed node may be the only one that knew that the call was over: a question can be as late as any message.
        let forgotten = self.asked.get(&grant.claim).is_some_and(|asked| asked.forgotten);
        let reached = |node: &usize| self.has_reached((leader, *node), grant.at_us, now_us);
        let unasked = self.asked.get(&grant.claim).is_some_and(|asked| !asked.nodes.iter().all(reached));
        // The task may have ended while the grant was being committed: then no answer names the grant.
        let ended = self.ended.contains(&(leader, id)) || history.ended(&id).is_some();
        let known = forgotten || unasked || ended || grant.renewed || self.confirmed.contains(&grant.claim);
        let partition_us = self.partitions_us.get(&history.partition(&id)).copied().unwrap_or_default();
        let trouble_us = self.trouble_us.max(partition_us);
        if known || !self.even || trouble_us + SETTLED_US > grant.at_us {
            return Ok(());
        }
        Err(format!("the lease of {token} of task {id}, of which no client knows, was an attempt"))
    }
}

impl Property for Reached {
    fn name(&self) -> &'static str {
        "reached"
    }

    fn see(&mut self, history: &History, moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        let now_us = moment.time_us;
        match happening {
            Happening::Founded(terms) => {
                (self.even, self.silent_us) = (terms.even, terms.silent_us - terms.silent_us / FAST_PART);
            }
            Happening::Heard { node, from, report } => self.hears((*node, *from), *report, now_us),
            Happening::Sent { request: Request::Claim(claim) } if claim.confirms => {
                self.confirming.insert(claim.claim);
            }
            Happening::Claims { client, node, claim, calls } => self.claims(*client, *node, *claim, calls),
            Happening::Appended { node, records, .. } => self.note(*node, records, now_us),
            Happening::Replied { response: Response::Claimed { tasks, .. }, .. } => {
                for task in tasks {
                    self.granted.get_mut(&(task.id, task.token)).into_iter().for_each(|grant| grant.told = true);
                }
            }
            Happening::Sent { request: Request::Confirm { claim } } => {
                self.confirmed.insert(*claim);
                self.asked.get_mut(claim).into_iter().for_each(|asked| asked.confirmed = true);
            }
            Happening::Sent { request: Request::Leave { claim, .. } } => {
                self.asked.get_mut(claim).into_iter().for_each(|asked| asked.confirmed = false);
            }
            Happening::GaveUp { call } => self.call_ends(*call, now_us),
            Happening::Vanished { client } => {
                for asked in self.asked.values_mut().filter(|asked| asked.client == *client && asked.ended_us.is_none())
                {
                    (asked.ended_us, asked.vanished) = (Some(now_us), true);
                    self.over.append(&mut asked.calls);
                }
            }
            // The client has the answer, and sends nothing more for the claim.
            Happening::Finished(finished) => {
                let Call::Request(Request::Claim(_)) = finished.call else { return Ok(()) };
                self.call_ends(finished.submitted, now_us);
                if let Ok(Response::Claimed { tasks, .. }) = finished.result {
                    for grant in tasks.iter().map(|task| (task.id, task.token)) {
                        self.granted.remove(&grant);
                        self.taken.insert(grant);
                    }
                }
            }
            Happening::Crashed { node } | Happening::Gone { node } => {
                self.asked.values_mut().for_each(|asked| asked.forgotten |= asked.nodes.contains(node));
                self.granted.values_mut().for_each(|grant| grant.crashed |= grant.node == *node);
                self.ended.retain(|(of, _)| of != node);
            }
            Happening::Observed {
                observation:
                    Observation::Established { partition, .. }
                    | Observation::SteppedDown { partition, .. }
                    | Observation::CohortChanged { partition, .. }
                    | Observation::CohortCommitted { partition, .. },
                ..
            } => {
                self.partitions_us.insert(PartitionId(*partition), now_us);
            }
            Happening::Looked(look) => self.looked(look, now_us)?,
            Happening::Observed { node, observation: Observation::Expired { id, token }, .. } => {
                self.expired(history, *node, (*id, *token), now_us)?;
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::*;
    use norn_engine::Ticket;
    use norn_model::task::{Cancel, Task};
    use norn_model::viewstamp::Viewstamp;
    use norn_wire::request::Claim;
    use std::sync::Arc;

    const CLAIM: ClaimId = ClaimId(7);
    const PARTITION: PartitionId = PartitionId(0);
    const CLIENT: usize = 0;
    const LEADER: usize = 0;
    const BROKER: usize = 2;
    const SILENT_US: u64 = 300_000;

    fn append(bench: &mut Bench<Reached>, op: Op) {
        let after = Viewstamp { epoch: 1, length: 0 };
        let records = [Record::Ops { partition: PARTITION, after, ops: vec![Arc::new(op)] }];
        bench.see(Happening::Appended { node: LEADER, ticket: Ticket(1), records: &records }).unwrap();
    }

    /// Makes a call that is granted a task. Returns when it was made, which names it.
    fn granted_to(bench: &mut Bench<Reached>, confirms: bool) -> Moment {
        let Request::Claim(claim) = claim() else { panic!("a claim") };
        let request = Request::Claim(Claim { claim: CLAIM, confirms, ..claim });
        let call = bench.now();
        bench.see(Happening::Sent { request: &request }).unwrap();
        bench.see(Happening::Claims { client: CLIENT, node: BROKER, claim: CLAIM, calls: &[call] }).unwrap();
        let (worker, items) = ("w".into(), vec![(id(1), 1)]);
        let (lease_ms, granted_ms) = (10_000, 0);
        append(bench, Op::Grant { claim: CLAIM, worker, lease_ms, granted_ms, items, session: None, lapsed: false });
        call
    }

    /// A cluster in which nothing has gone wrong for long.
    fn quiet() -> Bench<Reached> {
        let mut bench: Bench<Reached> = Bench::new();
        bench.see(Happening::Founded(Terms { even: true, silent_us: SILENT_US, ..Terms::default() })).unwrap();
        bench.pass(2 * SETTLED_US);
        bench
    }

    fn granted() -> Bench<Reached> {
        let mut bench = quiet();
        granted_to(&mut bench, true);
        bench
    }

    fn look(bench: &mut Bench<Reached>, (troubled, rough): (bool, bool)) -> Result<(), String> {
        let held = [Held { partition: PARTITION, id: id(1), token: token(1, 1) }];
        let clients_us = BTreeMap::new();
        let look = Look { troubled, rough, clients_us: &clients_us, held: &held };
        bench.see(Happening::Looked(&look))
    }

    fn held_after(bench: &mut Bench<Reached>, after_us: u64) -> Result<(), String> {
        bench.pass(after_us);
        look(bench, (false, false))
    }

    fn says(bench: &mut Bench<Reached>, request: &Request) {
        bench.see(Happening::Sent { request }).unwrap();
    }

    const LEAVE: Request = Request::Leave { claim: CLAIM, elsewhere: true, over: true, keeps: Vec::new() };

    #[test]
    fn a_grant_that_nobody_knows_of_is_not_held_for_long_though_its_lease_is_longer() {
        let mut bench = granted();
        held_after(&mut bench, BACK_US - 10_000).unwrap();
        assert!(held_after(&mut bench, 20_000).unwrap_err().contains("no client knows"));
        let mut bench = quiet();
        granted_to(&mut bench, false);
        assert!(held_after(&mut bench, 2 * BACK_US).is_ok(), "older clients say nothing");
    }

    #[test]
    fn a_trouble_lasts_as_long_again() {
        let mut bench = granted();
        bench.pass(2_000_000);
        look(&mut bench, (true, false)).unwrap();
        held_after(&mut bench, 2_000_000 + BACK_TROUBLED_US - 100_000).unwrap();
        assert!(held_after(&mut bench, 200_000).is_err());
        let mut bench = granted();
        look(&mut bench, (false, true)).unwrap();
        held_after(&mut bench, BACK_ROUGH_US - 100_000).unwrap();
        assert!(held_after(&mut bench, 200_000).is_err());
        let mut bench = granted();
        let observation = &Observation::Established { partition: 0, epoch: 2 };
        bench.see(Happening::Observed { node: 1, boot: 1, observation }).unwrap();
        held_after(&mut bench, BACK_TROUBLED_US - 100_000).unwrap();
        assert!(held_after(&mut bench, 200_000).is_err());
    }

    #[test]
    fn a_client_that_confirms_is_reached_until_it_leaves() {
        let mut bench = granted();
        says(&mut bench, &Request::Confirm { claim: CLAIM });
        assert!(held_after(&mut bench, 2 * BACK_US).is_ok());
        says(&mut bench, &LEAVE);
        assert!(held_after(&mut bench, 0).is_err());
    }

    #[test]
    fn a_call_that_ends_without_its_grant_lets_it_go() {
        let mut bench = quiet();
        let call = granted_to(&mut bench, true);
        says(&mut bench, &Request::Confirm { claim: CLAIM });
        bench.pass(2 * BACK_US);
        bench.see(Happening::GaveUp { call }).unwrap();
        held_after(&mut bench, BACK_US - 10_000).unwrap();
        assert!(held_after(&mut bench, 20_000).is_err());
    }

    #[test]
    fn what_a_client_takes_with_it_is_left_to_the_lease_if_it_had_it_or_who_knew_crashed() {
        let vanishes = |bench: &mut Bench<Reached>| {
            bench.see(Happening::Vanished { client: CLIENT }).unwrap();
            held_after(bench, 2 * BACK_TROUBLED_US)
        };
        assert!(vanishes(&mut granted()).is_err());
        let mut bench = granted();
        says(&mut bench, &Request::Confirm { claim: CLAIM });
        assert!(vanishes(&mut bench).is_ok());
        let mut bench = granted();
        append(&mut bench, Op::Renew { items: vec![(id(1), token(1, 1), 10_000, 10_000)] });
        assert!(vanishes(&mut bench).is_ok());
        let mut bench = granted();
        bench.see(Happening::Crashed { node: BROKER + 1 }).unwrap();
        assert!(vanishes(&mut bench).is_err());
        let mut bench = granted();
        bench.see(Happening::Crashed { node: BROKER }).unwrap();
        assert!(vanishes(&mut bench).is_ok());
        let mut bench = granted();
        bench.see(Happening::Crashed { node: LEADER }).unwrap();
        assert!(vanishes(&mut bench).is_ok());
        let mut bench = granted();
        let response = super::super::check::granted(1, token(1, 1));
        bench.see(Happening::Replied { request: &claim(), response: &response }).unwrap();
        bench.see(Happening::Crashed { node: LEADER }).unwrap();
        assert!(vanishes(&mut bench).is_err(), "its node gives it back at any leader");
    }

    fn expires(bench: &mut Bench<Reached>) -> Result<(), String> {
        let observation = Observation::Expired { id: id(1), token: token(1, 1) };
        bench.see(Happening::Observed { node: 0, boot: 1, observation: &observation })
    }

    #[test]
    fn a_grant_that_nobody_knows_of_is_no_attempt() {
        assert!(expires(&mut granted()).is_err());
        let mut bench = granted();
        append(&mut bench, Op::Renew { items: vec![(id(1), token(1, 1), 10_000, 10_000)] });
        assert!(expires(&mut bench).is_ok(), "it may be in a client's hands");
        let mut bench = granted();
        look(&mut bench, (true, false)).unwrap();
        assert!(expires(&mut bench).is_ok(), "who knows may not be heard");
        let mut bench = quiet();
        bench.see(Happening::Crashed { node: BROKER }).unwrap();
        bench.pass(2 * SETTLED_US);
        granted_to(&mut bench, true);
        assert!(expires(&mut bench).is_err(), "it was asked for since");
        let mut bench = granted();
        bench.see(Happening::Crashed { node: BROKER + 1 }).unwrap();
        assert!(expires(&mut bench).is_err(), "it knew nothing of it");
        let mut bench = granted();
        bench.see(Happening::Crashed { node: BROKER }).unwrap();
        assert!(expires(&mut bench).is_ok(), "who knew may have crashed");
    }

    #[test]
    fn the_lease_of_a_task_that_has_ended_is_not_judged() {
        let learns = |bench: &mut Bench<Reached>, node, task, number| {
            let items = Arc::new(vec![(id(number), task)]);
            let records = [Record::Facts { partition: PARTITION, items }];
            bench.see(Happening::Appended { node, ticket: Ticket(2), records: &records }).unwrap();
        };
        let cancelled = || Task::from_cancel(Cancel { dead: false, reason: String::new(), at_ms: 1 });
        let mut bench = granted();
        learns(&mut bench, LEADER, cancelled(), 1);
        assert!(expires(&mut bench).is_ok(), "its leader knows");
        let mut bench = granted();
        bench.cancelled(1);
        assert!(expires(&mut bench).is_ok(), "its end is acknowledged");
        let mut bench = granted();
        learns(&mut bench, LEADER, Task::from_spec(Arc::new(spec())), 1);
        learns(&mut bench, LEADER, cancelled(), 2);
        learns(&mut bench, BROKER, cancelled(), 1);
        assert!(expires(&mut bench).is_err(), "it has not ended as far as its leader knows");
    }

    /// Has a node hear another one, which says whether it hears that node.
    fn hear(bench: &mut Bench<Reached>, (node, from): (usize, usize), number: u64, hears: bool) {
        bench.see(Happening::Heard { node, from, report: Some(((1, number), hears)) }).unwrap();
    }

    /// A grant whose leader has just heard its broker.
    fn granted_in_touch() -> Bench<Reached> {
        let mut bench = quiet();
        hear(&mut bench, (LEADER, BROKER), 2, true);
        granted_to(&mut bench, true);
        bench
    }

    #[test]
    fn a_lease_whose_leader_cannot_reach_who_knows_may_be_an_attempt() {
        let pass = |bench: &mut Bench<Reached>| bench.pass(SILENT_US / 2);
        let mut bench = granted_in_touch();
        pass(&mut bench);
        assert!(expires(&mut bench).is_err(), "it is in reach");
        let mut bench = granted_in_touch();
        bench.pass(SILENT_US);
        assert!(expires(&mut bench).is_ok(), "it is silent");
        let mut bench = granted_in_touch();
        hear(&mut bench, (LEADER, BROKER), 3, false);
        assert!(expires(&mut bench).is_ok(), "it does not hear the leader");
        let mut bench = granted_in_touch();
        hear(&mut bench, (LEADER, BROKER), 1, false);
        assert!(expires(&mut bench).is_err(), "that is an old heartbeat");
        let mut bench = granted_in_touch();
        hear(&mut bench, (LEADER, BROKER), 3, false);
        hear(&mut bench, (LEADER, BROKER), 4, true);
        assert!(expires(&mut bench).is_ok(), "it was out of reach for a while, and is not asked again");
        let mut bench = quiet();
        hear(&mut bench, (LEADER, BROKER), 1, false);
        hear(&mut bench, (LEADER, BROKER), 2, true);
        pass(&mut bench);
        granted_to(&mut bench, true);
        assert!(expires(&mut bench).is_err(), "that was before");
        let mut bench = granted_in_touch();
        hear(&mut bench, (LEADER, BROKER + 1), 1, false);
        hear(&mut bench, (BROKER, LEADER), 1, false);
        assert!(expires(&mut bench).is_err(), "these are not asked, or do not ask");
    }
}
