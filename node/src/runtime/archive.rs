//! The archive: a file to which finished tasks are appended, one JSON object a line, before they are buried.
//!
//! The file is opened for each batch and synced after it, so that it may be renamed or taken away at any time. A batch that
//! cannot be written is not reported; the node keeps its tasks and asks again later. A task may stand there twice,
//! as a new leader does not know what the one before it has archived.

use norn_client::command::task_line;
use norn_client::wire::{PartitionId, TaskView};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread;

/// Finished tasks of one partition, and the core's number for them.
#[derive(Debug)]
pub struct Batch {
    /// Partition.
    pub partition: PartitionId,
    /// Number.
    pub number: u64,
    /// Tasks.
    pub tasks: Vec<TaskView>,
}

/// A file with a thread that writes it. The core asks for one batch of each partition at a time, so the queue is bounded.
#[derive(Debug)]
pub struct Archive {
    batches: Sender<Batch>,
}

impl Archive {
    /// Starts the thread; `done` is called with partition and number when a batch is on disk. An error means that the file
    /// cannot be written.
    pub fn start(file: PathBuf, done: impl Fn(PartitionId, u64) + Send + 'static) -> io::Result<Archive> {
        open(&file)?;
        let (batches, waiting) = channel::<Batch>();
        thread::Builder::new().name("archive".into()).spawn(move || {
            for batch in waiting {
                match append(&file, &batch.tasks) {
                    Ok(()) => done(batch.partition, batch.number),
                    Err(error) => tracing::warn!(
                        file = %file.display(),
                        %error,
                        "finished tasks cannot be archived, and are kept until they can"
                    ),
                }
            }
        })?;
        Ok(Archive { batches })
    }

    /// Appends a batch, some time.
    pub fn append(&self, batch: Batch) {
        // The thread ends with the process only.
        let _ = self.batches.send(batch);
    }
}

fn open(file: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(file)
}

fn append(file: &Path, tasks: &[TaskView]) -> io::Result<()> {
    let mut lines = Vec::new();
    for task in tasks {
        lines.extend_from_slice(task_line(task).as_bytes());
        lines.push(b'\n');
    }
    let mut open = open(file)?;
    open.write_all(&lines)?;
    open.sync_data()
}
