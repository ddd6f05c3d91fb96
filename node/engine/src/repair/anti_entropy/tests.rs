//! Goal: a Merkle sync session makes any two replicas equal, at a cost that follows the differences. Method: two stores and two sessions
//! without a node; steps and tasks are carried from one to the other, lost or repeated.

use super::budget::Cost;
use super::sync_session::{Parcel, Slice, SyncSession};
use norn_model::config::Config;
use norn_model::consensus::Hold;
use norn_model::limits::{BUCKETS, REPAIR_LIST_TASKS_MAX, REPAIR_LOOKS_MAX, REPAIR_QUEUE_BYTES_MAX};
use norn_model::message::{Level, Step};
use norn_model::replica::Store;
use norn_model::replica::places::bucket_of;
use norn_model::task::Task;
use norn_wire::random::Random;
use norn_wire::{PartitionId, QueueName, Spec, TaskId, Token};
use proptest::prelude::*;
use std::sync::Arc;

const PARTITION: PartitionId = PartitionId(3);
/// No slice is bounded by what there is to spend.
const PLENTY: Cost = Cost { bytes: u64::MAX, looks: u64::MAX };
/// More slices than any of these sync sessions needs.
const SLICES_MAX: usize = 10_000;

fn enqueued() -> Task {
    let queue = QueueName::new("mail").expect("a name");
    Task::from_spec(Arc::new(Spec::new(queue, vec![7; 30])))
}

fn logged(sequence: u32) -> Task {
    Task::from_update(Token { epoch: 1, number: 1 }, sequence, b"half".to_vec())
}

/// Tasks with ids spread over all buckets, as if they came one by one.
fn scattered(number: u32) -> TaskId {
    TaskId::new(1_700_000_000_000 + u64::from(number), number.wrapping_mul(0x9e37_79b9), 5, 77)
}

/// Tasks of large batches in one bucket.
fn crowded(count: usize) -> Vec<TaskId> {
    let batches = (0..u32::MAX).map(|tag| TaskId::new(1_700_000_000_000, 0, 5, tag)).filter(|id| bucket_of(id) == 7);
    let tasks = batches.flat_map(|id| (0..1_024).map(move |number| TaskId::new(id.time_ms(), number, 5, id.tag())));
    tasks.take(count).collect()
}

#[derive(Default)]
struct Side {
    store: Store,
    sync_session: SyncSession,
    sent: Cost,
    steps: Vec<Step>,
    tasks: usize,
    found: u64,
}

impl Side {
    fn with(ids: impl IntoIterator<Item = TaskId>) -> Side {
        let mut side = Side::default();
        ids.into_iter().for_each(|id| side.merge(id, enqueued()));
        side
    }

    fn merge(&mut self, id: TaskId, task: Task) {
        self.store.merge(id, task, Hold::default(), 1);
    }

    fn work(&mut self) -> Slice {
        let slice = self.sync_session.work(|id| (id == PARTITION).then_some(&self.store), PLENTY, &Config::default());
        self.sent.add(slice.cost);
        self.steps.extend(slice.steps.iter().cloned());
        self.tasks += slice.parcels.iter().map(|parcel| parcel.ids.len()).sum::<usize>();
        self.found += slice.differing.values().sum::<u64>();
        slice
    }
}

/// What arrives of messages that are lost, repeated and reordered now and then.
fn arriving<T: Clone>(all: Vec<T>, faults: &mut Option<Random>) -> Vec<T> {
    let Some(random) = faults else { return all };
    let mut arrived: Vec<T> =
        all.into_iter().flat_map(|one| vec![one; [0, 1, 1, 1, 2][random.below(5) as usize]]).collect();
    for place in (1..arrived.len()).rev() {
        arrived.swap(place, random.below(place as u64 + 1) as usize);
    }
    arrived
}

/// Runs one comparison, from the top of the tree. `faults` decides what is lost.
fn compare(sides: &mut [Side; 2], salt: u64, faults: &mut Option<Random>) {
    sides[salt as usize % 2].sync_session.begin(PARTITION, salt);
    for slice in 0..SLICES_MAX {
        if sides.iter().all(|side| side.sync_session.is_idle()) {
            return;
        }
        let [one, other] = sides;
        let (from, to) = if slice % 2 == 0 { (one, other) } else { (other, one) };
        let Slice { steps, parcels, .. } = from.work();
        for step in arriving(steps, faults) {
            assert!(to.sync_session.hear(step));
        }
        for Parcel { ids, .. } in arriving(parcels, faults) {
            for id in ids {
                to.merge(id, from.store.content(&id).expect("it is sent").0);
            }
        }
    }
    panic!("a sync session without end");
}

fn are_equal(sides: &[Side; 2]) -> bool {
    let ids = |side: &Side| side.store.after(None).map(|(id, task)| (*id, task.clone())).collect::<Vec<_>>();
    let equal = sides[0].store.root() == sides[1].store.root();
    assert_eq!(equal, ids(&sides[0]) == ids(&sides[1]), "equal roots mean equal tasks");
    equal
}

/// The sides that know a task, and what they know.
#[derive(Debug, Clone, Copy)]
enum Known {
    Both,
    Here,
    There,
    /// Both, each with a fact of its own.
    Differently,
}

fn replicas(scattered_tasks: &[Known], crowded_tasks: &[Known]) -> [Side; 2] {
    let mut sides = [Side::default(), Side::default()];
    let one_by_one = (0..).map(scattered).zip(scattered_tasks);
    for (id, known) in one_by_one.chain(crowded(crowded_tasks.len()).into_iter().zip(crowded_tasks)) {
        for (place, side) in sides.iter_mut().enumerate() {
            if matches!((known, place), (Known::Here, 1) | (Known::There, 0)) {
                continue;
            }
            side.merge(id, enqueued());
            if matches!(known, Known::Differently) {
                side.merge(id, logged(place as u32));
            }
        }
    }
    sides
}

fn known() -> impl Strategy<Value = Known> {
    prop_oneof![20 => Just(Known::Both), 1 => Just(Known::Here), 1 => Just(Known::There), 1 => Just(Known::Differently)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    // S30, S40
    #[test]
    fn one_comparison_makes_any_two_replicas_equal(
        scattered_tasks in proptest::collection::vec(known(), 0..400),
        crowded_tasks in proptest::collection::vec(known(), 0..700),
        salt in 0..2_u64,
    ) {
        let mut sides = replicas(&scattered_tasks, &crowded_tasks);
        compare(&mut sides, salt, &mut None);
        prop_assert!(are_equal(&sides));
    }

    #[test]
    fn a_bounded_number_of_comparisons_does_where_messages_are_lost_and_repeated(
        scattered_tasks in proptest::collection::vec(known(), 0..150),
        crowded_tasks in proptest::collection::vec(known(), 0..400),
        seed: u64,
    ) {
        let mut sides = replicas(&scattered_tasks, &crowded_tasks);
        let mut faults = Some(Random::new(seed));
        let mut rounds = 0;
        while !are_equal(&sides) {
            rounds += 1;
            // A difference is seven messages deep at most, of which each arrives four times in five.
            prop_assert!(rounds <= 60, "{rounds} rounds");
            compare(&mut sides, rounds, &mut faults);
        }
    }
}

#[test]
fn equal_replicas_say_nothing_but_their_groups() {
    let mut sides = [0, 1].map(|_| Side::with((0..2_000).map(scattered)));
    compare(&mut sides, 0, &mut None);
    assert!(matches!(&sides[0].steps[..], [Step::Compare { level: Level::Groups, number: 0, .. }]));
    assert_eq!((sides[1].steps.len(), sides[0].tasks + sides[1].tasks), (0, 0));
}

#[test]
fn one_difference_costs_one_node_of_each_level() {
    let mut sides = [0, 1].map(|_| Side::with((0..20_000).map(scattered)));
    let id = scattered(12_345);
    sides[1].merge(id, logged(0));
    compare(&mut sides, 0, &mut None);
    assert!(are_equal(&sides));
    let bucket = bucket_of(&id) as u16;
    let group = bucket / (BUCKETS / 32) as u16;
    let [one, other] = &sides;
    assert!(
        matches!(&one.steps[..], [
            Step::Compare { level: Level::Groups, number: 0, .. },
            Step::List { bucket: listed, .. } | Step::Want { bucket: listed, .. },
            ..
        ] if *listed == bucket),
        "{:?}",
        one.steps
    );
    assert!(matches!(&other.steps[0], Step::Compare { level: Level::Buckets, number, .. } if *number == group));
    assert!(one.sent.bytes + other.sent.bytes < 1_500, "{} and {}", one.sent.bytes, other.sent.bytes);
    assert!(one.sent.looks + other.sent.looks < 200, "a bucket is looked at, and not the partition");
    assert_eq!(one.found.max(other.found), 1);
}

#[test]
fn large_buckets_are_compared_cell_by_cell() {
    let mut sides = [0, 1].map(|_| Side::with(crowded(4_000)));
    let missing = TaskId::new(1_700_000_000_000, 2_000, 5, 0xff_ffff);
    let id = crowded(3_000)[2_999];
    assert_ne!(id, missing);
    sides[0].merge(id, logged(0));
    compare(&mut sides, 1, &mut None);
    assert!(are_equal(&sides));
    let steps = || sides.iter().flat_map(|side| &side.steps);
    assert!(steps().any(|step| matches!(step, Step::Compare { level: Level::Cells, number: 7, .. })));
    let listed = steps().filter_map(|step| match step {
        Step::List { cells, hashes, .. } => Some((cells.count_ones(), hashes.len() / 8)),
        _ => None,
    });
    let listed: Vec<(u32, usize)> = listed.collect();
    assert!(matches!(&listed[..], [(1, tasks)] if (60..250).contains(tasks)), "one cell of 32: {listed:?}");
}

#[test]
fn a_bucket_too_large_to_be_looked_at_at_once_is_listed_in_parts() {
    let ids = crowded(REPAIR_LOOKS_MAX as usize + 3_000);
    let mut sides = [0, 1].map(|_| Side::with(ids.iter().copied()));
    sides[0].merge(ids[5], logged(0));
    sides[1].merge(ids[ids.len() - 5], logged(0));
    compare(&mut sides, 0, &mut None);
    assert!(are_equal(&sides));
    let mut ranges = Vec::new();
    for step in sides.iter().flat_map(|side| &side.steps) {
        if let Step::List { after, upto, hashes, .. } = step {
            assert!(hashes.len() <= REPAIR_LIST_TASKS_MAX * 8);
            ranges.push((*after, *upto));
        }
    }
    assert_eq!(ranges.len(), ids.len().div_ceil(REPAIR_LIST_TASKS_MAX));
    assert!(ranges.windows(2).all(|pair| pair[0].1 == pair[1].0), "each goes on where the one before ended");
    assert_eq!((ranges[0].0, ranges[ranges.len() - 1].1), (None, None));
}

#[test]
fn an_empty_replica_is_sent_everything_without_questions() {
    for holder in [0, 1] {
        let mut sides = [Side::default(), Side::default()];
        sides[holder] = Side::with((0..3_000).map(scattered));
        compare(&mut sides, 0, &mut None);
        assert!(are_equal(&sides));
        assert_eq!(sides[holder].tasks, 3_000, "each once");
        assert!(sides[0].steps.len() + sides[1].steps.len() <= 40, "{} steps", sides[0].steps.len());
        assert_eq!(sides[holder].found, 3_000);
    }
}

#[test]
fn a_slice_is_bounded_and_what_is_left_is_not_lost() {
    let mut sides = [Side::with((0..5_000).map(scattered)), Side::default()];
    sides[1].sync_session.begin(PARTITION, 1);
    let top = sides[1].work().steps;
    top.into_iter().for_each(|step| assert!(sides[0].sync_session.hear(step)));
    let mut sent = 0;
    while !sides[0].sync_session.is_idle() {
        let slice = sides[0].work();
        assert!(slice.cost.looks <= REPAIR_LOOKS_MAX + 16);
        sent += slice.parcels.iter().map(|parcel| parcel.ids.len()).sum::<usize>();
    }
    assert_eq!(sent, 5_000);
}

#[test]
fn steps_that_nobody_makes_are_refused() {
    let hashes = |count: usize| vec![0; count].into();
    let compared = |level, number, filled, bytes| Step::Compare {
        partition: PARTITION,
        salt: 1,
        level,
        number,
        filled,
        hashes: hashes(bytes),
    };
    let listed = |bucket, bytes| Step::List {
        partition: PARTITION,
        salt: 1,
        bucket,
        cells: u64::MAX,
        after: None,
        upto: None,
        hashes: hashes(bytes),
    };
    let mut sync_session = SyncSession::default();
    for unsound in [
        compared(Level::Groups, 1, 0, 0),
        compared(Level::Buckets, 32, 0, 0),
        compared(Level::Cells, BUCKETS as u16, 0, 0),
        compared(Level::Groups, 0, 1 << 32, 8),
        compared(Level::Cells, 0, 0b11, 8),
        compared(Level::Cells, 0, 0, 8),
        listed(BUCKETS as u16, 8),
        listed(0, 7),
        listed(0, (REPAIR_LIST_TASKS_MAX + 1) * 8),
    ] {
        assert!(!sync_session.hear(unsound.clone()), "{unsound:?}");
    }
    assert!(sync_session.is_idle());
    assert!(sync_session.hear(compared(Level::Cells, 0, 0b11, 16)) && sync_session.hear(listed(0, 16)));
}

#[test]
fn what_is_left_to_say_is_bounded_whatever_a_peer_says() {
    let mut side = Side::with((0..100).map(scattered));
    let step = || Step::List {
        partition: PARTITION,
        salt: 1,
        bucket: 0,
        cells: u64::MAX,
        after: None,
        upto: None,
        hashes: vec![1; REPAIR_LIST_TASKS_MAX * 8].into(),
    };
    for _ in 0..2 * REPAIR_QUEUE_BYTES_MAX / (REPAIR_LIST_TASKS_MAX * 8) {
        assert!(side.sync_session.hear(step()));
    }
    let mut answers = 0;
    while !side.sync_session.is_idle() {
        answers += side.work().steps.len();
    }
    assert!(answers <= REPAIR_QUEUE_BYTES_MAX / (REPAIR_LIST_TASKS_MAX * 8), "{answers}");
}
