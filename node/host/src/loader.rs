//! The thread that reads bodies back from the log. It has its own file handles, so appends never wait for it.
//!
//! A read may fail for reasons that say nothing about the disk, such as a shortage of handles or missing permission. A body that is
//! reported lost costs a task its place in the queue, so such a load is retried for a while, and other loads go first.

use crate::disk::FileReader;
use crate::emergency::EmergencyStop;
use norn_model::task::{Filling, Wanted};
use norn_storage::Recent;
use norn_storage::disk::DiskError;
use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_secs(1);
/// After this many attempts a body counts as unreadable: a peer may have it. It is not reported as lost.
const ATTEMPTS_MAX: u32 = 30;

/// Result of a load.
#[derive(Debug)]
pub struct Loaded {
    /// Number of the load.
    pub number: u64,
    /// As in [`norn_engine::event::Event::Loaded`].
    pub bodies: Vec<Option<Filling>>,
    /// As in [`norn_engine::event::Event::Loaded`].
    pub unread: bool,
}

/// Queues loads for the thread. Never blocks; the core bounds the number under way. The thread ends when this is dropped.
#[derive(Debug)]
pub struct Loader {
    loads: Sender<(u64, Vec<Wanted>)>,
    emergency: EmergencyStop,
}

impl Loader {
    /// Starts the thread, which calls `report` once for each load.
    pub fn start(
        reader: FileReader,
        emergency: EmergencyStop,
        report: impl Fn(Loaded) + Send + 'static,
    ) -> std::io::Result<Loader> {
        let (loads, waiting) = mpsc::channel();
        let read = move |file: &str, offset, length| reader.read(file, offset, length);
        let work = move || Worker { read, waiting, pause: PAUSE, failed: VecDeque::new() }.run(report);
        std::thread::Builder::new().name("norn-load".to_owned()).spawn(work)?;
        Ok(Loader { loads, emergency })
    }

    /// Queues a load.
    pub fn load(&self, number: u64, wanted: Vec<Wanted>) {
        if self.loads.send((number, wanted)).is_err() {
            self.emergency.stop("the thread that reads bodies back panicked");
        }
    }
}

/// A load, with its number of attempts.
struct Load {
    number: u64,
    wanted: Vec<Wanted>,
    attempts: u32,
    /// Earliest time of the next attempt.
    again: Instant,
}

struct Worker<R> {
    read: R,
    waiting: Receiver<(u64, Vec<Wanted>)>,
    pause: Duration,
    /// Failed loads, in the order of their next attempts.
    failed: VecDeque<Load>,
}

impl<R: Fn(&str, u64, usize) -> Result<Vec<u8>, DiskError>> Worker<R> {
    fn run(mut self, report: impl Fn(Loaded)) {
        let mut recent = Recent::default();
        while let Some(mut load) = self.next() {
            match recent.read_bodies(&self.read, &load.wanted) {
                Ok(bodies) => report(Loaded { number: load.number, bodies, unread: false }),
                Err(error) if load.attempts < ATTEMPTS_MAX => {
                    tracing::error!(%error, "bodies cannot be read back just now; trying again");
                    load.attempts += 1;
                    load.again = Instant::now() + self.pause;
                    self.failed.push_back(load);
                }
                Err(error) => {
                    tracing::error!(%error, "bodies cannot be read back; their tasks are not handed out");
                    let one = |wanted: &Wanted| recent.read_bodies(&self.read, std::slice::from_ref(wanted));
                    let each: Vec<_> = load.wanted.iter().map(one).collect();
                    let unread = each.iter().any(Result::is_err);
                    let bodies = each.into_iter().map(|one| one.ok().and_then(|mut one| one.remove(0))).collect();
                    report(Loaded { number: load.number, bodies, unread });
                }
            }
        }
    }

    /// The next load: a new one, else a failed one when its time has come. `None` once there will be no more.
    fn next(&mut self) -> Option<Load> {
        let fresh = |(number, wanted)| Load { number, wanted, attempts: 1, again: Instant::now() };
        let Some(failed) = self.failed.front() else { return self.waiting.recv().ok().map(fresh) };
        let wait = failed.again.saturating_duration_since(Instant::now());
        match self.waiting.recv_timeout(wait) {
            Ok(load) => Some(fresh(load)),
            Err(RecvTimeoutError::Timeout) => self.failed.pop_front(),
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use norn_model::task::{Place, Slot};
    use norn_wire::TaskId;
    use std::cell::Cell;
    use std::num::NonZeroU32;

    fn wanted(offset: u64) -> Vec<Wanted> {
        let place = Place { file: NonZeroU32::new(2).expect("not 0"), offset };
        vec![Wanted { id: TaskId::new(1, 1, 1, 1), slot: Slot::Spec, place, bytes: 1, hash: 0 }]
    }

    #[test]
    fn a_load_that_fails_goes_behind_the_others_and_is_given_up_in_the_end() {
        let denied = |file: &str| DiskError {
            operation: "read",
            file: file.into(),
            cause: "denied".into(),
            full: false,
            lost: false,
        };
        let gone = |file: &str| DiskError { lost: true, ..denied(file) };
        let attempts = Cell::new(0);
        let read = |file: &str, offset, _| {
            if offset == 1 {
                attempts.set(attempts.get() + 1);
                Err(denied(file))
            } else {
                Err(gone(file))
            }
        };
        let (loads, waiting) = mpsc::channel();
        loads.send((1, wanted(1))).expect("it listens");
        loads.send((2, wanted(2))).expect("it listens");
        let loads = Cell::new(Some(loads));
        let reported = Cell::new(Vec::new());
        let report = |loaded: Loaded| {
            assert_eq!((loaded.bodies.as_slice(), loaded.unread), ([None].as_slice(), loaded.number == 1));
            let mut numbers = reported.take();
            numbers.push(loaded.number);
            if numbers.len() == 2 {
                // There are no more loads.
                loads.take();
            }
            reported.set(numbers);
        };
        Worker { read, waiting, pause: Duration::from_micros(1), failed: VecDeque::new() }.run(report);
        assert_eq!(reported.take(), [2, 1]);
        assert_eq!(attempts.get(), ATTEMPTS_MAX + 1, "and once more, alone");
    }
}
