//! The thread that reads bodies back from the log. It has file handles of its own, so that appends never wait for it.

use crate::protocol::task::Wanted;
use crate::runtime::disk::FileReader;
use crate::runtime::store::fatal;
use crate::storage::Recent;
use norn_client::wire::Spec;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// After a read that failed and says nothing of the disk.
const FAILED_PAUSE: Duration = Duration::from_secs(1);

/// What a load has come to.
#[derive(Debug)]
pub struct Loaded {
    /// Its number.
    pub number: u64,
    /// As in [`crate::protocol::Event::Loaded`].
    pub bodies: Vec<Option<Arc<Spec>>>,
}

/// Hands loads to the thread. Never blocks; the core bounds how many are under way. The thread ends when this is dropped.
#[derive(Debug)]
pub struct Loader {
    loads: mpsc::Sender<(u64, Vec<Wanted>)>,
}

impl Loader {
    /// Starts the thread, which calls `report` once for each load.
    pub fn start(reader: FileReader, report: impl Fn(Loaded) + Send + 'static) -> std::io::Result<Loader> {
        let (loads, waiting) = mpsc::channel::<(u64, Vec<Wanted>)>();
        let work = move || {
            let mut recent = Recent::default();
            for (number, wanted) in waiting {
                let bodies = loop {
                    match recent.read_bodies(|file, offset, length| reader.read(file, offset, length), &wanted) {
                        Ok(bodies) => break bodies,
                        // A body that is said to be lost costs a task its place in the queue: the process lacks something,
                        // and the disk may be as good as ever.
                        Err(error) => {
                            tracing::error!(%error, "bodies cannot be read back just now; trying again");
                            std::thread::sleep(FAILED_PAUSE);
                        }
                    }
                };
                report(Loaded { number, bodies });
            }
        };
        std::thread::Builder::new().name("norn-load".to_owned()).spawn(work)?;
        Ok(Loader { loads })
    }

    /// Begins to load.
    pub fn load(&self, number: u64, wanted: Vec<Wanted>) {
        if self.loads.send((number, wanted)).is_err() {
            fatal("the thread that reads bodies back panicked");
        }
    }
}
