//! Merkle sync session: the messages of two nodes about trees that differ, and the work that is left for one peer.
//!
//! Each step covers one node of a partition's tree, and the answer covers only those of its children that differ: the groups of a
//! partition, the buckets of a group, the cells of a bucket, at last the tasks. Where one side has nothing, the other sends everything
//! without further questions. A step holds all that is needed to answer it, and each answer is further down the tree. So steps may be
//! lost, repeated and reordered, and every session ends.
//!
//! Instead of digests, steps carry hashes of 8 bytes, under a salt that is drawn anew for each comparison: a collision in one does not
//! occur in the next. Half of a task's hash is of its id, so that it still finds a task that has changed meanwhile.

use super::budget::Cost;
use norn_model::config::{Config, mutant};
use norn_model::limits::{
    BUCKETS, EXCHANGE_BYTES_MAX, EXCHANGE_TASKS_MAX, GROUP_BUCKETS, GROUPS, REPAIR_LIST_TASKS_MAX, REPAIR_LOOKS_MAX,
    REPAIR_QUEUE_BYTES_MAX,
};
use norn_model::message::{Level, Step};
use norn_model::replica::Store;
use norn_model::replica::places::{CELLS, cell_of};
use norn_model::replica::tree::Tree;
use norn_model::task::{Digest, Task};
use norn_wire::{PartitionId, TaskId};
use serde_bytes::ByteBuf;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes of a hash in a step.
const HASH_BYTES: usize = 8;
/// Bytes of a step besides its hashes, roughly.
const STEP_BYTES: usize = 40;
/// Buckets of up to this many tasks are listed at once; the cells of larger ones are compared first.
const LISTED_AT_ONCE_MAX: usize = 128;
/// All cells of a bucket.
const ALL_CELLS: u64 = u64::MAX >> (u64::BITS as usize - CELLS);
const _: () = assert!(GROUPS <= 64 && GROUP_BUCKETS <= 64 && CELLS <= 64, "children are the bits of a number");

fn hash_of_node(digest: Digest, salt: u64) -> u64 {
    xxh3_64_with_seed(&digest.to_be_bytes(), salt)
}

fn hash_of_id(id: &TaskId, salt: u64) -> u32 {
    xxh3_64_with_seed(id.as_bytes(), salt) as u32
}

fn hash_of_task(id: &TaskId, digest: Digest, salt: u64) -> u64 {
    u64::from(hash_of_id(id, salt)) << 32 | u64::from(hash_of_node(digest, salt) as u32)
}

/// The half of a task's hash that is of its id.
fn id_half(hash: u64) -> u32 {
    (hash >> 32) as u32
}

fn pack(hashes: impl IntoIterator<Item = u64>) -> ByteBuf {
    ByteBuf::from(hashes.into_iter().flat_map(u64::to_be_bytes).collect::<Vec<u8>>())
}

fn unpack(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks_exact(HASH_BYTES).map(|chunk| u64::from_be_bytes(chunk.try_into().expect("eight bytes")))
}

/// The children of a tree node: which are not empty, and a hash of each of those.
#[derive(Debug, PartialEq, Eq)]
struct Children {
    filled: u64,
    hashes: Vec<u64>,
}

impl Children {
    fn of(digests: impl Iterator<Item = Option<Digest>>, salt: u64) -> Children {
        let mut children = Children { filled: 0, hashes: Vec::new() };
        for (place, digest) in digests.enumerate() {
            if let Some(digest) = digest {
                children.filled |= 1 << place;
                children.hashes.push(hash_of_node(digest, salt));
            }
        }
        children
    }

    fn child(&self, place: usize) -> Option<u64> {
        let before = self.filled & !(u64::MAX << place);
        (self.filled & 1 << place != 0).then(|| self.hashes[before.count_ones() as usize])
    }
}

fn cells(store: &Store, bucket: usize) -> impl Iterator<Item = Option<Digest>> {
    let mut sums = [None; CELLS];
    for (id, digest) in store.bucket(bucket, None) {
        let sum: &mut Option<Digest> = &mut sums[cell_of(&id)];
        *sum = Some(sum.unwrap_or(0).wrapping_add(digest));
    }
    sums.into_iter()
}

/// Whether a step is one that this version makes.
fn is_sound(step: &Step) -> bool {
    let in_range = |level: Level, number: u16| {
        usize::from(number)
            < match level {
                Level::Groups => 1,
                Level::Buckets => GROUPS,
                Level::Cells => BUCKETS,
            }
    };
    let children = |level: Level| match level {
        Level::Groups => GROUPS,
        Level::Buckets => GROUP_BUCKETS,
        Level::Cells => CELLS,
    };
    let whole =
        |hashes: &[u8]| hashes.len().is_multiple_of(HASH_BYTES) && hashes.len() <= REPAIR_LIST_TASKS_MAX * HASH_BYTES;
    match step {
        Step::Compare { level, number, filled, hashes, .. } => {
            in_range(*level, *number)
                && filled.checked_shr(children(*level) as u32).unwrap_or(0) == 0
                && hashes.len() == filled.count_ones() as usize * HASH_BYTES
        }
        Step::List { bucket, hashes, .. } | Step::Want { bucket, hashes, .. } => {
            usize::from(*bucket) < BUCKETS && whole(hashes)
        }
    }
}

/// Something left to do for a peer.
#[derive(Debug)]
enum Job {
    /// Begins at the top of a partition's tree.
    Begin { partition: PartitionId, salt: u64 },
    /// Answers the peer's step.
    Answer(Step),
    /// Lists the tasks of cells of a bucket, from an id on.
    List { partition: PartitionId, salt: u64, bucket: u16, cells: u64, after: Option<TaskId> },
    /// Sends all tasks of some buckets, from an id on: the peer has none of them.
    Push { partition: PartitionId, buckets: Range<usize>, after: Option<TaskId> },
    /// Sends tasks.
    Send { partition: PartitionId, ids: Vec<TaskId>, by_buckets: bool },
}

impl Job {
    fn partition(&self) -> PartitionId {
        match self {
            Job::Begin { partition, .. }
            | Job::List { partition, .. }
            | Job::Push { partition, .. }
            | Job::Send { partition, .. } => *partition,
            Job::Answer(step) => step.partition(),
        }
    }

    /// Bytes of memory, roughly.
    fn bytes(&self) -> usize {
        size_of::<Job>()
            + match self {
                Job::Answer(Step::Compare { hashes, .. } | Step::List { hashes, .. } | Step::Want { hashes, .. }) => {
                    hashes.len()
                }
                Job::Send { ids, .. } => ids.len() * size_of::<TaskId>(),
                Job::Begin { .. } | Job::List { .. } | Job::Push { .. } => 0,
            }
    }
}

/// Tasks to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parcel {
    /// Partition.
    pub partition: PartitionId,
    /// Tasks.
    pub ids: Vec<TaskId>,
    /// Found by comparing trees.
    pub by_buckets: bool,
}

/// The result of a slice of work.
#[derive(Debug, Default)]
pub struct Slice {
    /// To be sent to the peer.
    pub steps: Vec<Step>,
    /// To be sent to the peer.
    pub parcels: Vec<Parcel>,
    /// Number of tasks found to differ, at least, by partition and salt.
    pub differing: BTreeMap<(PartitionId, u64), u64>,
    /// Partitions that the work was about.
    pub partitions: BTreeSet<PartitionId>,
    /// Its cost.
    pub cost: Cost,
    /// Most it may cost.
    allowed: Cost,
}

impl Slice {
    fn is_full(&self) -> bool {
        self.cost.bytes >= self.allowed.bytes.min(EXCHANGE_BYTES_MAX as u64)
            || self.cost.looks >= self.allowed.looks.min(REPAIR_LOOKS_MAX)
    }

    fn say(&mut self, step: Step) {
        let hashes = match &step {
            Step::Compare { hashes, .. } | Step::List { hashes, .. } | Step::Want { hashes, .. } => hashes.len(),
        };
        self.cost.bytes += (STEP_BYTES + hashes) as u64;
        self.steps.push(step);
    }

    fn found(&mut self, partition: PartitionId, salt: u64, tasks: usize) {
        *self.differing.entry((partition, salt)).or_default() += tasks as u64;
    }
}

/// Work left for one peer, in order. Bounded: what is too much is dropped, and found again by a later comparison.
#[derive(Debug, Default)]
pub struct SyncSession {
    jobs: VecDeque<Job>,
    bytes: usize,
}

impl SyncSession {
    /// Whether no work is left.
    pub fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Begins to compare the trees of a partition, with a salt not used for it before.
    pub fn begin(&mut self, partition: PartitionId, salt: u64) {
        self.last(Job::Begin { partition, salt });
    }

    /// Queues tasks that the peer lacks.
    pub fn send(&mut self, partition: PartitionId, ids: &[TaskId]) {
        for ids in ids.chunks(EXCHANGE_TASKS_MAX) {
            self.last(Job::Send { partition, ids: ids.to_vec(), by_buckets: false });
        }
    }

    /// Queues the answer to a peer's step; `false` if no sound peer sends it.
    pub fn hear(&mut self, step: Step) -> bool {
        let sound = is_sound(&step);
        if sound {
            self.last(Job::Answer(step));
        }
        sound
    }

    fn last(&mut self, job: Job) {
        if self.bytes + job.bytes() <= REPAIR_QUEUE_BYTES_MAX {
            self.bytes += job.bytes();
            self.jobs.push_back(job);
        }
    }

    /// Puts the rest of the job that was just taken back to the front.
    fn first(&mut self, job: Job) {
        self.bytes += job.bytes();
        self.jobs.push_front(job);
    }

    /// Does the next work, up to a cost and the little by which its last part exceeds it. `store` gives the replica of a partition that
    /// is shared with the peer.
    pub fn work<'a>(
        &mut self,
        store: impl Fn(PartitionId) -> Option<&'a Store>,
        allowed: Cost,
        config: &Config,
    ) -> Slice {
        let mut slice = Slice { allowed, ..Slice::default() };
        while !slice.is_full()
            && let Some(job) = self.jobs.pop_front()
        {
            assert!(self.bytes >= job.bytes(), "a piece of work was not counted");
            self.bytes -= job.bytes();
            let Some(store) = store(job.partition()) else { continue };
            slice.partitions.insert(job.partition());
            self.carry_out(job, store, &mut slice, config);
        }
        assert!(!self.jobs.is_empty() || self.bytes == 0, "bytes are counted of work that is done");
        slice
    }

    fn carry_out(&mut self, job: Job, store: &Store, slice: &mut Slice, config: &Config) {
        match job {
            Job::Begin { partition, salt } => slice.say(compare(store.tree(), partition, salt, Level::Groups, 0)),
            Job::Answer(Step::Compare { partition, salt, level, number, filled, hashes }) => {
                let theirs = Children { filled, hashes: unpack(&hashes).collect() };
                assert_eq!(theirs.hashes.len(), filled.count_ones() as usize, "an unsound step was taken in");
                let at = (partition, salt, usize::from(number));
                match level {
                    Level::Groups | Level::Buckets => self.descend(at, level, &theirs, (store, config), slice),
                    Level::Cells => self.on_cells(at, &theirs, store, slice),
                }
            }
            Job::Answer(Step::List { partition, salt, bucket, cells, after, upto, hashes }) => {
                let theirs: BTreeSet<u64> = unpack(&hashes).collect();
                self.on_list((partition, salt, bucket), cells, (after, upto), theirs, store, slice);
            }
            Job::Answer(Step::Want { partition, salt, bucket, after, hashes }) => {
                let wanted = unpack(&hashes).map(|hash| (id_half(hash), hash)).collect();
                self.on_want((partition, salt, bucket), after, wanted, store, slice);
            }
            Job::List { partition, salt, bucket, cells, after } => {
                self.list((partition, salt, bucket), cells, after, store, slice);
            }
            Job::Push { partition, buckets, after } => self.push(partition, buckets, after, store, slice),
            Job::Send { partition, ids, by_buckets } => {
                self.parcel(Parcel { partition, ids, by_buckets }, store, slice)
            }
        }
    }

    /// Compares the peer's groups or buckets with the own ones, and goes on with those that differ.
    fn descend(
        &mut self,
        (partition, salt, number): (PartitionId, u64, usize),
        level: Level,
        theirs: &Children,
        (store, config): (&Store, &Config),
        slice: &mut Slice,
    ) {
        let tree = store.tree();
        let own = children(tree, level, number, salt);
        let count = if level == Level::Groups { GROUPS } else { GROUP_BUCKETS };
        let compared = if mutant!(config, HalfLevel) { count / 2 } else { count };
        for place in 0..compared {
            if own.child(place) == theirs.child(place) {
                continue;
            }
            let child = if level == Level::Groups { place } else { number * GROUP_BUCKETS + place };
            let buckets = if level == Level::Groups { Tree::buckets_of(child) } else { child..child + 1 };
            let next = if level == Level::Groups { Level::Buckets } else { Level::Cells };
            if theirs.child(place).is_none() {
                slice.found(partition, salt, buckets.clone().map(|bucket| tree.count(bucket)).sum());
                self.last(Job::Push { partition, buckets, after: None });
            } else if next == Level::Buckets || own.child(place).is_none() {
                slice.say(compare(tree, partition, salt, next, child));
            } else {
                self.open((partition, salt, child), store, slice);
            }
        }
    }

    /// Describes a bucket that differs: by its cells, or by its tasks where that is as cheap, or where there are too many to look at in
    /// one go.
    fn open(&mut self, (partition, salt, bucket): (PartitionId, u64, usize), store: &Store, slice: &mut Slice) {
        let count = store.tree().count(bucket);
        if count <= LISTED_AT_ONCE_MAX || count as u64 > REPAIR_LOOKS_MAX {
            let job = Job::List { partition, salt, bucket: bucket as u16, cells: ALL_CELLS, after: None };
            return self.last(job);
        }
        slice.cost.looks += count as u64;
        let own = Children::of(cells(store, bucket), salt);
        let (number, filled, hashes) = (bucket as u16, own.filled, pack(own.hashes));
        slice.say(Step::Compare { partition, salt, level: Level::Cells, number, filled, hashes });
    }

    /// Compares the peer's cells of a bucket with the own ones.
    fn on_cells(
        &mut self,
        (partition, salt, bucket): (PartitionId, u64, usize),
        theirs: &Children,
        store: &Store,
        slice: &mut Slice,
    ) {
        let count = store.tree().count(bucket);
        if theirs.filled == 0 {
            slice.found(partition, salt, count);
            return self.last(Job::Push { partition, buckets: bucket..bucket + 1, after: None });
        }
        let mut differing = ALL_CELLS;
        if count as u64 <= REPAIR_LOOKS_MAX {
            slice.cost.looks += count as u64;
            let own = Children::of(cells(store, bucket), salt);
            differing = (0..CELLS).filter(|cell| own.child(*cell) != theirs.child(*cell)).map(|cell| 1 << cell).sum();
        }
        if differing != 0 {
            self.last(Job::List { partition, salt, bucket: bucket as u16, cells: differing, after: None });
        }
    }

    fn list(
        &mut self,
        (partition, salt, bucket): (PartitionId, u64, u16),
        cells: u64,
        after: Option<TaskId>,
        store: &Store,
        slice: &mut Slice,
    ) {
        let mut walk = Walk::new(store, bucket, cells, after, None);
        let listed = walk.by_ref().take(REPAIR_LIST_TASKS_MAX);
        let hashes = pack(listed.map(|(id, digest)| hash_of_task(&id, digest, salt)));
        let upto = walk.rest();
        assert!(upto.is_none() || upto > after, "a list does not go on");
        slice.cost.looks += walk.looks;
        slice.say(Step::List { partition, salt, bucket, cells, after, upto, hashes });
        if upto.is_some() {
            self.first(Job::List { partition, salt, bucket, cells, after: upto });
        }
    }

    /// Compares the peer's tasks in a range of a bucket: sends what it lacks, and asks for what is lacking here.
    fn on_list(
        &mut self,
        (partition, salt, bucket): (PartitionId, u64, u16),
        cells: u64,
        (after, upto): (Option<TaskId>, Option<TaskId>),
        mut theirs: BTreeSet<u64>,
        store: &Store,
        slice: &mut Slice,
    ) {
        let mut walk = Walk::new(store, bucket, cells, after, upto);
        let lacking = |(id, digest): &(TaskId, Digest)| !theirs.remove(&hash_of_task(id, *digest, salt));
        let ids: Vec<TaskId> = walk.by_ref().filter(lacking).map(|(id, _)| id).collect();
        let rest = walk.rest();
        assert!(rest.is_none() || rest > after, "a comparison of lists does not go on");
        slice.cost.looks += walk.looks;
        let sent = ids.len();
        for ids in ids.chunks(EXCHANGE_TASKS_MAX) {
            self.last(Job::Send { partition, ids: ids.to_vec(), by_buckets: true });
        }
        if rest.is_some() {
            slice.found(partition, salt, sent);
            let hashes = pack(theirs);
            return self.first(Job::Answer(Step::List { partition, salt, bucket, cells, after: rest, upto, hashes }));
        }
        let known_here: BTreeSet<u32> = ids.iter().map(|id| hash_of_id(id, salt)).collect();
        let unknown = theirs.iter().filter(|hash| !known_here.contains(&id_half(**hash))).count();
        slice.found(partition, salt, sent + unknown);
        if !theirs.is_empty() {
            slice.say(Step::Want { partition, salt, bucket, after, hashes: pack(theirs) });
        }
    }

    fn on_want(
        &mut self,
        (partition, salt, bucket): (PartitionId, u64, u16),
        after: Option<TaskId>,
        mut wanted: BTreeMap<u32, u64>,
        store: &Store,
        slice: &mut Slice,
    ) {
        let mut walk = Walk::new(store, bucket, ALL_CELLS, after, None);
        let mut ids = Vec::new();
        while !wanted.is_empty()
            && let Some((id, _)) = walk.next()
        {
            if wanted.remove(&hash_of_id(&id, salt)).is_some() {
                ids.push(id);
            }
        }
        let rest = walk.rest().filter(|_| !wanted.is_empty());
        assert!(rest.is_none() || rest > after, "a search for tasks does not go on");
        slice.cost.looks += walk.looks;
        for ids in ids.chunks(EXCHANGE_TASKS_MAX) {
            self.last(Job::Send { partition, ids: ids.to_vec(), by_buckets: true });
        }
        if rest.is_some() {
            self.first(Job::Answer(Step::Want {
                partition,
                salt,
                bucket,
                after: rest,
                hashes: pack(wanted.into_values()),
            }));
        }
    }

    fn push(
        &mut self,
        partition: PartitionId,
        mut buckets: Range<usize>,
        after: Option<TaskId>,
        store: &Store,
        slice: &mut Slice,
    ) {
        let Some(bucket) = buckets.next() else { return };
        let ids: Vec<TaskId> = store.bucket(bucket, after).map(|(id, _)| id).take(EXCHANGE_TASKS_MAX).collect();
        let last = ids.last().copied().filter(|_| ids.len() == EXCHANGE_TASKS_MAX);
        match last {
            Some(_) => self.first(Job::Push { partition, buckets: bucket..buckets.end, after: last }),
            None if !buckets.is_empty() => self.first(Job::Push { partition, buckets, after: None }),
            None => {}
        }
        self.parcel(Parcel { partition, ids, by_buckets: true }, store, slice);
    }

    /// Puts tasks into the slice until it is full.
    fn parcel(&mut self, mut parcel: Parcel, store: &Store, slice: &mut Slice) {
        let mut fitting = 0;
        while fitting < parcel.ids.len() && !slice.is_full() {
            let bytes = store.task(&parcel.ids[fitting]).map_or(0, Task::size_bytes);
            slice.cost.add(Cost::of_task(bytes + STEP_BYTES));
            fitting += 1;
        }
        let rest = parcel.ids.split_off(fitting);
        if !rest.is_empty() {
            self.first(Job::Send { partition: parcel.partition, ids: rest, by_buckets: parcel.by_buckets });
        }
        let (partition, by_buckets) = (parcel.partition, parcel.by_buckets);
        match slice.parcels.last_mut() {
            Some(last) if (last.partition, last.by_buckets) == (partition, by_buckets) => {
                last.ids.append(&mut parcel.ids)
            }
            _ if parcel.ids.is_empty() => {}
            _ => slice.parcels.push(parcel),
        }
    }
}

/// The tasks of some cells of a bucket in a range of ids, up to the bound on looks.
struct Walk<'a> {
    tasks: Box<dyn Iterator<Item = (TaskId, Digest)> + 'a>,
    cells: u64,
    upto: Option<TaskId>,
    /// The last one looked at.
    at: Option<TaskId>,
    looks: u64,
    ended: bool,
}

impl<'a> Walk<'a> {
    fn new(store: &'a Store, bucket: u16, cells: u64, after: Option<TaskId>, upto: Option<TaskId>) -> Walk<'a> {
        let tasks = Box::new(store.bucket(usize::from(bucket), after));
        Walk { tasks, cells, upto, at: after, looks: 0, ended: false }
    }

    /// The last id looked at, if there may be more behind it.
    fn rest(&mut self) -> Option<TaskId> {
        if !self.ended && self.tasks.next().is_none_or(|(id, _)| self.upto.is_some_and(|upto| id > upto)) {
            self.ended = true;
        }
        self.at.filter(|_| !self.ended)
    }
}

impl Iterator for Walk<'_> {
    type Item = (TaskId, Digest);

    fn next(&mut self) -> Option<Self::Item> {
        while self.looks < REPAIR_LOOKS_MAX && !self.ended {
            let Some((id, digest)) = self.tasks.next().filter(|(id, _)| self.upto.is_none_or(|upto| *id <= upto))
            else {
                self.ended = true;
                break;
            };
            self.looks += 1;
            self.at = Some(id);
            if self.cells & 1 << cell_of(&id) != 0 {
                return Some((id, digest));
            }
        }
        None
    }
}

fn children(tree: &Tree, level: Level, number: usize, salt: u64) -> Children {
    match level {
        Level::Groups => Children::of(tree.group_digests(), salt),
        Level::Buckets => Children::of(tree.bucket_digests(number), salt),
        Level::Cells => Children { filled: 0, hashes: Vec::new() },
    }
}

/// The step for the groups of a partition, for the buckets of a group, or for a bucket without tasks.
fn compare(tree: &Tree, partition: PartitionId, salt: u64, level: Level, number: usize) -> Step {
    let own = children(tree, level, number, salt);
    Step::Compare { partition, salt, level, number: number as u16, filled: own.filled, hashes: pack(own.hashes) }
}
