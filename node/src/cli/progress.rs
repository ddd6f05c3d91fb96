//! Progress of reading a long log and of waiting for nodes, for a person at a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use norn_host::replay::{Replaying, milliseconds};
use norn_storage::disk::{Disk, DiskError};
use std::io::IsTerminal;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Delay of the bar: a faster read needs none.
const QUIET: Duration = Duration::from_millis(500);
/// Interval of lines without a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Time after which a person is shown what a command waits for.
const WAITING_QUIET: Duration = Duration::from_secs(1);

/// Whether a person watches, so that stderr shows the progress of a command.
pub fn is_watched(json: bool) -> bool {
    !json && std::io::stderr().is_terminal()
}

/// Runs some work. If it takes long and a person watches, prints what it waits for, if that is known by then.
pub async fn waiting<T>(watched: bool, work: impl Future<Output = T>, what: impl Fn() -> Option<String>) -> T {
    let mut work = std::pin::pin!(work);
    if watched {
        tokio::select! {
            done = &mut work => return done,
            () = tokio::time::sleep(WAITING_QUIET) => {}
        }
        if let Some(what) = what() {
            eprintln!("{what}");
        }
    }
    work.await
}

/// Concurrent calls, of which only one prints what they wait for.
#[derive(Debug, Default)]
pub struct Waits(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    calls: usize,
    is_said: bool,
}

/// One of these calls, until this is dropped.
#[derive(Debug)]
pub struct Wait<'a>(&'a Waits);

impl Waits {
    /// Begins a call.
    pub fn begin(&self) -> Wait<'_> {
        self.waiting().calls += 1;
        Wait(self)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wait<'_> {
    /// Whether this is the first message since calls have been under way without a break. Marks it as sent.
    pub fn is_first_to_say(&self) -> bool {
        !std::mem::replace(&mut self.0.waiting().is_said, true)
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let mut waiting = self.0.waiting();
        waiting.calls -= 1;
        waiting.is_said &= waiting.calls > 0;
    }
}

/// Creates a bar that draws nothing yet.
fn hidden_bar(bytes: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::hidden());
    let style = ProgressStyle::with_template("{bar:40} {bytes} of {total_bytes}, {eta} left");
    bar.set_style(style.expect("the template is sound"));
    bar
}

/// Progress of a starting node in its log: a bar on stderr, or lines of the log without a terminal. Dropping it removes the bar.
#[derive(Debug)]
pub struct Replay {
    bar: Option<ProgressBar>,
    told: Instant,
}

impl Replay {
    /// Creates it hidden, until the replay is known to take a while.
    pub fn new() -> Replay {
        Replay { bar: std::io::stderr().is_terminal().then(|| hidden_bar(0)), told: Instant::now() }
    }

    /// Shows the progress, if it is time for that.
    pub fn show(&mut self, replaying: &Replaying) {
        let Replaying { records, read_bytes, bytes, elapsed } = *replaying;
        match &self.bar {
            Some(bar) => {
                if bar.is_hidden() && elapsed > QUIET {
                    bar.set_draw_target(ProgressDrawTarget::stderr());
                }
                bar.set_length(bytes);
                bar.set_position(read_bytes.min(bytes));
            }
            None if self.told.elapsed() > LINE_INTERVAL => {
                self.told = Instant::now();
                tracing::info!(records, read_bytes, bytes, elapsed_ms = milliseconds(elapsed), "replaying the log");
            }
            None => {}
        }
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Disk whose reads move a bar on stderr. Without a terminal there is no bar.
#[derive(Debug)]
pub struct Watched<D> {
    disk: D,
    bar: ProgressBar,
    started: Instant,
}

impl<D: Disk> Watched<D> {
    /// Wraps a disk whose files are all expected to be read `times` times.
    pub fn new(disk: D, times: u64) -> Result<Watched<D>, DiskError> {
        let mut bytes = 0;
        for file in disk.list()? {
            bytes += disk.length(&file)?;
        }
        // The bar draws nothing before the work is known to take a while.
        Ok(Watched { disk, bar: hidden_bar(bytes * times), started: Instant::now() })
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl<D: Disk> Disk for Watched<D> {
    fn list(&self) -> Result<Vec<String>, DiskError> {
        self.disk.list()
    }

    fn length(&self, file: &str) -> Result<u64, DiskError> {
        self.disk.length(file)
    }

    fn read(&self, file: &str, offset: u64, length: usize) -> Result<Vec<u8>, DiskError> {
        let bytes = self.disk.read(file, offset, length)?;
        if self.bar.is_hidden() && !self.bar.is_finished() && self.started.elapsed() > QUIET {
            // The bar hides itself again if stderr is no terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.inc(bytes.len() as u64);
        Ok(bytes)
    }

    fn write(&mut self, file: &str, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.disk.write(file, offset, bytes)
    }

    fn truncate(&mut self, file: &str, length: u64) -> Result<(), DiskError> {
        self.disk.truncate(file, length)
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError> {
        self.disk.rename(from, to)
    }

    fn remove(&mut self, file: &str) -> Result<(), DiskError> {
        self.disk.remove(file)
    }

    fn sync(&mut self, file: &str) -> Result<(), DiskError> {
        self.disk.sync(file)
    }

    fn sync_directory(&mut self) -> Result<(), DiskError> {
        self.disk.sync_directory()
    }

    fn forget(&self, file: &str, offset: u64, length: usize) {
        self.disk.forget(file, offset, length);
    }

    fn space(&self) -> Result<u64, DiskError> {
        self.disk.space()
    }

    fn recent_space(&self, enough_bytes: u64) -> Result<u64, DiskError> {
        self.disk.recent_space(enough_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use norn_host::disk::FileDisk;

    /// Goal: what is written through a bar knows how much room there is.
    #[test]
    fn a_watched_disk_has_the_room_of_the_disk_behind_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut disk = FileDisk::open(directory.path()).expect("it is free");
        disk.limit(Some(1_000));
        let mut watched = Watched::new(disk, 1).expect("it can be listed");
        watched.write("a", 0, &[7; 300]).expect("there is room");
        assert_eq!((watched.space(), watched.recent_space(10)), (Ok(700), Ok(700)));
    }

    #[test]
    fn of_calls_at_once_one_says_what_they_wait_for() {
        let waits = Waits::default();
        let (first, second) = (waits.begin(), waits.begin());
        assert!(second.is_first_to_say() && !first.is_first_to_say() && !second.is_first_to_say());
        drop(second);
        let third = waits.begin();
        assert!(!third.is_first_to_say(), "the first one still waits");
        drop((first, third));
        assert!(waits.begin().is_first_to_say(), "this is another command");
    }
}
