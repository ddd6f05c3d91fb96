//! The archive: a file to which finished tasks are appended, one JSON object a line as `norn get --json` shows it, before they are buried.
//!
//! The file is opened for each batch and synced after it, so it may be renamed or removed at any time. If a batch cannot be written,
//! that is reported, and the node keeps the tasks and tries again later. A task may be in the file twice, because a new leader does
//! not know what its predecessor has archived. A line that was cut short by a full disk or the end of the process is no JSON, and is
//! on a line of its own.

use crate::emergency::EmergencyStop;
use norn_client::api;
use norn_wire::{PartitionId, TaskView};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread;

/// Finished tasks of one partition, with the core's number of the batch.
#[derive(Debug)]
pub struct Batch {
    /// Partition.
    pub partition: PartitionId,
    /// Number.
    pub number: u64,
    /// Tasks.
    pub tasks: Vec<TaskView>,
}

/// A file with a thread that writes it. The core waits for an answer to each batch of a partition, so the queue is bounded.
#[derive(Debug)]
pub struct Archive {
    batches: Sender<Batch>,
    emergency: EmergencyStop,
}

impl Archive {
    /// Starts the thread. It calls `tell` with partition and number of each batch, and whether the batch is on disk. Fails if the
    /// file cannot be written.
    pub fn start(
        file: PathBuf,
        emergency: EmergencyStop,
        tell: impl Fn(PartitionId, u64, bool) + Send + 'static,
    ) -> io::Result<Archive> {
        open(&file)?;
        let (batches, waiting) = channel::<Batch>();
        thread::Builder::new().name("archive".into()).spawn(move || {
            for batch in waiting {
                let written = append(&file, &batch.tasks);
                if let Err(error) = &written {
                    tracing::warn!(
                        file = %file.display(),
                        %error,
                        "finished tasks cannot be archived, and are kept until they can"
                    );
                }
                tell(batch.partition, batch.number, written.is_ok());
            }
        })?;
        Ok(Archive { batches, emergency })
    }

    /// Queues a batch to be appended.
    pub fn append(&self, batch: Batch) {
        if self.batches.send(batch).is_err() {
            self.emergency.stop("the thread of the archive panicked");
        }
    }
}

/// Opens the file at its end, after ending a cut-short last line.
fn open(file: &Path) -> io::Result<File> {
    let is_new = !file.exists();
    let mut open = OpenOptions::new().create(true).read(true).append(true).open(file)?;
    if is_new {
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent)?.sync_all()?;
    }
    if open.seek(SeekFrom::End(0))? > 0 {
        let mut last = [0];
        open.seek(SeekFrom::End(-1))?;
        open.read_exact(&mut last)?;
        if last != *b"\n" {
            // The process ended within a line, or the disk was full.
            open.write_all(b"\n")?;
        }
    }
    Ok(open)
}

fn append(file: &Path, tasks: &[TaskView]) -> io::Result<()> {
    let mut lines = Vec::new();
    for task in tasks {
        serde_json::to_writer(&mut lines, &api::Task::from(task))?;
        lines.push(b'\n');
    }
    let mut open = open(file)?;
    open.write_all(&lines)?;
    open.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn half_a_line_spoils_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("tasks.jsonl");
        fs::write(&file, "{\"whole\":1}\n{\"half").unwrap();
        append(&file, &[]).unwrap();
        open(&file).unwrap().write_all(b"{\"next\":1}\n").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "{\"whole\":1}\n{\"half\n{\"next\":1}\n");
    }
}
