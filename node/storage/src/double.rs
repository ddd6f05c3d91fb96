//! A disk for tests: bytes and names are pending until synced, and a crash keeps a chosen part of the pending ones.
//!
//! It models disks on which any of the pending writes arrive, whole or in part and independently of each other, possibly with the
//! file's length ahead of its contents; on which names appear only with the directory's sync; and a process that ends in the middle
//! of any write.

use super::disk::{Disk, DiskError};
use norn_model::record::Record;
use norn_wire::response::Genesis;
use norn_wire::{ClusterId, PartitionId};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

mod images;
pub mod sample;

pub use images::Files;

/// Most places at which a write can be interrupted.
const WRITE_STEPS_MAX: usize = 24;

/// What a crash keeps of the writes that were pending in each file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    Nothing,
    /// The first half of each.
    Half,
    Everything,
    /// The lengths, but zeroes for the contents.
    Zeroes,
    /// The first half of each, and zeroes for the rest.
    HalfThenZeroes,
    /// The second half of each, and zeroes for the rest.
    LaterHalf,
    /// Every other one: the first, the third and so on.
    Odd,
    /// The second, the fourth and so on.
    Even,
    /// The last one alone.
    Last,
}

impl Kept {
    pub const ALL: [Kept; 9] = [
        Kept::Nothing,
        Kept::Half,
        Kept::Everything,
        Kept::Zeroes,
        Kept::HalfThenZeroes,
        Kept::LaterHalf,
        Kept::Odd,
        Kept::Even,
        Kept::Last,
    ];

    /// The kept part of a write, given its place among the pending ones: the range of bytes, and whether the length is kept too.
    fn part(self, place: usize, count: usize, bytes: usize) -> (std::ops::Range<usize>, bool) {
        let whole = |kept: bool| if kept { (0..bytes, true) } else { (0..0, false) };
        match self {
            Kept::Nothing => whole(false),
            Kept::Everything => whole(true),
            Kept::Half => (0..bytes / 2, false),
            Kept::Zeroes => (0..0, true),
            Kept::HalfThenZeroes => (0..bytes / 2, true),
            Kept::LaterHalf => (bytes / 2..bytes, true),
            Kept::Odd => whole(place.is_multiple_of(2)),
            Kept::Even => whole(!place.is_multiple_of(2)),
            Kept::Last => whole(place + 1 == count),
        }
    }
}

#[derive(Debug, Clone)]
enum Change {
    Write(usize, Vec<u8>),
    Truncate(usize),
}

#[derive(Debug, Clone, Default)]
struct Content {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
}

/// Writes bytes at an offset, with zeroes before them where the file is shorter.
fn write_at(file: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    file.resize(file.len().max(end), 0);
    file[offset..end].copy_from_slice(bytes);
}

impl Content {
    fn change(&mut self, change: Change) {
        match &change {
            Change::Write(offset, bytes) => write_at(&mut self.bytes, *offset, bytes),
            Change::Truncate(length) => self.bytes.truncate(*length),
        }
        self.pending.push(change);
    }

    fn after_crash(&self, kept: Kept) -> Vec<u8> {
        let mut file = self.durable.clone();
        for (place, change) in self.pending.iter().enumerate() {
            match change {
                Change::Write(offset, bytes) => {
                    let (part, length_kept) = kept.part(place, self.pending.len(), bytes.len());
                    if length_kept {
                        file.resize(file.len().max(offset + bytes.len()), 0);
                    }
                    if !part.is_empty() {
                        write_at(&mut file, offset + part.start, &bytes[part]);
                    }
                }
                // A file has either its old length or the new one.
                Change::Truncate(length) if kept.part(place, self.pending.len(), 1).0.end == 1 => {
                    file.truncate(*length)
                }
                Change::Truncate(_) => {}
            }
        }
        file
    }
}

#[derive(Debug, Clone)]
enum Naming {
    Link(String, u64),
    Move(String, String),
    Unlink(String),
}

impl Naming {
    fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            Naming::Link(name, number) => {
                names.insert(name.clone(), *number);
            }
            Naming::Move(from, to) => {
                let number = names.remove(from).expect("what is renamed is there");
                names.insert(to.clone(), number);
            }
            Naming::Unlink(name) => {
                names.remove(name);
            }
        }
    }
}

#[derive(Debug, Clone, Default)]
struct State {
    contents: BTreeMap<u64, Content>,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    /// Changes of names since the last sync of the directory.
    pending_names: Vec<Naming>,
    /// Operations until everything fails.
    operations_left: Option<u64>,
    /// Steps until everything fails: a few for each write, one for any other change.
    budget: Option<u64>,
    /// Capacity of the disk in bytes, if bounded.
    capacity: Option<u64>,
    /// Bytes that others may take before an earlier figure of the free space is looked up again; `None` if none is kept.
    margin: Option<u64>,
    /// That figure, less what was written since.
    found: Cell<Option<u64>>,
    /// Looks at the free space.
    looks: Cell<u64>,
    /// There is no space for files whose names end with this.
    refused: Option<&'static str>,
    /// Files whose names end with this cannot be read; the flag is [`DiskError::lost`].
    unreadable: Option<(&'static str, bool)>,
    /// Bytes that were read.
    read_bytes: u64,
    /// Lengths of the pieces that were dropped from the cache before a read.
    forgotten: Vec<usize>,
    /// Operations made, for tests of their order.
    trace: Vec<String>,
}

/// The disk double. Clones share its state, so that it outlives the log that was given one.
#[derive(Debug, Clone, Default)]
pub struct Double(Rc<RefCell<State>>);

impl Double {
    pub fn with_file(file: &str, bytes: &[u8]) -> Double {
        let double = Double::default();
        double.put(file, bytes);
        double
    }

    /// Puts a durable file in place.
    pub fn put(&self, file: &str, bytes: &[u8]) {
        let mut state = self.0.borrow_mut();
        let number = state.contents.len() as u64;
        state.contents.insert(number, Content { bytes: bytes.into(), durable: bytes.into(), pending: Vec::new() });
        state.names.insert(file.into(), number);
        state.durable_names.insert(file.into(), number);
    }

    /// Every file as it is now.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.0.borrow();
        state.names.iter().map(|(name, number)| (name.clone(), state.contents[number].bytes.clone())).collect()
    }

    pub fn with_files(files: &BTreeMap<String, Vec<u8>>) -> Double {
        let double = Double::default();
        for (file, bytes) in files {
            double.put(file, bytes);
        }
        double
    }

    pub fn fail_after(&self, steps: u64) {
        self.0.borrow_mut().budget = Some(steps);
    }

    /// Bounds the capacity of the disk from now on.
    pub fn limit(&self, bytes: Option<u64>) {
        self.0.borrow_mut().capacity = bytes;
    }

    /// Keeps each figure of the free space that is larger than needed by this margin, until [`Double::a_second_later`].
    pub fn lag(&self, margin: u64) {
        self.0.borrow_mut().margin = Some(margin);
    }

    /// Lets a kept figure grow too old.
    pub fn a_second_later(&self) {
        self.0.borrow().found.set(None);
    }

    /// Looks at the free space since the last call; answers from a kept figure are none.
    pub fn take_looks(&self) -> u64 {
        self.0.borrow().looks.take()
    }

    /// Refuses writes to files whose names end with this, as if the disk were full.
    pub fn refuse(&self, suffix: &'static str) {
        self.0.borrow_mut().refused = Some(suffix);
    }

    /// Makes files whose names end with this unreadable from now on: either they are lost, or the failure is temporary.
    pub fn fail_reads(&self, failing: Option<(&'static str, bool)>) {
        self.0.borrow_mut().unreadable = failing;
    }

    /// Bytes read since the last call.
    pub fn take_read_bytes(&self) -> u64 {
        std::mem::take(&mut self.0.borrow_mut().read_bytes)
    }

    /// Lengths passed to [`Disk::forget`] since the last call.
    pub fn take_forgotten(&self) -> Vec<usize> {
        std::mem::take(&mut self.0.borrow_mut().forgotten)
    }

    /// Makes all changing operations fail after this many whole ones.
    pub fn fail_after_operations(&self, operations: u64) {
        self.0.borrow_mut().operations_left = Some(operations);
    }

    pub fn budget_left(&self) -> u64 {
        self.0.borrow().budget.expect("a budget was set")
    }

    pub fn take_trace(&self) -> Vec<String> {
        std::mem::take(&mut self.0.borrow_mut().trace)
    }

    /// The disk in the state that the next start finds.
    pub fn crash(&self, kept: Kept, names_kept: bool) -> Double {
        let state = self.0.borrow();
        let names = if names_kept { &state.names } else { &state.durable_names };
        let double = Double::default();
        for (file, number) in names {
            double.put(file, &state.contents[number].after_crash(kept));
        }
        double
    }

    /// States that a crash now may leave, each once.
    pub fn crashes(&self) -> Vec<Double> {
        let mut states = BTreeSet::new();
        for kept in Kept::ALL {
            states.extend([self.crash(kept, false).files(), self.crash(kept, true).files()]);
        }
        states.iter().map(Double::with_files).collect()
    }
}

fn failure(operation: &'static str, file: &str, cause: &str) -> DiskError {
    DiskError { operation, file: file.into(), cause: cause.into(), full: false, lost: true }
}

impl State {
    /// Spends up to `steps` steps of the budget. Returns how many it allows.
    fn spend(&mut self, steps: u64) -> u64 {
        let allowed = self.budget.map_or(steps, |budget| budget.min(steps));
        self.budget = self.budget.map(|budget| budget - allowed);
        allowed
    }

    fn change(&mut self, operation: &'static str, file: &str) -> Result<(), DiskError> {
        if self.operations_left == Some(0) || self.spend(1) == 0 {
            return Err(failure(operation, file, "crashed"));
        }
        self.operations_left = self.operations_left.map(|left| left - 1);
        self.trace.push(format!("{operation} {file}"));
        Ok(())
    }

    fn name(&mut self, naming: Naming) {
        naming.apply(&mut self.names);
        self.pending_names.push(naming);
    }

    fn number(&self, operation: &'static str, file: &str) -> Result<u64, DiskError> {
        self.names.get(file).copied().ok_or_else(|| failure(operation, file, "there is no such file"))
    }

    fn content(&mut self, operation: &'static str, file: &str) -> Result<&mut Content, DiskError> {
        let number = self.number(operation, file)?;
        Ok(self.contents.get_mut(&number).expect("a name leads to a file"))
    }
}

impl Disk for Double {
    fn list(&self) -> Result<Vec<String>, DiskError> {
        Ok(self.0.borrow().names.keys().cloned().collect())
    }

    fn length(&self, file: &str) -> Result<u64, DiskError> {
        Ok(self.0.borrow_mut().content("length", file)?.bytes.len() as u64)
    }

    fn read(&self, file: &str, offset: u64, length: usize) -> Result<Vec<u8>, DiskError> {
        let mut state = self.0.borrow_mut();
        if let Some((_, lost)) = state.unreadable.filter(|(suffix, _)| file.ends_with(suffix)) {
            return Err(DiskError { lost, ..failure("read", file, "it fails") });
        }
        let bytes = &state.content("read", file)?.bytes;
        let start = (offset as usize).min(bytes.len());
        let read = bytes[start..bytes.len().min(start + length)].to_vec();
        state.read_bytes += read.len() as u64;
        Ok(read)
    }

    fn forget(&self, _file: &str, _offset: u64, length: usize) {
        self.0.borrow_mut().forgotten.push(length);
    }

    fn write(&mut self, file: &str, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let mut state = self.0.borrow_mut();
        state.change("write", file)?;
        if state.refused.is_some_and(|suffix| file.ends_with(suffix)) {
            return Err(DiskError { full: true, ..failure("write", file, "no room") });
        }
        let room = state.capacity.map(|capacity| {
            let used: u64 = state.names.values().map(|number| state.contents[number].bytes.len() as u64).sum();
            let length = state.names.get(file).map_or(0, |number| state.contents[number].bytes.len() as u64);
            length + capacity.saturating_sub(used)
        });
        if room.is_some_and(|end| offset + bytes.len() as u64 > end) {
            return Err(DiskError { full: true, ..failure("write", file, "no room") });
        }
        let number = match state.names.get(file) {
            Some(number) => *number,
            None => {
                let number = state.contents.len() as u64;
                state.name(Naming::Link(file.into(), number));
                number
            }
        };
        state.found.set(state.found.get().map(|found| found.saturating_sub(bytes.len() as u64)));
        let steps = bytes.len().min(WRITE_STEPS_MAX);
        let made = state.spend(steps as u64) as usize;
        let written = if made == steps { bytes.len() } else { bytes.len() * made / steps };
        let change = Change::Write(offset as usize, bytes[..written].to_vec());
        state.contents.entry(number).or_default().change(change);
        if written == bytes.len() { Ok(()) } else { Err(failure("write", file, "crashed")) }
    }

    fn truncate(&mut self, file: &str, length: u64) -> Result<(), DiskError> {
        let mut state = self.0.borrow_mut();
        state.change("truncate", file)?;
        state.content("truncate", file)?.change(Change::Truncate(length as usize));
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError> {
        let mut state = self.0.borrow_mut();
        state.change("rename", from)?;
        state.number("rename", from)?;
        state.name(Naming::Move(from.into(), to.into()));
        Ok(())
    }

    fn remove(&mut self, file: &str) -> Result<(), DiskError> {
        let mut state = self.0.borrow_mut();
        state.change("remove", file)?;
        state.number("remove", file)?;
        state.name(Naming::Unlink(file.into()));
        Ok(())
    }

    fn retire(&mut self, file: &str) -> Result<(), DiskError> {
        self.0.borrow_mut().trace.push(format!("retire {file}"));
        self.remove(file)
    }

    fn sync(&mut self, file: &str) -> Result<(), DiskError> {
        let mut state = self.0.borrow_mut();
        state.change("sync", file)?;
        let content = state.content("sync", file)?;
        content.durable = content.bytes.clone();
        content.pending.clear();
        Ok(())
    }

    fn space(&self) -> Result<u64, DiskError> {
        let state = self.0.borrow();
        let used = state.names.values().map(|number| state.contents[number].bytes.len() as u64).sum();
        let free = state.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(used));
        state.looks.set(state.looks.get() + 1);
        state.found.set(Some(free));
        Ok(free)
    }

    fn recent_space(&self, enough_bytes: u64) -> Result<u64, DiskError> {
        let state = self.0.borrow();
        let (margin, found) = (state.margin, state.found.get());
        drop(state);
        match (margin, found) {
            (Some(margin), Some(found)) if found >= enough_bytes.saturating_add(margin) => Ok(found),
            _ => self.space(),
        }
    }

    fn sync_directory(&mut self) -> Result<(), DiskError> {
        let mut state = self.0.borrow_mut();
        state.change("sync_directory", "")?;
        state.durable_names = state.names.clone();
        state.pending_names.clear();
        Ok(())
    }
}

/// The cluster of [`genesis`].
pub const CLUSTER: ClusterId = ClusterId(0xc1);

/// The record that names [`CLUSTER`].
pub fn genesis() -> Record {
    Record::Genesis(Arc::new(Genesis {
        cluster: CLUSTER,
        name: "sample".into(),
        partitions: 1,
        replicas: 1,
        members: Vec::new(),
        assignment: Vec::new(),
    }))
}

/// A record of a little more than this many bytes. No segment repeats it.
pub fn sized(bytes: usize) -> Record {
    Record::Retired { reason: "n".repeat(bytes) }
}

/// A record that differs for each number.
pub fn record(number: u64) -> Record {
    match number % 5 {
        0 => Record::Boot { count: number },
        1 => Record::HighWaterMark { time_ms: u64::MAX - number, sessions: number },
        2 => Record::Facts { partition: PartitionId(number as u16), items: Arc::new(Vec::new()) },
        3 => Record::Unanswered { began: Some(number) },
        _ => sized(number as usize % 60),
    }
}
