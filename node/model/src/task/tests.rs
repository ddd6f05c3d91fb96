//! The laws of the lattice, on arbitrary triples and on shuffled, repeated deltas.

use super::*;
use crate::consensus::Hold;
use crate::replica::store::Store;
use crdts::CvRDT;
use norn_wire::{QueueName, TaskId};
use proptest::prelude::*;

fn token() -> impl Strategy<Value = Token> {
    (1u64..3, 1u64..3).prop_map(|(epoch, number)| Token { epoch, number })
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(0u8..3, 0..3)
}

fn spec() -> impl Strategy<Value = Spec> {
    (bytes(), -1i32..2)
        .prop_map(|(payload, priority)| Spec { priority, ..Spec::new(QueueName::new("q").unwrap(), payload) })
}

fn cancel() -> impl Strategy<Value = Cancel> {
    let reason = prop_oneof!["[ab]", Just(GROUP_FAILED.to_owned())];
    (any::<bool>(), reason, 0u64..2).prop_map(|(dead, reason, at_ms)| Cancel { dead, reason, at_ms })
}

/// One fact, as a client or a leader would write it.
fn delta() -> impl Strategy<Value = Task> {
    let tombstone = (3usize..6, 0u64..2).prop_map(|(state, at_ms)| Tombstone { state: State::ALL[state], at_ms });
    prop_oneof![20 => fact(), 1 => tombstone.prop_map(Task::from_tombstone)]
}

fn fact() -> impl Strategy<Value = Task> {
    prop_oneof![
        spec().prop_map(|spec| Task::from_spec(Arc::new(spec))),
        (token(), 0u32..3, bytes()).prop_map(|(token, sequence, data)| Task::from_update(token, sequence, data)),
        (token(), proptest::option::of(0u32..3), proptest::option::of(bytes()), 0u64..3).prop_map(
            |(token, sequence, result, at_ms)| Task::from_completion(
                token,
                Completed { sequence, result: result.map(Blob::from), at_ms, children: None }
            )
        ),
        (1u64..3, any::<bool>()).prop_map(|(number, handed)| with_children(number, handed)),
        (0u64..3, proptest::option::of(bytes())).prop_map(|(number, result)| {
            let completed = Completed { sequence: None, result: result.map(Blob::from), at_ms: 1, children: None };
            Task::from_seal(Token { epoch: 1, number: Token::SEALED_FROM + number }, completed)
        }),
        cancel().prop_map(Task::from_cancel),
        Just(Task::from_purge()),
        (token(), 0u64..2).prop_map(|(token, start_ms)| Task::from_facts(Facts {
            claims: vec![(token, PastClaim { start_ms, end_ms: 9, worker: "w".into(), end: None })],
            ..Facts::default()
        })),
    ]
}

/// An honest client writes one completion for a claim; its children are handed over or not.
fn with_children(number: u64, handed: bool) -> Task {
    let spec = Spec::new(QueueName::new("next").unwrap(), vec![number as u8]);
    let child = norn_wire::NewTask { id: TaskId::new(number, 1, 1, 1), spec };
    let children = Children::new(vec![child]).map(|open| if handed { open.handed() } else { open });
    let token = Token { epoch: 9, number };
    Task::from_completion(token, Completed { sequence: None, result: None, at_ms: 2, children })
}

/// Whether all facts are completions with open children, and the tokens of those handed over.
fn is_of_children(task: &Task) -> bool {
    task.facts.as_ref().is_none_or(|facts| {
        let Facts { completions, handed, .. } = &**facts;
        let open = completions.iter().all(|(_, done)| done.open_children().is_some());
        let rest = Facts { completions: completions.clone(), handed: handed.clone(), ..Facts::default() };
        open && **facts == rest
    })
}

#[test]
fn a_persons_word_shows_over_the_leaders_and_that_over_the_groups() {
    let word = |dead, reason: &str| Task::from_cancel(Cancel { dead, reason: reason.to_owned(), at_ms: 1 });
    let [group, leader, person] = [word(false, GROUP_FAILED), word(true, "a"), word(false, "a")];
    for (weaker, stronger) in [(&group, &leader), (&leader, &person), (&group, &person)] {
        assert_eq!(join(weaker, stronger), *stronger);
        assert_eq!(join(stronger, weaker), *stronger);
    }
}

/// A replica that knows of nothing else ends the task as the purging one does.
#[test]
fn a_purge_says_how_the_task_ended_and_nothing_besides() {
    let completed = |result: &[u8]| {
        let result = Some(ByteBuf::from(result.to_vec()));
        Completed { sequence: None, result: result.map(Blob::from), at_ms: 4, children: None }
    };
    let token = |number| Token { epoch: 1, number };
    let sealed = |number, result| Task::from_seal(token(Token::SEALED_FROM + number), completed(result));
    let ends = [
        Task::from_completion(token(1), completed(b"a")),
        sealed(1, b"b"),
        Task::from_cancel(Cancel { dead: true, reason: "a".into(), at_ms: 4 }),
        join(&Task::from_cancel(Cancel { dead: false, reason: "a".into(), at_ms: 3 }), &sealed(2, b"c")),
    ];
    for end in ends {
        let log = Task::from_update(token(1), 0, b"entry".to_vec());
        let purge = join(&end, &log).purge();
        assert!(purge.is_purged() && purge.facts.as_ref().is_some_and(|facts| facts.updates.is_empty()));
        assert_eq!((purge.ended(), purge.tombstone()), (end.ended(), end.tombstone()));
    }
    let tombstone = Task::from_tombstone(Tombstone { state: State::Done, at_ms: 4 });
    assert_eq!(tombstone.purge(), Task::from_purge());
    assert_eq!(join(&tombstone, &Task::from_purge()), tombstone, "nothing stands beside a tombstone");
}

#[test]
fn a_tombstone_keeps_children_until_they_are_handed_over() {
    let tombstone = Task::from_tombstone(Tombstone { state: State::Done, at_ms: 3 });
    let open = join(&with_children(1, false), &tombstone);
    assert!(open.has_outbox() && open.ended() == Some(State::Done));
    let handed = join(&open, &with_children(1, true));
    assert!(!handed.has_outbox());
    assert_eq!(join(&handed, &with_children(1, false)), handed, "what is handed over stays so");
    assert_ne!(handed.digest(&TaskId::MIN), open.digest(&TaskId::MIN), "replicas find the difference");
}

#[test]
fn what_stands_beside_a_tombstone_is_read_as_it_was_written() {
    let handed = join(&Task::from_tombstone(Tombstone { state: State::Done, at_ms: 3 }), &with_children(1, true));
    let written = rmp_serde::to_vec(&handed).unwrap();
    assert_eq!(rmp_serde::from_slice::<Task>(&written).unwrap(), handed, "without anything that was settled before it");
}

fn task() -> impl Strategy<Value = Task> {
    proptest::collection::vec(delta(), 0..8).prop_map(|deltas| fold(&deltas))
}

fn fold(deltas: &[Task]) -> Task {
    deltas.iter().fold(Task::default(), |task, delta| join(&task, delta))
}

fn join(left: &Task, right: &Task) -> Task {
    let mut merged = left.clone();
    merged.merge(right.clone());
    merged
}

proptest! {
    // S9
    #[test]
    fn merge_is_commutative_associative_and_idempotent(a in task(), b in task(), c in task()) {
        prop_assert_eq!(join(&a, &b), join(&b, &a));
        prop_assert_eq!(join(&join(&a, &b), &c), join(&a, &join(&b, &c)));
        prop_assert_eq!(join(&a, &a), a.clone());
        prop_assert_eq!(join(&a, &Task::default()), a);
    }

    #[test]
    fn merge_is_monotone(a in task(), b in task()) {
        let merged = join(&a, &b);
        prop_assert!(merged.knows(&a) && merged.knows(&b));
        prop_assert_eq!(a.knows(&b), merged == a);
        prop_assert!(a.ended().is_none() || merged.ended().is_some());
    }

    // S9, S37: whatever order deltas come in, and however often, the result is the same.
    #[test]
    fn shuffled_and_repeated_deltas_give_the_same_task(
        (deltas, order) in proptest::collection::vec(delta(), 1..10).prop_flat_map(|deltas| {
            let indices: Vec<usize> = (0..deltas.len()).chain(0..deltas.len()).collect();
            (Just(deltas), Just(indices).prop_shuffle())
        })
    ) {
        let shuffled: Vec<Task> = order.iter().map(|index| deltas[*index].clone()).collect();
        prop_assert_eq!(fold(&shuffled), fold(&deltas));
    }

    #[test]
    fn completion_and_updates_commute_with_enqueue(spec in spec(), later in proptest::collection::vec(delta(), 1..4)) {
        let enqueue = Task::from_spec(Arc::new(spec));
        let after = later.iter().fold(enqueue.clone(), |task, delta| join(&task, delta));
        prop_assert_eq!(join(&fold(&later), &enqueue), after);
    }

    #[test]
    fn equal_digests_mean_equal_tasks(a in task(), b in task()) {
        let id = TaskId::new(1, 2, 3, 4);
        // The content of tombstones is not compared, but for what stands beside them.
        let buried = a.tombstone.is_some() && b.tombstone.is_some() && a.facts == b.facts;
        prop_assert_eq!(a == b || (a.is_bottom() && b.is_bottom()) || buried, a.digest(&id) == b.digest(&id));
    }

    /// Goal: a store hashes only what a merge may change, and comes to the digest of the whole task all the same.
    #[test]
    fn a_store_has_the_digest_of_the_whole_task(
        (deltas, order) in proptest::collection::vec(prop_oneof![delta(), task()], 1..6).prop_flat_map(|deltas| {
            let indices: Vec<usize> = (0..deltas.len()).chain(0..deltas.len()).collect();
            (Just(deltas), Just(indices).prop_shuffle())
        })
    ) {
        let (id, mut store) = (TaskId::new(1, 2, 3, 4), Store::default());
        for index in order {
            store.merge(id, deltas[index].clone(), Hold::default(), 0);
            let whole = store.content(&id).map_or(0, |(task, _)| task.digest(&id));
            prop_assert_eq!(store.digest(&id), whole);
        }
        prop_assert_eq!(store.digest(&id), fold(&deltas).digest(&id));
    }

    #[test]
    fn what_is_not_refused_at_the_door_sets_no_conflict_flag(a in task(), b in delta()) {
        if a.contradicts(&b).is_ok() && !a.facts.as_ref().is_some_and(|facts| facts.conflict) {
            prop_assert!(!join(&a, &b).facts.is_some_and(|facts| facts.conflict));
        }
    }

    // S23: only contiguous histories are visible.
    #[test]
    fn visible_updates_have_no_gap(a in task()) {
        let mut next = std::collections::BTreeMap::new();
        for entry in visible(&a) {
            let expected = next.entry(entry.token).or_insert(0);
            prop_assert_eq!(*expected, entry.sequence);
            *expected += 1;
        }
        for (token, length) in next {
            prop_assert_eq!(a.visible_length(token), length);
        }
        let all = a.facts.as_ref().map_or(0, |facts| facts.updates.len());
        prop_assert!(a.log_incomplete() || visible(&a).len() == all, "what is hidden is told of");
    }

    #[test]
    fn nothing_stands_beside_a_tombstone_but_children(a in task(), b in task(), at_ms in any::<u64>()) {
        let buried = join(&a, &Task::from_tombstone(Tombstone { state: State::Done, at_ms }));
        prop_assert!(buried.spec.is_none() && is_of_children(&buried));
        let after = join(&b, &buried);
        prop_assert!(after.spec.is_none() && is_of_children(&after) && after.ended().is_some());
        prop_assert_eq!(after.ending(), after.clone());
        prop_assert_eq!(a.tombstone().map(|tombstone| tombstone.state), a.ended());
    }

    #[test]
    fn a_task_reads_back_from_its_bytes(a in task()) {
        let mut bytes = Vec::new();
        a.serialize(&mut rmp_serde::Serializer::new(&mut bytes)).unwrap();
        prop_assert_eq!(norn_wire::codec::decode_value::<Task>(&bytes).unwrap(), a);
    }
}

#[test]
fn a_completion_that_needs_a_seal_ends_nothing_without_it() {
    let token = |number| Token { epoch: 1, number: Token::SEALED_FROM + number };
    let completed =
        |result: &[u8]| Completed { sequence: None, result: Some(result.to_vec().into()), at_ms: 1, children: None };
    let late = Task::from_completion(token(9), completed(b"late"));
    assert_eq!(late.ended(), None);
    let sealed = join(&late, &Task::from_seal(token(3), completed(b"done")));
    assert_eq!(sealed.ended(), Some(State::Done));
    let facts = sealed.facts.as_ref().expect("there are some");
    assert_eq!(facts.winner().map(|(token, _)| *token), Some(token(3)), "whatever is greater");
    assert_eq!(facts.rejected().map(|(token, _)| *token).collect::<Vec<_>>(), [token(9)]);
    assert!(!facts.conflict);
    assert!(join(&sealed, &Task::from_seal(token(4), completed(b"too"))).facts.expect("some").conflict);
}

/// A task without later fields is encoded as it always was, and each later field is read back at its place.
#[test]
fn facts_of_any_kind_are_read_back() {
    let other = TaskId::new(1, 2, 3, 4);
    let seal = Some(Token { epoch: 1, number: Token::SEALED_FROM + 1 });
    let settled = vec![(other, Settled::Done)];
    for (settled, seal, length) in
        [(Vec::new(), None, 5), (settled.clone(), None, 6), (Vec::new(), seal, 7), (settled, seal, 7)]
    {
        let facts = Facts { settled, seal, ..Facts::default() };
        let bytes = rmp_serde::to_vec(&facts).expect("facts always encode");
        assert_eq!(bytes[0], 0x90 + length, "a list of so many");
        assert_eq!(rmp_serde::from_slice::<Facts>(&bytes).expect("it was just written"), facts);
    }
}
