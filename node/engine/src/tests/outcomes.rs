//! Every replica keeps how claims ended, for as long as the task exists.

use super::*;
use norn_model::limits::{CLAIM_ENTRIES_WITH_REASONS_MAX, CLAIM_REASON_BYTES_MAX};
use norn_wire::membership::{Backoff, Mode, QueueSetting};
use norn_wire::response::ClaimOutcome;
use norn_wire::transaction::{Change, Expected};
use norn_wire::{SESSIONS_QUEUE, Transaction};

use ClaimOutcome::{Done, Expired, Failed, GivenUp, Released, Superseded};

const LONG_MS: u64 = 600_000;

fn fail(id: TaskId, token: Token, reason: &str, retry_in_ms: u64) -> Request {
    Request::Fail { id, token, reason: reason.into(), retry_in_ms, invalid: false, retry_open: false }
}

fn invalid(id: TaskId, token: Token, reason: &str) -> Request {
    Request::Fail { id, token, reason: reason.into(), retry_in_ms: 0, invalid: true, retry_open: false }
}

/// Ends of a task's claims as a view shows them, without their times.
fn told(view: &TaskView) -> Vec<Option<(ClaimOutcome, Option<&str>)>> {
    view.claims.iter().map(|claim| claim.end.as_ref().map(|end| (end.outcome, end.reason.as_deref()))).collect()
}

impl Cluster {
    fn take(&mut self, lease_ms: u64) -> Token {
        self.claim(1, lease_ms).remove(0).token
    }

    /// Restarts all nodes, one after the other.
    fn restart_all(&mut self) {
        for index in 0..self.nodes.len() {
            self.restart(index);
            self.connect_all();
            self.advance(5_000);
        }
    }

    fn refusal(&mut self, index: usize, request: Request) -> norn_wire::Error {
        match self.ask(index, request) {
            Response::Error(error) => error,
            other => panic!("{other:?}"),
        }
    }

    /// Checks that a request is refused because the claim ended in this way.
    fn over(&mut self, index: usize, request: Request, how: &str) {
        let error = self.refusal(index, request);
        assert!(error.code == ErrorCode::Superseded && error.message.contains(how), "{error:?}");
    }

    fn told_everywhere(&mut self, id: TaskId, expected: &[Option<(ClaimOutcome, Option<&str>)>]) -> TaskView {
        let views = [0, 1, 2].map(|index| self.get(index, id));
        views.iter().for_each(|view| assert_eq!(told(view), expected, "{view:?}"));
        views[0].clone()
    }
}

/// Goal: every node reports why an attempt failed, and when the next one may begin, also once all have restarted, and once the task is
/// done.
#[test]
fn the_reason_of_a_failed_attempt_outlives_it() {
    let mut cluster = Cluster::modern(3);
    let id = cluster.enqueue(0, b"x", 1);
    let token = cluster.take(LONG_MS);
    assert_eq!(told(&cluster.get(0, id)), [None], "it is held");
    let at_ms = cluster.now.wall_ms;
    assert_eq!(cluster.ask(2, fail(id, token, "server is busy", 3_600_000)), Response::Done);
    let failed = Some((Failed, Some("server is busy")));
    let view = cluster.told_everywhere(id, &[failed]);
    assert_eq!(view.claims[0].end.as_ref().map(|end| end.at_ms), Some(at_ms));
    assert_eq!((view.state, view.next_attempt_ms, view.ended_ms), (State::Waiting, Some(at_ms + 3_600_000), None));
    cluster.restart_all();
    assert_eq!(cluster.told_everywhere(id, &[failed]).next_attempt_ms, Some(at_ms + 3_600_000));
    cluster.advance(100);
    cluster.now.mono_us += 3_600_000_000;
    cluster.now.wall_ms += 3_600_000;
    cluster.advance(5_000);
    let token = cluster.take(LONG_MS);
    assert_eq!(cluster.told_everywhere(id, &[failed, None]).next_attempt_ms, None);
    assert!(matches!(cluster.complete(0, id, token), Response::Acked(_)));
    cluster.advance(2_000);
    cluster.restart_all();
    let view = cluster.told_everywhere(id, &[failed, Some((Done, None))]);
    assert_eq!((view.ended_ms, view.claims[1].end.as_ref().map(|end| end.at_ms)), (Some(5), Some(5)));
}

/// Method: one task goes through all that may happen to a claim, and dies in the end. A list shows the same.
#[test]
fn each_claim_tells_how_it_ended() {
    let mut cluster = Cluster::modern(3);
    let id = cluster.enqueue(0, b"x", 1);
    let token = cluster.take(LONG_MS);
    assert_eq!(cluster.ask(0, Request::Release { id, token }), Response::Done);
    let token = cluster.take(LONG_MS);
    assert_eq!(cluster.ask(0, fail(id, token, "", 0)), Response::Done);
    let begun_ms = cluster.now.wall_ms;
    cluster.take(1_000);
    cluster.advance(3_000);
    let expired = Some((Expired, None));
    let before = [Some((Released, None)), Some((Failed, None)), expired];
    let view = cluster.told_everywhere(id, &before);
    assert_eq!(view.state, State::Ready, "no worker has taken it over yet");
    let token = cluster.take(LONG_MS);
    let view = cluster.get(0, id);
    assert_eq!(told(&view)[2], expired);
    let end_ms = view.claims[2].end.as_ref().map_or(0, |end| end.at_ms);
    assert!((begun_ms + 1_000..begun_ms + 1_100).contains(&end_ms), "{view:?}");
    let at_ms = cluster.now.wall_ms;
    assert_eq!(cluster.ask(1, invalid(id, token, "no such address")), Response::Done);
    let given_up = Some((GivenUp, Some("no such address")));
    let all: Vec<_> = before.into_iter().chain([given_up]).collect();
    for _ in 0..2 {
        let view = cluster.told_everywhere(id, &all);
        assert_eq!((view.state, view.ended_ms), (State::Dead, Some(at_ms)));
        assert_eq!(view.reason.as_deref(), Some("invalid: no such address"));
        let list = Request::List { queue: None, state: Some(State::Dead), after: None, from: None, to: None, limit: 9 };
        let Response::Page(page) = cluster.ask(2, list) else { panic!("no page") };
        assert_eq!((told(&page.tasks[0]), &page.tasks[0].reason), (all.clone(), &view.reason));
        // And once the claim is dropped.
        cluster.advance(2_000);
        cluster.restart_all();
    }
}

#[test]
fn what_was_held_when_its_task_ended_was_superseded_or_had_expired() {
    let mut cluster = Cluster::modern(3);
    for (lease_ms, wait_ms, outcome) in [(LONG_MS, 0, Superseded), (1_000, 3_000, Expired)] {
        let id = cluster.enqueue(0, b"x", 1);
        let token = cluster.take(lease_ms);
        cluster.advance(wait_ms);
        let at_ms = cluster.now.wall_ms;
        let cancel = Request::Cancel { id, reason: "no need".into(), at_ms, acks: Acks::Quorum };
        assert!(matches!(cluster.ask(1, cancel), Response::AckedOne(_)));
        cluster.told_everywhere(id, &[Some((outcome, None))]);
        cluster.advance(2_000);
        let view = cluster.told_everywhere(id, &[Some((outcome, None))]);
        assert_eq!(view.ended_ms, Some(at_ms));
        assert_eq!(view.claims[0].end.as_ref().is_some_and(|end| end.at_ms == at_ms), outcome == Superseded);
        // A completion that comes late counts all the same.
        assert!(matches!(cluster.complete(0, id, token), Response::Acked(_)));
        cluster.told_everywhere(id, &[Some((Done, None))]);
    }
}

#[test]
fn of_two_completions_one_is_done_and_the_other_superseded() {
    let mut cluster = Cluster::modern(3);
    let id = cluster.enqueue(0, b"x", 1);
    let first = cluster.take(1_000);
    cluster.advance(3_000);
    let second = cluster.take(LONG_MS);
    assert!(matches!(cluster.complete(0, id, first), Response::Acked(_)));
    cluster.told_everywhere(id, &[Some((Done, None)), Some((Superseded, None))]);
    assert!(matches!(cluster.complete(0, id, second), Response::Acked(_)));
    cluster.told_everywhere(id, &[Some((Expired, None)), Some((Done, None))]);
}

#[test]
fn a_sealed_completion_is_done_and_a_late_one_keeps_that_it_expired() {
    let mut cluster = Cluster::modern(3);
    cluster.set(0, "mail", QueueSetting::Mode(Mode::Holder));
    let id = cluster.enqueue(0, b"x", 1);
    let first = cluster.take(1_000);
    cluster.advance(3_000);
    let second = cluster.take(LONG_MS);
    cluster.complete(0, id, first);
    cluster.told_everywhere(id, &[Some((Expired, None)), None]);
    cluster.complete(0, id, second);
    cluster.advance(2_000);
    let view = cluster.told_everywhere(id, &[Some((Expired, None)), Some((Done, None))]);
    assert!(view.claims[0].rejected.is_some(), "{view:?}");
}

/// Goal: a completion that comes after all does not hide why its claim was failed or released before.
#[test]
fn what_was_said_of_a_claim_before_it_is_done_is_told() {
    let mut cluster = Cluster::modern(3);
    let [failed, released] = [1, 2].map(|tag| cluster.enqueue(0, b"x", tag));
    let tokens =
        [failed, released].map(|_| cluster.claim(1, LONG_MS).remove(0)).map(|granted| (granted.id, granted.token));
    let of = |id| tokens.iter().find(|(other, _)| *other == id).expect("both are granted").1;
    assert_eq!(cluster.ask(0, fail(failed, of(failed), "no paper", 60_000)), Response::Done);
    assert_eq!(cluster.ask(0, Request::Release { id: released, token: of(released) }), Response::Done);
    for (id, reason) in
        [(failed, "before that it was reported as failed: no paper"), (released, "before that it was given back")]
    {
        assert!(matches!(cluster.complete(0, id, of(id)), Response::Acked(_)));
        cluster.advance(2_000);
        cluster.told_everywhere(id, &[Some((Done, Some(reason)))]);
    }
}

/// A queue with a back-off records an expired lease as a failed attempt.
#[test]
fn a_lease_that_ran_out_before_a_pause_expired() {
    let mut cluster = Cluster::modern(3);
    let backoff = Backoff { first_ms: 60_000, most_ms: 60_000, jitter_percent: 0 };
    cluster.set(0, "mail", QueueSetting::Backoff(Some(backoff)));
    let id = cluster.enqueue(0, b"x", 1);
    cluster.take(1_000);
    cluster.advance(3_000);
    let view = cluster.told_everywhere(id, &[Some((Expired, None))]);
    assert_eq!((view.state, view.next_attempt_ms.is_some()), (State::Waiting, true));
}

/// Goal: a task that is given up after its last attempt shows why that failed, also if a limit set later makes it the last one.
#[test]
fn the_death_of_a_task_tells_why_its_last_attempt_failed() {
    let mut cluster = Cluster::modern(3);
    let ids = [1, 2, 3].map(|tag| cluster.enqueue(0, b"x", tag));
    let failed = cluster.claim(1, LONG_MS).remove(0);
    assert_eq!(cluster.ask(0, fail(failed.id, failed.token, "broken", 2_000)), Response::Done);
    let released = cluster.claim(1, LONG_MS).remove(0);
    assert_eq!(cluster.ask(0, fail(released.id, released.token, "no route", 0)), Response::Done);
    let again = cluster.claim(1, LONG_MS).remove(0);
    assert_eq!((again.id, again.attempt), (released.id, 2));
    assert_eq!(cluster.ask(0, Request::Release { id: again.id, token: again.token }), Response::Done);
    // Both have had as many attempts as that by now.
    cluster.set(0, "mail", QueueSetting::Attempts(Some(1)));
    let last = cluster.claim(1, 1_000).remove(0);
    assert!(ids.contains(&last.id) && last.id != failed.id && last.id != released.id);
    cluster.advance(5_000);
    assert_eq!(cluster.claim(1, LONG_MS), Vec::new());
    cluster.advance(2_000);
    let died = [
        (failed.id, "the last attempt failed: broken", vec![Some((Failed, Some("broken")))]),
        (
            released.id,
            "the last attempt failed: no route",
            vec![Some((Failed, Some("no route"))), Some((Released, None))],
        ),
        (last.id, "the lease of its last attempt ran out", vec![Some((Expired, None))]),
    ];
    for (id, reason, claims) in died {
        let view = cluster.told_everywhere(id, &claims);
        assert_eq!((view.state, view.reason.as_deref()), (State::Dead, Some(reason)));
    }
}

#[test]
fn claims_tell_that_their_session_ended() {
    let mut cluster = Cluster::modern(3);
    let id = cluster.enqueue(0, b"x", 0x11_1111);
    for (completes, outcome) in [(true, Released), (false, Expired)] {
        let queue = QueueName::new(SESSIONS_QUEUE).expect("a name");
        let session = cluster.id(0x22_2222);
        let spec = Spec { queue: queue.clone(), attempts_max: 1, ..spec(b"worker", 0) };
        cluster.ask(0, Request::Enqueue { tasks: vec![NewTask { id: session, spec }], acks: Acks::Quorum });
        let claim = Claim { queues: vec![queue], ..claim_of(ClaimId(session.time_ms().into()), 2_000, 1) };
        let Response::Claimed { tasks, .. } = cluster.ask(0, Request::Claim(claim)) else { panic!("no claim") };
        let token = tasks[0].token;
        let under = claim_of(ClaimId(u128::from(session.time_ms()) << 64), LONG_MS, 1);
        let Response::Claimed { tasks, .. } = cluster.ask(1, Request::Claim(Claim { session: Some(session), ..under }))
        else {
            panic!("no claim")
        };
        assert_eq!(tasks[0].id, id);
        cluster.advance(1_500);
        if completes {
            cluster.complete(0, session, token);
        }
        cluster.advance(10_000);
        let (held, view) = (tasks[0].token, cluster.get(0, id));
        cluster.over(2, fail(id, held, "", 0), "its session ended");
        cluster.over(2, Request::Release { id, token: held }, "its session ended");
        assert_eq!(told(&view).last(), Some(&Some((outcome, Some("its session ended")))), "{view:?}");
    }
}

/// Goal: a failure or a release that comes when the claim is over is refused, with how that ended; the history stays as it was.
#[test]
fn what_is_said_of_a_claim_that_is_over_does_not_count() {
    let mut cluster = Cluster::modern(3);
    let backoff = Backoff { first_ms: 60_000, most_ms: 60_000, jitter_percent: 0 };
    let with = |cluster: &mut Cluster, tag: u32, lease_ms: u64| {
        let id = cluster.enqueue(0, b"x", tag);
        (id, cluster.take(lease_ms))
    };
    let (given_back, token) = with(&mut cluster, 1, LONG_MS);
    assert_eq!(cluster.ask(0, fail(given_back, token, "busy", 60_000)), Response::Done);
    cluster.over(0, Request::Release { id: given_back, token }, "reported as failed");
    cluster.over(1, fail(given_back, token, "another reason", 0), "reported as failed");
    let (released, token) = with(&mut cluster, 2, LONG_MS);
    assert_eq!(cluster.ask(0, Request::Release { id: released, token }), Response::Done);
    cluster.over(2, fail(released, token, "", 0), "given back");
    let token = cluster.take(LONG_MS);
    assert!(matches!(cluster.complete(0, released, token), Response::Acked(_)));
    for request in [fail(released, token, "", 0), Request::Release { id: released, token }] {
        assert_eq!(cluster.refusal(1, request).code, ErrorCode::Ended);
    }
    cluster.set(0, "mail", QueueSetting::Backoff(Some(backoff)));
    let (expired, token) = with(&mut cluster, 3, 1_000);
    cluster.advance(3_000);
    for index in 0..3 {
        cluster.over(index, fail(expired, token, "busy", 0), "lease ran out");
        cluster.over(index, Request::Release { id: expired, token }, "lease ran out");
    }
    cluster.told_everywhere(expired, &[Some((Expired, None))]);
    cluster.set(0, "mail", QueueSetting::Attempts(Some(1)));
    let (dead, token) = with(&mut cluster, 4, 1_000);
    cluster.advance(3_000);
    assert_eq!(cluster.get(0, dead).state, State::Dead);
    assert_eq!(cluster.refusal(0, fail(dead, token, "busy", 0)).code, ErrorCode::Ended);
    cluster.told_everywhere(dead, &[Some((Expired, None))]);
}

/// Goal: a call whose answer was lost is answered as the first time, whatever has become of the task since; no other call is.
#[test]
fn a_repeated_failure_or_release_is_answered_as_the_first() {
    let mut cluster = Cluster::modern(3);
    let id = cluster.enqueue(0, b"x", 1);
    let mut said = Vec::new();
    for number in 0..2 {
        let token = cluster.take(LONG_MS);
        said.push(Request::Release { id, token });
        assert_eq!(cluster.ask(number, said[2 * number].clone()), Response::Done);
        let token = cluster.take(LONG_MS);
        said.push(fail(id, token, &"é".repeat(300 + number), 0));
        assert_eq!(cluster.ask(number, said[2 * number + 1].clone()), Response::Done);
    }
    let last = cluster.take(LONG_MS);
    let check = |cluster: &mut Cluster| {
        for (index, request) in said.iter().enumerate() {
            assert_eq!(cluster.ask(index % 3, request.clone()), Response::Done, "{request:?}");
        }
    };
    check(&mut cluster);
    assert_eq!(cluster.get(0, id).state, State::Claimed, "that changes nothing");
    let death = invalid(id, last, "no such address");
    assert_eq!(cluster.ask(0, death.clone()), Response::Done);
    for _ in 0..2 {
        check(&mut cluster);
        assert_eq!(cluster.ask(1, death.clone()), Response::Done);
        assert_eq!(cluster.refusal(0, fail(id, last, "no such address", 0)).code, ErrorCode::Ended);
        assert_eq!(cluster.refusal(0, invalid(id, last, "another reason")).code, ErrorCode::Ended);
        // And once the claim is dropped.
        cluster.advance(2_000);
        cluster.restart_all();
    }
}

#[test]
fn a_transaction_that_takes_a_claim_back_releases_it() {
    let mut cluster = Cluster::modern(3);
    let id = cluster.enqueue(0, b"x", 0x12_3456);
    let token = cluster.take(LONG_MS);
    let at_ms = cluster.now.wall_ms;
    let until = |ms| Some(at_ms + ms);
    let back = Change {
        id,
        expected: Expected::Token(token),
        release: true,
        not_before_ms: until(60_000),
        ..Change::default()
    };
    // The pause after a released claim becomes another one.
    let later = Change { id, expected: Expected::Present, not_before_ms: until(90_000), ..Change::default() };
    for change in [back, later] {
        let not_before_ms = change.not_before_ms;
        let transaction =
            Transaction { id: cluster.id(0x12_3456), at_ms, changes: vec![change], ..Transaction::default() };
        let answer = cluster.ask(0, Request::Transact(Box::new(transaction)));
        assert!(matches!(&answer, Response::Transacted(Ok(_))), "{answer:?}");
        cluster.advance(500);
        let view = cluster.told_everywhere(id, &[Some((Released, None))]);
        assert_eq!(
            (view.claims[0].end.as_ref().map(|end| end.at_ms), view.next_attempt_ms),
            (Some(at_ms), not_before_ms)
        );
    }
}

#[test]
fn a_long_reason_is_cut_in_the_history_alone() {
    let mut cluster = Cluster::modern(3);
    let id = cluster.enqueue(0, b"x", 1);
    let token = cluster.take(LONG_MS);
    let long = "é".repeat(500);
    assert_eq!(cluster.ask(0, invalid(id, token, &long)), Response::Done);
    cluster.advance(1_000);
    let view = cluster.get(0, id);
    assert_eq!(view.reason, Some(format!("invalid: {long}")));
    let kept = view.claims[0].end.as_ref().and_then(|end| end.reason.clone()).expect("it is told");
    assert!(kept.ends_with("é… (cut)") && kept.len() <= CLAIM_REASON_BYTES_MAX, "{kept}");
}

/// Goal: however many tasks fail, their table fits a message. Method: one more claim than reasons are kept for.
#[test]
fn of_very_many_claims_no_reasons_are_kept() {
    let mut cluster = Cluster::modern(3);
    let id = cluster.enqueue(0, b"x", 1);
    cluster.take(LONG_MS);
    let partition = cluster.nodes[0].partition_of(&id);
    for (more, kept) in
        [(0, "busy"), (CLAIM_ENTRIES_WITH_REASONS_MAX - 1, "busy"), (CLAIM_ENTRIES_WITH_REASONS_MAX, "")]
    {
        let entries = &mut cluster.nodes[0].partitions.get_mut(&partition).expect("it is here").consensus.table.entries;
        let entry = entries[&id].clone();
        entries.extend((0..more as u32).map(|number| (TaskId::new(1, number, 1, 0), entry.clone())));
        assert_eq!(cluster.nodes[0].kept_reason(partition, "busy"), kept, "{more} more");
    }
}
