//! Nodes of a killed `norn dev`: they end soon after it, and hold their directories and ports until then.

use super::failure::Failure;
use norn_host::disk::{Holder, holder_of};
use rustix::process::{Pid, test_kill_process};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest wait for all of them together.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval of polls.
const INTERVAL: Duration = Duration::from_millis(20);

/// Former nodes that may still run.
#[derive(Debug)]
pub struct Former {
    /// Directory of the cluster.
    directory: PathBuf,
    nodes: Vec<PathBuf>,
    processes: Vec<Pid>,
    patience: Duration,
    /// Start of the first wait.
    since: Option<Instant>,
}

impl Former {
    /// Finds the holders of the nodes' directories, in a cluster's directory that this process has locked.
    pub fn of(directory: &Path, nodes: impl Iterator<Item = PathBuf>) -> Result<Former, Failure> {
        let nodes: Vec<PathBuf> = nodes.collect();
        let holders = nodes.iter().map(|node| look(node)).collect::<Result<Vec<_>, Failure>>()?;
        let processes =
            holders.into_iter().flatten().filter_map(|holder| Pid::from_raw(holder.process?.try_into().ok()?));
        let processes = processes.filter(|process| test_kill_process(*process).is_ok()).collect();
        Ok(Former { directory: directory.into(), nodes, processes, patience: PATIENCE, since: None })
    }

    /// Waits until none of them holds its directory.
    pub fn leave_directories(&mut self) -> Result<(), Failure> {
        for node in self.nodes.clone() {
            while let Some(Holder { process, holds: true }) = look(&node)? {
                if !self.pause() {
                    let process =
                        process.map_or_else(|| "a process".to_owned(), |process| format!("process {process}"));
                    return Err(Failure::refused(format!(
                        "{process} still runs in {}; stop it, or choose --data",
                        node.display()
                    )));
                }
            }
        }
        Ok(())
    }

    /// Whether one of their processes still runs and there is time left. If so, it has paused.
    pub fn may_end(&mut self) -> bool {
        self.processes.retain(|process| test_kill_process(*process).is_ok());
        !self.processes.is_empty() && self.pause()
    }

    /// Pauses once; the first time it prints a message. Returns false when the time is over.
    fn pause(&mut self) -> bool {
        let since = *self.since.get_or_insert_with(|| {
            let (directory, patience) = (self.directory.display(), self.patience);
            // Stdout is for answers.
            eprintln!("waiting up to {patience:?} for the nodes of an earlier `norn dev` in {directory} to end");
            Instant::now()
        });
        if since.elapsed() >= self.patience {
            return false;
        }
        std::thread::sleep(INTERVAL);
        true
    }
}

fn look(node: &Path) -> Result<Option<Holder>, Failure> {
    holder_of(node).map_err(|error| Failure::refused(format!("{}: {error}", node.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use norn_host::disk::FileDisk;

    fn former(directory: &Path) -> Former {
        Former::of(directory, ["n1", "n2"].iter().map(|name| directory.join(name))).unwrap()
    }

    #[test]
    fn a_directory_that_is_let_go_of_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let held = FileDisk::open(&directory.path().join("n2")).unwrap();
        let mut former = former(directory.path());
        former.patience = Duration::from_secs(600);
        let letting_go = std::thread::spawn(move || drop(held));
        former.leave_directories().unwrap();
        assert!(!look(&directory.path().join("n2")).unwrap().unwrap().holds);
        letting_go.join().unwrap();
    }

    #[test]
    fn a_directory_that_is_never_let_go_of_is_refused_with_its_holder() {
        let directory = tempfile::tempdir().unwrap();
        let _held = FileDisk::open(&directory.path().join("n1")).unwrap();
        let mut former = former(directory.path());
        former.patience = Duration::ZERO;
        let refused = former.leave_directories().unwrap_err();
        assert!(format!("{refused:?}").contains(&format!("process {}", std::process::id())), "{refused:?}");
    }

    #[test]
    fn without_a_former_node_nothing_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let mut former = former(directory.path());
        former.leave_directories().unwrap();
        assert!(!former.may_end() && former.since.is_none());
    }
}
