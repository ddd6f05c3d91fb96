//! Latency of syncs, measured as the log syncs: into space that is allocated, one sync for each write.

use rustix::fs::{Mode, OFlags};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Syncs that are measured.
pub const SYNCS: usize = 20;
/// Bytes of each write, a page.
const WRITE_BYTES: usize = 4 << 10;

/// Measured syncs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latency {
    pub median: Duration,
    pub worst: Duration,
}

/// Measures syncs in a directory. The file has no name, so that nothing is left behind however this process ends.
pub fn measure(directory: &Path) -> io::Result<Latency> {
    let file = nameless(directory)?;
    file.write_all_at(&vec![0; WRITE_BYTES * SYNCS], 0)?;
    file.sync_all()?;
    let mut latencies = Vec::with_capacity(SYNCS);
    for place in 0..SYNCS {
        file.write_all_at(&[0x5a; WRITE_BYTES], (place * WRITE_BYTES) as u64)?;
        let start = Instant::now();
        file.sync_data()?;
        latencies.push(start.elapsed());
    }
    latencies.sort_unstable();
    Ok(Latency { median: latencies[SYNCS / 2], worst: latencies[SYNCS - 1] })
}

/// A file of the directory without a name. Where the file system has no such files, the name is removed at once.
fn nameless(directory: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(file.into()),
        Err(_) => named_and_removed(directory),
    }
}

fn named_and_removed(directory: &Path) -> io::Result<File> {
    let name: PathBuf = directory.join(format!(".norn-doctor-{}", std::process::id()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&name)?;
    fs::remove_file(&name)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let Latency { median, worst } = measure(directory.path()).unwrap();
        assert!(median <= worst && !worst.is_zero());
        named_and_removed(directory.path()).unwrap().sync_all().unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        assert!(measure(&directory.path().join("none")).is_err());
    }
}
