//! Claims that wait although their clients are gone and no node knows that yet.

use super::*;

const LEASE_MS: u64 = 600_000;
/// Interval at which a client pings.
const PING_MS: u64 = 500;

/// Claim id of the call with this number.
fn claim_id(number: u64) -> ClaimId {
    ClaimId(u128::from(number) << 32)
}

impl Cluster {
    fn say(&mut self, index: usize, client: u64, request: Request) -> u64 {
        self.number += 1;
        let (number, principal) = (self.number, Principal { name: "tester".into(), node: false });
        self.queue.push_back((index, Event::Request { client: ClientId(client), number, principal, request }));
        self.drain();
        number
    }

    /// Starts a claim of a client that waits for work; returns the call's number.
    fn waits(&mut self, index: usize, client: u64) -> u64 {
        let claim = claim_of(claim_id(self.number + 1), LEASE_MS, 1);
        self.say(index, client, Request::Claim(Claim { confirms: true, wait_ms: 60_000, ..claim }))
    }

    fn pings(&mut self, index: usize, client: u64) {
        self.say(index, client, Request::Ping);
    }

    /// Advances time while one client is alive.
    fn pass(&mut self, ms: u64, (index, client): (usize, u64)) {
        for _ in 0..ms / PING_MS {
            self.pings(index, client);
            self.advance(PING_MS);
        }
    }

    fn is_told(&self, number: u64, id: TaskId) -> bool {
        matches!(self.replies.get(&number), Some(Response::Claimed { tasks, .. }) if tasks[0].id == id)
    }
}

fn connected() -> Cluster {
    let mut cluster = Cluster::modern(3);
    cluster.connect_all();
    cluster
}

/// Goal: however many workers were killed, the one that is alive gets each task at once. Method: six that pinged when they began to
/// wait, and one at the same node, or at another one.
#[test]
fn workers_that_are_silent_come_last() {
    let rates = [None, Some(super::claim_rates::rate(2, 1_000)), Some(super::claim_rates::rate(120, 60_000))];
    for (place, rate) in rates.into_iter().flat_map(|rate| [0, 1, 2].map(|place| (place, rate.clone()))) {
        let mut cluster = connected();
        rate.into_iter().for_each(|rate| drop(cluster.set(0, "mail", rate)));
        let gone: Vec<u64> = (100..106).map(|client| cluster.waits(0, client)).collect();
        (100..106).for_each(|client| cluster.pings(0, client));
        for round in 0..6 {
            let waits = cluster.waits(place, 200);
            cluster.pass(2_000, (place, 200));
            let id = cluster.enqueue(round % 3, b"x", 0x12_3456 * round as u32);
            let since_us = cluster.now.mono_us;
            cluster.run_until(|cluster| cluster.is_told(waits, id));
            assert!(cluster.now.mono_us - since_us < 400_000, "{place}, {round}");
            cluster.say(place, 200, Request::Confirm { claim: claim_id(waits) });
        }
        assert!(gone.iter().all(|number| !cluster.replies.contains_key(number)), "{place}");
    }
}

/// Goal: the same where tasks wait for rate tokens of a rate: the live worker gets all of them, as fast as they come. Method: more tasks
/// than rate tokens, and a worker that is away for a moment after each, but uses up what has come in within half a second.
#[test]
fn workers_that_are_silent_get_no_permit_that_another_can_use() {
    for (place, claims) in (0..3).flat_map(|place| [1, 2, 5].map(|claims| (place, claims))) {
        let mut cluster = connected();
        cluster.set(0, "mail", super::claim_rates::rate(claims, 1_000));
        cluster.advance(5_000);
        let gone: Vec<u64> = (100..112).map(|client| cluster.waits(0, client)).collect();
        (100..112).for_each(|client| cluster.pings(0, client));
        cluster.advance(2_000);
        let tasks = 3 * claims + 4;
        for number in 0..tasks {
            cluster.enqueue(1, b"x", (number % 16) << 20);
        }
        let since_us = cluster.now.mono_us;
        for _ in 0..tasks {
            let waits = cluster.waits(place, 200);
            while !cluster.replies.contains_key(&waits) {
                cluster.pings(place, 200);
                cluster.advance(10);
            }
            cluster.say(place, 200, Request::Confirm { claim: claim_id(waits) });
            cluster.advance(30);
        }
        let taken = gone.iter().filter(|number| cluster.replies.contains_key(number)).count();
        let took_ms = (cluster.now.mono_us - since_us) / 1_000;
        assert!(taken == 0 && took_ms < 6_000, "{place}, {claims}: {taken} were told, in {took_ms} ms");
    }
}

/// Goal: a silent client is served all the same if no other client wants the work.
#[test]
fn a_worker_that_is_silent_is_served_where_no_other_waits() {
    let mut cluster = connected();
    let waits = [100, 101].map(|client| cluster.waits(1, client));
    cluster.pings(1, 100);
    cluster.advance(300);
    cluster.pings(1, 101);
    cluster.advance(5_000);
    let id = cluster.enqueue(0, b"x", 7);
    let since_us = cluster.now.mono_us;
    cluster.run_until(|cluster| waits.iter().any(|number| cluster.replies.contains_key(number)));
    assert!(cluster.is_told(waits[1], id), "it was heard last");
    assert!((400_000..1_000_000).contains(&(cluster.now.mono_us - since_us)));
}

/// Goal: the same if rate tokens expire before the delay of silent clients ends.
#[test]
fn a_worker_that_is_silent_is_served_where_permits_are_short_lived() {
    let mut cluster = connected();
    cluster.set(0, "mail", super::claim_rates::rate(3, 60_000));
    cluster.advance(30_000);
    let waits = cluster.waits(1, 100);
    cluster.pings(1, 100);
    cluster.advance(5_000);
    let id = cluster.enqueue(0, b"x", 7);
    let since_us = cluster.now.mono_us;
    cluster.run_until(|cluster| cluster.is_told(waits, id));
    assert!(cluster.now.mono_us - since_us < 2_000_000);
}

/// Goal: one task that goes back is enough evidence about a client. Method: clients that do not ping, as old ones; the first has
/// several calls.
#[test]
fn calls_of_a_client_that_did_not_confirm_come_last() {
    let mut cluster = connected();
    let gone = [(); 3].map(|()| cluster.waits(0, 100));
    let waits = cluster.waits(0, 101);
    let id = cluster.enqueue(1, b"x", 7);
    cluster.run_until(|cluster| cluster.is_told(gone[0], id));
    let since_us = cluster.now.mono_us;
    cluster.run_until(|cluster| cluster.is_told(waits, id));
    assert!((1_900_000..2_400_000).contains(&(cluster.now.mono_us - since_us)));
    // Once it is heard again it counts like any other.
    cluster.pings(0, 100);
    let waits = cluster.waits(0, 102);
    let id = cluster.enqueue(1, b"x", 7);
    cluster.run_until(|cluster| cluster.is_told(gone[1], id));
    assert!(!cluster.replies.contains_key(&waits));
}

#[test]
fn clients_that_are_gone_are_forgotten() {
    let mut cluster = connected();
    cluster.waits(0, 100);
    assert_eq!(cluster.nodes[0].claims.broker().heard_of(), 1);
    cluster.queue.push_back((0, Event::ClientGone { client: ClientId(100) }));
    cluster.advance(1);
    cluster.pings(0, 100);
    assert_eq!(cluster.nodes[0].claims.broker().heard_of(), 0);
}
