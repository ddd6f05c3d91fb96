//! The log's own thread: appends all waiting batches, makes them durable with one sync, reports the highest ticket. Between two syncs
//! it writes a part of a snapshot, if one is under way.

use crate::emergency::EmergencyStop;
use crate::metrics::{Counter, Metrics};
use crate::snapshot_pace::SnapshotPace;
use norn_engine::Ticket;
use norn_model::host::{DiskReport, Room};
use norn_model::record::Record;
use norn_model::snapshot::{Moved, Part};
use norn_model::task::Place;
use norn_storage::disk_latency::DiskLatencyMeter;
use norn_storage::scrub::{ScrubPace, Scrubbed};
use norn_storage::{LogError, Saved, SnapshotError, Upkeep};
use norn_wire::TaskId;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The log as its thread uses it; a double in tests.
pub trait Journal: Send + 'static {
    /// Appends records in order; returns the places of facts records.
    fn append(&mut self, records: &[Record]) -> Result<Vec<Option<Place>>, LogError>;
    /// Makes durable what the sync policy requires before any appended record is answered.
    fn commit(&mut self, now_us: u64) -> Result<(), LogError>;
    /// Time at which `commit` must be called again, even if nothing is appended.
    fn commit_due_us(&self) -> Option<u64>;
    /// Highest ordinal up to which all records are durable.
    fn synced(&self) -> u64;
    /// Syncs of a file so far.
    fn syncs(&self) -> u64;
    /// Makes all records durable.
    fn sync(&mut self) -> Result<(), LogError>;
    /// Does one small step of compaction.
    fn upkeep(&mut self) -> Result<Upkeep, LogError>;
    /// Reads a piece of the finished files, to find damage.
    fn scrub(&mut self) -> Result<Scrubbed, LogError>;
    /// Takes a part of the node's state.
    fn save(&mut self, part: Part) -> Result<Saved, LogError>;
    /// How much of its rests the writer of a snapshot should forgo, in percent.
    fn snapshot_haste_percent(&self) -> u64;
    /// Disk space state at the last write or upkeep.
    fn room(&self) -> Room;
    /// Whether the configured limit bounds that space, and not the disk.
    fn is_bounded(&self) -> bool;
    /// See [`DiskReport`].
    fn spare_bytes(&self) -> u64;
}

/// Reports of the log's thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// All batches up to this ticket are durable. Has the places of the facts records that became durable since the last report, and
    /// the ordinal up to which the log is durable.
    Persisted(Ticket, Vec<Option<Place>>, u64),
    /// A snapshot has these tasks now, and replaces older files.
    Moved(Vec<Moved>),
    /// Request for the next, or the first, part of the node's state.
    StateWanted {
        /// Whether it is the first part.
        anew: bool,
    },
    /// A snapshot will be given up, because the log has lost the bodies of these tasks.
    BodiesLost(Vec<TaskId>),
    /// State of the disk, when it has changed.
    Disk(DiskReport),
}

/// Interval of checks of a disk that is full or slow, while there is nothing to write.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Bounds on the batches that wait for the log; beyond them, clients must wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BacklogBounds {
    /// Batches.
    pub batches_max: usize,
    /// Bytes of payload in them.
    pub bytes_max: usize,
}

#[derive(Debug)]
struct Batch {
    ticket: Ticket,
    records: Vec<Record>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<Batch>,
    /// The thread waits to be woken.
    sleeping: bool,
    /// The part of the node's state that was requested.
    part: Option<Part>,
    /// Batches and bytes handed over and not yet durable, including those the thread is working on.
    pending_batches: usize,
    pending_bytes: usize,
    closed: bool,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("the log's thread does not panic with the queue in hand")
    }
}

/// Hands batches to the log's thread. Never blocks.
#[derive(Debug)]
pub struct LogThread {
    shared: Arc<Shared>,
    bounds: BacklogBounds,
    thread: Option<JoinHandle<()>>,
    emergency: EmergencyStop,
    /// Something was queued while the thread slept, and it was not yet woken for that.
    untold: bool,
}

impl LogThread {
    /// Starts the thread, which calls `report`. An error of the journal is an emergency: after a failed sync the content of the disk is
    /// unknown.
    pub fn start(
        journal: impl Journal,
        bounds: BacklogBounds,
        pace: ScrubPace,
        metrics: Arc<Metrics>,
        emergency: EmergencyStop,
        report: impl Fn(Report) + Send + 'static,
    ) -> std::io::Result<LogThread> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let their_emergency = emergency.clone();
        let work = move || {
            let mut journal = journal;
            let guard = their_emergency.on_panic("the thread of the log");
            if let Err(error) = work(&theirs, &mut journal, pace, &metrics, report) {
                // It is no panic that this stops for. The journal is still there: where the process ends, nothing more is written.
                std::mem::forget(guard);
                their_emergency
                    .stop(&format!("the log failed, so nothing of this process can be trusted to last: {error}"));
            }
        };
        let thread = std::thread::Builder::new().name("norn-log".to_owned()).spawn(work)?;
        Ok(LogThread { shared, bounds, thread: Some(thread), emergency, untold: false })
    }

    /// Queues a batch. A busy thread finds it by itself; a sleeping one does not before [`LogThread::wake`].
    pub fn persist(&mut self, ticket: Ticket, records: Vec<Record>) {
        let mut queue = self.shared.lock();
        assert!(!queue.closed, "nothing is persisted after the end");
        let bytes = records.iter().map(weight_bytes).sum();
        queue.pending_batches += 1;
        queue.pending_bytes += bytes;
        queue.waiting.push(Batch { ticket, records, bytes });
        self.untold |= queue.sleeping;
    }

    /// Hands over the requested part of the node's state. Batches queued before it are written first.
    pub fn save(&mut self, part: Part) {
        let mut queue = self.shared.lock();
        let before = queue.part.replace(part);
        self.untold |= queue.sleeping;
        drop(queue);
        assert!(before.is_none(), "one part is asked for at a time");
    }

    /// Wakes the thread for the queued work if it sleeps: once for many batches, so that they share one write and one sync.
    pub fn wake(&mut self) {
        if std::mem::take(&mut self.untold) {
            self.shared.changed.notify_one();
        }
    }

    /// Whether the backlog has reached its bounds, so that clients must wait.
    pub fn is_full(&self) -> bool {
        let queue = self.shared.lock();
        queue.pending_batches >= self.bounds.batches_max || queue.pending_bytes >= self.bounds.bytes_max
    }

    /// Writes the queued batches and ends the thread. Blocks.
    pub fn close(mut self) {
        self.end();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            self.emergency.stop("the thread of the log panicked");
        }
    }

    fn end(&self) {
        // A panic while the queue was locked left it whole, and a drop must not panic in its turn.
        self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.shared.changed.notify_one();
    }
}

/// A dropped driver drops this handle. The thread must not hold the directory as long as the process lives, so it writes the queued
/// batches and ends. The drop does not wait for it, since the thread's last report may wait for the dropping task.
impl Drop for LogThread {
    fn drop(&mut self) {
        self.end();
    }
}

/// Approximate bytes of payload that a record carries: only potentially large parts are counted.
fn weight_bytes(record: &Record) -> usize {
    let base = 128;
    match record {
        Record::Facts { items, .. } | Record::Hint { items, .. } => {
            items.iter().fold(base, |sum, (_, task)| sum + base + task.size_bytes())
        }
        Record::Forgot { ids, .. } | Record::IdHint { ids, .. } | Record::Handed { ids, .. } => {
            base + size_of_val(ids.as_slice())
        }
        Record::Ops { ops, .. } => ops.iter().fold(base, |sum, op| sum + base + op.size_bytes()),
        Record::Install { .. }
        | Record::Identity { .. }
        | Record::Boot { .. }
        | Record::Unanswered { .. }
        | Record::Genesis(_)
        | Record::Roster(_)
        | Record::HighWaterMark { .. }
        | Record::Vote { .. }
        | Record::DataLoss { .. }
        | Record::Left { .. }
        | Record::Retired { .. }
        | Record::Ran { .. }
        | Record::LeaseAges { .. }
        | Record::End { .. } => base,
    }
}

/// Next work of the log's thread.
#[derive(Debug, Default)]
struct Work {
    batches: Vec<Batch>,
    part: Option<Part>,
}

impl Shared {
    /// Waits for work, at most `wait_max`. `None` at the end.
    fn take(&self, wait_max: Option<Duration>) -> Option<Work> {
        // Only a thread that was seen asleep under the lock is woken: otherwise it comes by here before it sleeps.
        let idle = |queue: &mut Queue| {
            queue.sleeping = queue.waiting.is_empty() && queue.part.is_none() && !queue.closed;
            queue.sleeping
        };
        let sound = "the driver does not panic with the queue in hand";
        let mut queue = match wait_max {
            None => self.changed.wait_while(self.lock(), idle).expect(sound),
            Some(length) => self.changed.wait_timeout_while(self.lock(), length, idle).expect(sound).0,
        };
        queue.sleeping = false;
        let work = Work { batches: std::mem::take(&mut queue.waiting), part: queue.part.take() };
        (!work.batches.is_empty() || !queue.closed).then_some(work)
    }

    fn written(&self, batches: usize, bytes: usize) {
        let mut queue = self.lock();
        queue.pending_batches -= batches;
        queue.pending_bytes -= bytes;
    }
}

fn work(
    shared: &Shared,
    journal: &mut impl Journal,
    mut pace: ScrubPace,
    metrics: &Metrics,
    report: impl Fn(Report),
) -> Result<(), LogError> {
    let started = Instant::now();
    let now_us = || started.elapsed().as_micros() as u64;
    let mut again = false;
    let mut disk_latency = DiskLatencyMeter::default();
    let mut snapshot = SnapshotPace::default();
    loop {
        let look = disk_latency.is_watched().then_some(LOOK_INTERVAL);
        let due_us = journal.commit_due_us().into_iter().chain(pace.due_us()).chain(snapshot.due_us()).min();
        let due = due_us.map(|due_us| Duration::from_micros(due_us.saturating_sub(now_us())));
        let due = due.into_iter().chain(look).min();
        let Some(Work { batches, part }) = shared.take(if again { Some(Duration::ZERO) } else { due }) else { break };
        let (began_us, syncs) = (now_us(), journal.syncs());
        let done = write_batches(shared, journal, metrics, batches, began_us, &report)
            .inspect(|()| {
                if journal.syncs() > syncs {
                    let took_us = now_us() - began_us;
                    disk_latency.synced(now_us(), took_us);
                    metrics.log_syncs.add_us(took_us);
                }
            })
            .and_then(|()| match part {
                Some(part) => {
                    let save_began_us = now_us();
                    if save(journal, part, &report)? {
                        snapshot.wrote(save_began_us, now_us());
                    }
                    Ok(())
                }
                None => Ok(()),
            })
            .and_then(|()| scrub(journal, &mut pace, now_us(), metrics))
            .and_then(|()| keep_up(journal, &report));
        again = done?;
        if snapshot.continues(now_us(), journal.snapshot_haste_percent()) {
            report(Report::StateWanted { anew: false });
        }
        if let Some(told) = disk_latency.report(now_us(), journal.room()) {
            let (bounded, spare_bytes) = (journal.is_bounded(), journal.spare_bytes());
            report(Report::Disk(DiskReport { bounded, spare_bytes, ..told }));
        }
    }
    journal.sync()
}

fn write_batches(
    shared: &Shared,
    journal: &mut impl Journal,
    metrics: &Metrics,
    batches: Vec<Batch>,
    now_us: u64,
    report: &impl Fn(Report),
) -> Result<(), LogError> {
    let Some(highest) = batches.iter().map(|batch| batch.ticket).max() else { return journal.commit(now_us) };
    let (count, bytes) = (batches.len(), batches.iter().map(|batch| batch.bytes).sum());
    let mut batches = batches.into_iter().map(|batch| batch.records);
    let mut records = batches.next().unwrap_or_default();
    records.extend(batches.flatten());
    let places = journal.append(&records)?;
    journal.commit(now_us)?;
    metrics.add(Counter::LogBatches, count as u64);
    metrics.set(Counter::LogSyncs, journal.syncs());
    shared.written(count, bytes);
    report(Report::Persisted(highest, places, journal.synced()));
    Ok(())
}

/// Writes a part of a snapshot after the batches that were handed over before it. Returns whether it needs the next part.
fn save(journal: &mut impl Journal, part: Part, report: &impl Fn(Report)) -> Result<bool, LogError> {
    match journal.save(part)? {
        Saved::Part => return Ok(true),
        Saved::Lacks(ids) => {
            report(Report::BodiesLost(ids));
            return Ok(true);
        }
        Saved::Measured => {}
        Saved::Whole => tracing::info!("a snapshot stands for all of the log before it"),
        Saved::GivenUp(error) => {
            tracing::warn!(%error, "a snapshot was given up; the log goes on without");
            if let SnapshotError::BodiesLost { last, .. } = error {
                report(Report::BodiesLost(last));
            }
        }
    }
    Ok(false)
}

/// Reads a piece of the finished files, if it is due.
fn scrub(journal: &mut impl Journal, pace: &mut ScrubPace, now_us: u64, metrics: &Metrics) -> Result<(), LogError> {
    if pace.due_us().is_none_or(|due_us| now_us < due_us) {
        return Ok(());
    }
    let scrubbed = journal.scrub()?;
    pace.scrubbed(now_us, &scrubbed);
    metrics.add(Counter::ScrubBytes, scrubbed.bytes);
    metrics.add(Counter::ScrubPasses, u64::from(scrubbed.over));
    if let Some(error) = scrubbed.failed {
        tracing::error!(%error, "a file of the log cannot be read just now; the scrub tries again");
    }
    if let Some(rot) = scrubbed.rot {
        metrics.add(Counter::ScrubDamages, 1);
        tracing::error!(%rot, "a file of the log is damaged; a snapshot takes its place at once, and the disk should be seen to");
    }
    Ok(())
}

/// Does upkeep. Returns whether there is more to do at once.
fn keep_up(journal: &mut impl Journal, report: &impl Fn(Report)) -> Result<bool, LogError> {
    loop {
        match journal.upkeep()? {
            Upkeep::Rest => {}
            Upkeep::Begin => report(Report::StateWanted { anew: true }),
            Upkeep::Again => return Ok(true),
            Upkeep::Moved(ranges) => {
                report(Report::Moved(ranges));
                // With little space, the next write may need that of the old files, which can be removed only after all moves are
                // reported.
                if journal.room() == Room::Ample {
                    return Ok(true);
                }
                continue;
            }
            Upkeep::GivenUp(error) => tracing::warn!(%error, "no snapshot could be begun; the log goes on without"),
        }
        return Ok(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Time after which a thread that does nothing has stopped for good.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn never() -> EmergencyStop {
        EmergencyStop::new(|reason| unreachable!("{reason}"))
    }

    struct Slow {
        log: Arc<Mutex<Vec<String>>>,
        go: mpsc::Receiver<()>,
        /// Outcomes of the next saves, in reverse order; later ones succeed.
        saved: Vec<Saved>,
        /// Outcomes of the next upkeep calls, in reverse order; later ones are `Rest`.
        upkeep: Vec<Upkeep>,
        room: Room,
    }

    fn slow(go: mpsc::Receiver<()>) -> Slow {
        Slow { log: Arc::default(), go, saved: Vec::new(), upkeep: Vec::new(), room: Room::Ample }
    }

    impl Journal for Slow {
        fn append(&mut self, records: &[Record]) -> Result<Vec<Option<Place>>, LogError> {
            self.log.lock().unwrap().push(format!("append {}", records.len()));
            Ok(Vec::new())
        }

        fn commit(&mut self, _now_us: u64) -> Result<(), LogError> {
            self.log.lock().unwrap().push("sync".to_owned());
            self.go.recv().expect("the test goes on");
            Ok(())
        }

        fn commit_due_us(&self) -> Option<u64> {
            None
        }

        fn synced(&self) -> u64 {
            7
        }

        fn syncs(&self) -> u64 {
            0
        }

        fn sync(&mut self) -> Result<(), LogError> {
            self.log.lock().unwrap().push("last sync".to_owned());
            Ok(())
        }

        fn upkeep(&mut self) -> Result<Upkeep, LogError> {
            Ok(self.upkeep.pop().unwrap_or(Upkeep::Rest))
        }

        fn scrub(&mut self) -> Result<Scrubbed, LogError> {
            Ok(Scrubbed::default())
        }

        fn save(&mut self, part: Part) -> Result<Saved, LogError> {
            self.log.lock().unwrap().push(format!("save {} {}", part.records.len(), part.last));
            Ok(self.saved.pop().unwrap_or(if part.last { Saved::Whole } else { Saved::Part }))
        }

        fn snapshot_haste_percent(&self) -> u64 {
            100
        }

        fn room(&self) -> Room {
            self.room
        }

        fn is_bounded(&self) -> bool {
            false
        }

        fn spare_bytes(&self) -> u64 {
            0
        }
    }

    /// Goal: the node learns of all lost bodies, and continues to hand over its state until the last of them is known.
    #[test]
    fn lost_bodies_are_told_part_by_part() {
        let (reported, reports) = mpsc::channel();
        let id = |number| TaskId::new(number, 1, 1, 1);
        let error = SnapshotError::BodiesLost { count: 2, last: vec![id(2)] };
        let saved = vec![Saved::GivenUp(error), Saved::Part, Saved::Lacks(vec![id(1)])];
        let mut journal = Slow { saved, ..slow(mpsc::channel().1) };
        let wanted = [false, false, true].map(|last| {
            save(&mut journal, Part { last, ..Part::default() }, &|report| reported.send(report).unwrap()).unwrap()
        });
        assert_eq!(wanted, [true, true, false]);
        let lost = |number| Report::BodiesLost(vec![id(number)]);
        assert_eq!(reports.try_iter().collect::<Vec<_>>(), [lost(1), lost(2)]);
    }

    /// Goal: with little space, nothing is written before the files that a snapshot made obsolete can be removed.
    #[test]
    fn with_little_room_all_that_has_moved_is_told_at_once() {
        for (room, told) in [(Room::Ample, 1), (Room::Short, 3), (Room::Out, 3)] {
            let (reported, reports) = mpsc::channel();
            let moved = || Upkeep::Moved(Vec::new());
            let upkeep = vec![Upkeep::Again, moved(), moved(), moved()];
            let mut journal = Slow { upkeep, room, ..slow(mpsc::channel().1) };
            assert_eq!(keep_up(&mut journal, &|report| reported.send(report).unwrap()), Ok(true));
            assert_eq!(reports.try_iter().collect::<Vec<_>>(), vec![Report::Moved(Vec::new()); told], "{room:?}");
        }
    }

    // T2, T28, E20
    /// Goal: batches that arrive during a sync share the next one, and the queue reports when it is full.
    #[test]
    fn batches_that_wait_share_one_sync() {
        let log = Arc::new(Mutex::new(Vec::new()));
        let (go, gone) = mpsc::channel();
        let (reported, reports) = mpsc::channel();
        let bounds = BacklogBounds { batches_max: 3, bytes_max: usize::MAX };
        let journal = Slow { log: Arc::clone(&log), ..slow(gone) };
        let mut store =
            LogThread::start(journal, bounds, ScrubPace::new(0, 0), Arc::default(), never(), move |report| {
                reported.send(report).unwrap()
            })
            .unwrap();
        let batch = || vec![Record::Boot { count: 1 }];
        store.persist(Ticket(1), batch());
        store.wake();
        let is_in_commit = |lines| {
            while log.lock().unwrap().len() < lines {
                std::thread::yield_now();
            }
        };
        is_in_commit(2);
        store.persist(Ticket(2), batch());
        assert!(!store.untold, "the busy thread finds it by itself");
        assert!(!store.is_full());
        store.persist(Ticket(3), batch());
        assert!(store.is_full(), "the batch in the thread's hands counts");
        go.send(()).unwrap();
        assert_eq!(reports.recv(), Ok(Report::Persisted(Ticket(1), Vec::new(), 7)));
        is_in_commit(4);
        assert!(!store.is_full());
        // A part of the state is written after batches that were handed over with it: the thread, still busy, finds both at once.
        store.save(Part { records: batch(), ..Part::default() });
        store.persist(Ticket(4), batch());
        store.wake();
        assert!(store.is_full());
        go.send(()).unwrap();
        assert_eq!(reports.recv(), Ok(Report::Persisted(Ticket(3), Vec::new(), 7)));
        assert!(!store.is_full());
        go.send(()).unwrap();
        assert_eq!(reports.recv(), Ok(Report::Persisted(Ticket(4), Vec::new(), 7)));
        assert_eq!(reports.recv(), Ok(Report::StateWanted { anew: false }));
        store.close();
        assert_eq!(
            *log.lock().unwrap(),
            ["append 1", "sync", "append 2", "sync", "append 1", "sync", "save 1 false", "last sync"]
        );
    }

    // E22
    /// Goal: nothing pauses for a compaction. Method: between the request for the state and its parts, every batch is written and synced
    /// before the next part is handed over, however long that takes.
    #[test]
    fn batches_are_written_between_all_parts_of_a_snapshot() {
        let log = Arc::new(Mutex::new(Vec::new()));
        let (go, gone) = mpsc::channel();
        let (reported, reports) = mpsc::channel();
        let bounds = BacklogBounds { batches_max: 3, bytes_max: usize::MAX };
        let journal = Slow { log: Arc::clone(&log), upkeep: vec![Upkeep::Begin], ..slow(gone) };
        let report = move |report| reported.send(report).unwrap();
        let mut store =
            LogThread::start(journal, bounds, ScrubPace::new(0, 0), Arc::default(), never(), report).unwrap();
        let batch = || vec![Record::Boot { count: 1 }];
        let next = || reports.recv_timeout(PATIENCE).expect("the thread goes on");
        let mut tickets = (1..).map(Ticket);
        let mut write = |store: &mut LogThread| {
            let ticket = tickets.next().unwrap();
            store.persist(ticket, batch());
            store.wake();
            go.send(()).unwrap();
            assert_eq!(next(), Report::Persisted(ticket, Vec::new(), 7));
        };
        write(&mut store);
        assert_eq!(next(), Report::StateWanted { anew: true });
        for _ in 0..3 {
            write(&mut store);
            write(&mut store);
            store.save(Part { records: batch(), ..Part::default() });
            store.wake();
            // A thread that is woken for a part commits as well, as there may be unsynced records.
            go.send(()).unwrap();
            assert_eq!(next(), Report::StateWanted { anew: false });
        }
        write(&mut store);
        store.close();
        let log = log.lock().unwrap();
        let done: Vec<&str> = log.iter().map(String::as_str).filter(|line| !line.contains("sync")).collect();
        let round = ["append 1", "append 1", "save 1 false"];
        assert_eq!(done, [&["append 1"][..], &round, &round, &round, &["append 1"]].concat());
    }

    /// Goal: the thread of a store that is dropped without `close` writes the queued batches and ends, and the drop does not wait for
    /// it.
    #[test]
    fn a_handle_that_is_dropped_ends_its_thread() {
        let log = Arc::new(Mutex::new(Vec::new()));
        let (go, gone) = mpsc::channel();
        let (reported, reports) = mpsc::channel();
        let bounds = BacklogBounds { batches_max: 3, bytes_max: usize::MAX };
        let journal = Slow { log: Arc::clone(&log), ..slow(gone) };
        let report = move |report| reported.send(report).unwrap();
        let mut store =
            LogThread::start(journal, bounds, ScrubPace::new(0, 0), Arc::default(), never(), report).unwrap();
        store.persist(Ticket(1), vec![Record::Boot { count: 1 }]);
        drop(store);
        go.send(()).unwrap();
        // The reports end with the thread.
        let told: Vec<Report> = reports.iter().collect();
        assert_eq!(told, [Report::Persisted(Ticket(1), Vec::new(), 7)]);
        assert_eq!(*log.lock().unwrap(), ["append 1", "sync", "last sync"]);
    }
}
