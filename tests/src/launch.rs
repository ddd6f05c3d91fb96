//! Programs that start `norn` in a modified environment: with other host names, or in a control group with little memory.
//!
//! Each is a script that execs `norn`, so that the process keeps the id of the process that the test started. Some machines do not
//! permit such environments. There the functions return no program, and the test reports that it was skipped.

use crate::binary;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Mount point of control groups.
const GROUPS: &str = "/sys/fs/cgroup";

/// A program that runs with these lines as `/etc/hosts`. Its own files are in `directory`.
pub fn with_hosts(directory: &Path, lines: &str) -> Option<PathBuf> {
    let (hosts, norn) = (directory.join("hosts"), binary::norn());
    fs::write(&hosts, lines).expect("the directory is the test's");
    let mounts = format!("mount --bind '{}' /etc/hosts && exec '{}' \"$@\"", hosts.display(), norn.display());
    let inside = script(directory, "inside.sh", &mounts);
    let enters = format!("exec unshare --map-root-user --mount '{}' \"$@\"", inside.display());
    runs(script(directory, "with-hosts.sh", &enters))
}

/// Makes the names of groups unique within a test program.
static NEXT_GROUP: AtomicU32 = AtomicU32::new(0);

/// A control group of a test. The processes in it must end before it is dropped.
#[derive(Debug)]
pub struct MemoryGroup {
    directory: PathBuf,
    /// Starts `norn` in the group.
    pub program: PathBuf,
}

impl MemoryGroup {
    /// A group whose processes together may use this much memory. The script is in `directory`.
    pub fn of(directory: &Path, bytes: usize) -> Option<MemoryGroup> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let (parent, limit) = own.lines().find_map(parent_and_limit)?;
        let number = NEXT_GROUP.fetch_add(1, Ordering::Relaxed);
        let group = parent.join(format!("norn-test-{}-{number}", std::process::id()));
        fs::create_dir(&group).ok()?;
        let enters =
            format!("echo $$ >'{}/cgroup.procs' && exec '{}' \"$@\"", group.display(), binary::norn().display());
        // From here on, dropping this value removes the group.
        let made = MemoryGroup { program: script(directory, "in-group.sh", &enters), directory: group };
        fs::write(made.directory.join(limit), bytes.to_string()).ok()?;
        runs(made.program.clone()).map(|_| made)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // The removal fails, and the group stays, if a process of a failed test is still in it.
        let _ = fs::remove_dir(&self.directory);
    }
}

/// The directory of this process's own group according to a line of `/proc/self/cgroup`, and the name of the file that limits a
/// group's memory: for version 1 or version 2 of control groups.
fn parent_and_limit(line: &str) -> Option<(PathBuf, &'static str)> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?.trim_start_matches('/'));
    match controllers {
        "" => Some((Path::new(GROUPS).join(path), "memory.max")).filter(|(parent, _)| parent.is_dir()),
        "memory" => Some((Path::new(GROUPS).join("memory").join(path), "memory.limit_in_bytes")),
        _ => None,
    }
}

fn script(directory: &Path, name: &str, commands: &str) -> PathBuf {
    let place = directory.join(name);
    fs::write(&place, format!("#!/bin/sh\n{commands}\n")).expect("the directory is the test's");
    fs::set_permissions(&place, Permissions::from_mode(0o755)).expect("the file is the test's");
    place
}

/// The program, if it can run here.
fn runs(program: PathBuf) -> Option<PathBuf> {
    let ran = Command::new(&program).arg("--version").output();
    ran.is_ok_and(|ran| ran.status.success()).then_some(program)
}
