//! Ids that the commands of this user have recently shown, in files of the cache directory: the command line has no other memory of what
//! a person sees on the screen.
//!
//! Each line is an id. Concurrent commands only append, each with one write, so that none overwrites another's. A full file replaces the
//! file of older ids, so both are bounded. Lost or torn lines cost a person some typing: ids are only compared with typed characters, and
//! an unknown id is never guessed.

use super::recent::{ID_CHARACTERS, IDS_MAX};
use norn_wire::TaskId;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Size of a full file, in bytes.
const FILE_BYTES: u64 = (IDS_MAX * (ID_CHARACTERS + 1)) as u64;
/// Most bytes read of a file: a full one, and concurrent appends.
const READ_BYTES_MAX: u64 = 4 * FILE_BYTES;
const NEW_FILE: &str = "shown-ids";
const OLD_FILE: &str = "shown-ids.old";

/// Store of shown ids in a directory.
#[derive(Debug, Clone)]
pub struct ShownIds {
    directory: PathBuf,
}

impl ShownIds {
    /// Creates a store in this directory, which need not exist.
    pub fn new(directory: PathBuf) -> ShownIds {
        ShownIds { directory }
    }

    /// Returns all known ids. Unreadable ones are not known.
    pub fn load(&self) -> Vec<TaskId> {
        let mut ids = Vec::new();
        for file in [OLD_FILE, NEW_FILE] {
            let bytes = read(&self.directory.join(file)).unwrap_or_default();
            let lines = bytes.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
            ids.extend(lines.filter_map(|line| line.parse::<TaskId>().ok()));
        }
        ids
    }

    /// Adds ids; about the last 1,000 are kept.
    pub fn add(&self, ids: &[TaskId]) -> io::Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        create_directory(&self.directory)?;
        let path = self.directory.join(NEW_FILE);
        if fs::symlink_metadata(&path).is_ok_and(|file| !is_own(&file) || file.len() >= FILE_BYTES) {
            fs::rename(&path, self.directory.join(OLD_FILE))?;
        }
        let text: String = ids[ids.len().saturating_sub(IDS_MAX)..].iter().map(|id| format!("{id}\n")).collect();
        append(&path)?.write_all(text.as_bytes())
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if is_own(&fs::symlink_metadata(path)?) {
        File::open(path)?.take(READ_BYTES_MAX).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

fn append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn create_directory(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Whether no other user can write the file: another user could have a foreign id chosen for the typed characters.
fn is_own(file: &fs::Metadata) -> bool {
    #[cfg(unix)]
    let closed = std::os::unix::fs::PermissionsExt::mode(&file.permissions()) & 0o022 == 0;
    #[cfg(not(unix))]
    let closed = true;
    file.is_file() && closed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u32) -> TaskId {
        TaskId::new(1_700_000_000_000, number, 7, 3)
    }

    #[test]
    fn ids_outlive_a_command_and_stay_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let shown = ShownIds::new(directory.path().join("cache").join("norn"));
        assert_eq!(shown.load(), []);
        shown.add(&[id(1), id(2)]).unwrap();
        shown.add(&[id(3)]).unwrap();
        assert_eq!(ShownIds::new(shown.directory.clone()).load(), [id(1), id(2), id(3)]);
        let many: Vec<TaskId> = (0..IDS_MAX as u32 * 2).map(id).collect();
        for round in 0..10 {
            shown.add(&many).unwrap();
            let ids = shown.load();
            assert!(ids.len() <= 4 * IDS_MAX && ids.ends_with(&many[IDS_MAX..]), "{round}: {}", ids.len());
        }
    }

    #[test]
    fn what_is_torn_or_no_id_is_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let shown = ShownIds::new(directory.path().to_owned());
        shown.add(&[id(1)]).unwrap();
        let torn = [b"0000\n\xff\xfe\n", &id(2).to_string().as_bytes()[..9], b"\n"].concat();
        append(&directory.path().join(NEW_FILE)).unwrap().write_all(&torn).unwrap();
        shown.add(&[id(3)]).unwrap();
        assert_eq!(shown.load(), [id(1), id(3)]);
    }

    #[test]
    fn commands_that_run_at_once_lose_no_id() {
        let directory = tempfile::tempdir().unwrap();
        let shown = ShownIds::new(directory.path().to_owned());
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let shown = &shown;
                scope.spawn(move || (0..50).for_each(|number| shown.add(&[id(thread * 100 + number)]).unwrap()));
            }
        });
        let ids: std::collections::BTreeSet<TaskId> = shown.load().into_iter().collect();
        assert_eq!(ids.len(), 400);
    }

    #[cfg(unix)]
    #[test]
    fn only_the_user_reads_and_writes_the_files() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let shown = ShownIds::new(directory.path().join("norn"));
        shown.add(&[id(1)]).unwrap();
        let file = shown.directory.join(NEW_FILE);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&shown.directory), mode(&file)), (0o700, 0o600));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(shown.load(), [], "others may have written it");
        shown.add(&[id(2)]).unwrap();
        assert_eq!(shown.load(), [id(2)]);
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink(directory.path().join("elsewhere"), &file).unwrap();
        shown.add(&[id(3)]).unwrap();
        assert!(!directory.path().join("elsewhere").exists(), "a link is not followed");
        assert_eq!(shown.load(), [id(3)]);
    }
}
