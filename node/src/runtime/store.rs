//! The log's own thread: appends what waits, makes it durable with one sync, reports the highest ticket.

use crate::protocol::{Record, Ticket};
use crate::runtime::metrics::{Counter, Metrics};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// What the store's thread does with batches; the log, or a double in tests.
pub trait Journal: Send + 'static {
    /// Appends records in order.
    fn append(&mut self, records: &[Record]) -> Result<(), String>;
    /// Makes everything appended durable.
    fn sync(&mut self) -> Result<(), String>;
}

/// Bounds on what may wait for the log before clients must.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreBounds {
    /// Batches.
    pub batches_max: usize,
    /// Bytes of payload in them.
    pub bytes_max: usize,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<(Ticket, Vec<Record>)>,
    /// Batches and bytes handed over and not yet durable, those in the thread's hands included.
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
        self.queue.lock().expect("the store's thread does not panic with the queue in hand")
    }
}

/// Hands batches to the log's thread. Never blocks.
#[derive(Debug)]
pub struct Store {
    shared: Arc<Shared>,
    bounds: StoreBounds,
    thread: Option<JoinHandle<()>>,
    /// Batches were queued, and the thread was not woken for them.
    untold: bool,
}

impl Store {
    /// Starts the thread. `persisted` is called from it after every sync; an error of the journal ends the process,
    /// since after a failed sync nobody knows what the disk holds.
    pub fn start(
        journal: impl Journal,
        bounds: StoreBounds,
        metrics: Arc<Metrics>,
        persisted: impl Fn(Ticket) + Send + 'static,
    ) -> std::io::Result<Store> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let work = move || write_batches(&theirs, journal, &metrics, persisted);
        let thread = std::thread::Builder::new().name("norn-log".to_owned()).spawn(work)?;
        Ok(Store { shared, bounds, thread: Some(thread), untold: false })
    }

    /// Queues a batch. A thread that is busy finds it by itself; one that sleeps does not before [`Store::wake`].
    pub fn persist(&mut self, ticket: Ticket, records: Vec<Record>) {
        let mut queue = self.shared.lock();
        assert!(!queue.closed, "nothing is persisted after the end");
        queue.pending_batches += 1;
        queue.pending_bytes += records.iter().map(weight_bytes).sum::<usize>();
        queue.waiting.push((ticket, records));
        self.untold = true;
    }

    /// Tells the thread of what was queued: once for many batches, so that they share one write and one sync.
    pub fn wake(&mut self) {
        if std::mem::take(&mut self.untold) {
            self.shared.changed.notify_one();
        }
    }

    /// Whether so much waits that clients must.
    pub fn is_full(&self) -> bool {
        let queue = self.shared.lock();
        queue.pending_batches >= self.bounds.batches_max || queue.pending_bytes >= self.bounds.bytes_max
    }

    /// Writes out what waits and ends the thread. Blocks.
    pub fn close(mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            fatal("the thread of the log panicked");
        }
    }
}

/// Bytes of payload that a record carries, roughly: only what can be large is counted.
fn weight_bytes(record: &Record) -> usize {
    let base = 128;
    match record {
        Record::Facts { items, .. } => items.iter().fold(base, |sum, (_, task)| {
            let spec = task.spec.as_ref().map_or(0, |spec| spec.payload.len());
            let facts = task.facts.as_ref().map_or(0, |facts| {
                let results = facts.completions.iter().filter_map(|(_, completed)| completed.result.as_ref());
                facts.updates.iter().map(|(_, data)| data.len()).sum::<usize>()
                    + results.map(|result| result.len()).sum::<usize>()
            });
            sum + base + spec + facts
        }),
        Record::Ops { ops, .. } => ops.iter().fold(base, |sum, op| sum + base + op.size_bytes()),
        Record::Install { .. }
        | Record::Identity { .. }
        | Record::Boot { .. }
        | Record::Genesis(_)
        | Record::Mark { .. }
        | Record::Vote { .. }
        | Record::Wound { .. } => base,
    }
}

fn write_batches(shared: &Shared, mut journal: impl Journal, metrics: &Metrics, persisted: impl Fn(Ticket)) {
    loop {
        let mut queue = shared.lock();
        while queue.waiting.is_empty() && !queue.closed {
            queue = shared.changed.wait(queue).expect("the driver does not panic with the queue in hand");
        }
        let batches = std::mem::take(&mut queue.waiting);
        drop(queue);
        let Some(highest) = batches.iter().map(|(ticket, _)| *ticket).max() else {
            return;
        };
        let count = batches.len();
        let records: Vec<Record> = batches.into_iter().flat_map(|(_, records)| records).collect();
        if let Err(error) = journal.append(&records).and_then(|()| journal.sync()) {
            fatal(&format!("the log failed, so nothing of this process can be trusted to last: {error}"));
        }
        metrics.add(Counter::LogBatches, count as u64);
        metrics.add(Counter::LogSyncs, 1);
        let bytes = records.iter().map(weight_bytes).sum::<usize>();
        let mut queue = shared.lock();
        queue.pending_batches -= count;
        queue.pending_bytes -= bytes;
        drop(queue);
        persisted(highest);
    }
}

/// Ends the process at once: a stopped node beats a wrong claim. No destructor runs, so nothing more is written.
pub fn fatal(reason: &str) -> ! {
    tracing::error!(reason, "stopping at once");
    // The log may be filtered or redirected; whoever started the process must see why it is gone.
    eprintln!("error: stopping at once: {reason}");
    std::process::abort();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    struct Slow {
        log: Arc<Mutex<Vec<String>>>,
        go: mpsc::Receiver<()>,
    }

    impl Journal for Slow {
        fn append(&mut self, records: &[Record]) -> Result<(), String> {
            self.log.lock().unwrap().push(format!("append {}", records.len()));
            Ok(())
        }

        fn sync(&mut self) -> Result<(), String> {
            self.log.lock().unwrap().push("sync".to_owned());
            self.go.recv().map_err(|error| error.to_string())
        }
    }

    /// Goal: batches that arrive during a sync share the next one, and the queue says when it is full.
    #[test]
    fn batches_that_wait_share_one_sync() {
        let log = Arc::new(Mutex::new(Vec::new()));
        let (go, gone) = mpsc::channel();
        let (reported, reports) = mpsc::channel();
        let bounds = StoreBounds { batches_max: 3, bytes_max: usize::MAX };
        let journal = Slow { log: Arc::clone(&log), go: gone };
        let mut store =
            Store::start(journal, bounds, Arc::default(), move |ticket| reported.send(ticket).unwrap()).unwrap();
        let batch = || vec![Record::Boot { count: 1 }];
        store.persist(Ticket(1), batch());
        store.wake();
        while log.lock().unwrap().len() < 2 {
            std::thread::yield_now();
        }
        store.persist(Ticket(2), batch());
        store.wake();
        assert!(!store.is_full());
        store.persist(Ticket(3), batch());
        assert!(store.is_full(), "the batch in the thread's hands counts");
        go.send(()).unwrap();
        assert_eq!(reports.recv(), Ok(Ticket(1)));
        go.send(()).unwrap();
        assert_eq!(reports.recv(), Ok(Ticket(3)));
        assert!(!store.is_full());
        store.close();
        assert_eq!(*log.lock().unwrap(), ["append 1", "sync", "append 2", "sync"]);
    }
}
