//! Memory in use and its limit: as set by the operator, by the process's control groups, and by the machine.
//!
//! A control group counts pages of files that the system has cached for its processes, and reclaims them before it ends any process:
//! such pages do not count as in use. Mapped pages, above all of the program itself, would have to be read again and again: they do
//! count. Of several limits the one with the least memory left decides; the operator's limit replaces the machine's.

use crate::driver::Internal;
use norn_model::host::MemoryReport;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::mpsc::Sender;

/// Intervals of measurements while much memory is left, and while little is: a burst of tasks may take it all within a second.
const INTERVALS: [Duration; 2] = [Duration::from_secs(1), Duration::from_millis(100)];
/// Up to this percentage of the limit, much memory is left.
const MUCH_PERCENT: u64 = 75;
/// Directory in which the system shows control groups.
const GROUPS: &str = "/sys/fs/cgroup";
/// Control groups of version 1 express "no limit" by a number of about this size or more.
const NO_LIMIT_BYTES: u64 = 1 << 60;

/// Reports the memory in use to the node until the node stops. `bytes_max` is the operator's limit for the process.
pub async fn watch(node: Sender<Internal>, bytes_max: Option<u64>) {
    let mut much = false;
    loop {
        tokio::time::sleep(INTERVALS[usize::from(much)]).await;
        // The system takes milliseconds to produce some of these files.
        let Ok(report) = tokio::task::spawn_blocking(move || measure(bytes_max)).await else { continue };
        let report = report.unwrap_or_default();
        much = is_much(report.used_bytes, report.limit_bytes);
        if node.send(Internal::Memory(report)).await.is_err() {
            return;
        }
    }
}

fn is_much(used_bytes: u64, limit_bytes: u64) -> bool {
    used_bytes > limit_bytes / 100 * MUCH_PERCENT
}

/// The memory in use now, if the system shows it.
fn measure(bytes_max: Option<u64>) -> Option<MemoryReport> {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let own = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let groups = groups(&own).into_iter().filter_map(|group| group.report(read));
    let rest = match bytes_max {
        Some(limit_bytes) => of_process(&read(Path::new("/proc/self/status"))?, limit_bytes),
        None => read(Path::new("/proc/meminfo")).as_deref().and_then(of_machine),
    };
    groups.chain(rest).max_by_key(used_parts)
}

fn used_parts(report: &MemoryReport) -> u64 {
    (u128::from(report.used_bytes) * 1_000_000 / u128::from(report.limit_bytes.max(1))) as u64
}

/// A control group that limits memory.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Group {
    directory: PathBuf,
    /// Version 1, whose files have other names.
    first: bool,
}

impl Group {
    /// Use of the lowest of its limits: at `memory.high` the system makes processes wait for memory.
    fn report(&self, read: impl Fn(&Path) -> Option<String>) -> Option<MemoryReport> {
        let (limits, used, files, mapped): (&[&str], _, _, _) = if self.first {
            let files = ["total_active_file", "total_inactive_file"];
            (&["memory.limit_in_bytes"], "memory.usage_in_bytes", files, "total_mapped_file")
        } else {
            (&["memory.max", "memory.high"], "memory.current", ["active_file", "inactive_file"], "file_mapped")
        };
        let file = |name: &str| read(&self.directory.join(name));
        let limit_bytes = limits.iter().filter_map(|name| limit_of(&file(name)?)).min()?;
        let used_bytes: u64 = file(used)?.trim().parse().ok()?;
        if !is_much(used_bytes, limit_bytes) {
            return Some(MemoryReport { used_bytes, limit_bytes });
        }
        let stat = file("memory.stat").unwrap_or_default();
        let files_bytes: u64 = files.into_iter().filter_map(|name| value_of(&stat, name)).sum();
        let reclaimable_bytes = files_bytes.saturating_sub(value_of(&stat, mapped).unwrap_or(0));
        Some(MemoryReport { used_bytes: used_bytes.saturating_sub(reclaimable_bytes), limit_bytes })
    }
}

/// The groups of a process and their ancestors, from `/proc/self/cgroup`.
fn groups(own: &str) -> Vec<Group> {
    let mut groups = Vec::new();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let first = controllers.split(',').any(|name| name == "memory");
        if !first && !controllers.is_empty() {
            continue;
        }
        let root = if first { Path::new(GROUPS).join("memory") } else { PathBuf::from(GROUPS) };
        let own = root.join(path.trim_start_matches('/'));
        let around = own.ancestors().take_while(|directory| directory.starts_with(&root));
        groups.extend(around.map(|directory| Group { directory: directory.to_owned(), first }));
    }
    groups
}

/// A limit as a group's file states it; `None` if there is no limit.
fn limit_of(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|limit_bytes| *limit_bytes < NO_LIMIT_BYTES)
}

/// A value from lines of names and numbers.
fn value_of(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix([' ', ':']))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Use of the whole machine, from `/proc/meminfo`. Other processes take memory there as well, and release it: what is available
/// counts twice.
fn of_machine(text: &str) -> Option<MemoryReport> {
    let bytes = |name| value_of(text, name)?.checked_mul(1 << 10);
    let (total, available) = (bytes("MemTotal")?, bytes("MemAvailable")?);
    Some(MemoryReport { used_bytes: total.saturating_sub(available.saturating_mul(2)), limit_bytes: total })
}

/// Use of this process alone, from `/proc/self/status`, with the given limit.
fn of_process(text: &str, limit_bytes: u64) -> Option<MemoryReport> {
    let used = value_of(text, "RssAnon")?.saturating_add(value_of(text, "RssShmem").unwrap_or(0));
    Some(MemoryReport { used_bytes: used.saturating_mul(1 << 10), limit_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_with_those_around_them() {
        let directories = |own: &str| -> Vec<String> {
            groups(own).into_iter().map(|group| group.directory.components().as_path().display().to_string()).collect()
        };
        assert_eq!(directories("0::/\n"), ["/sys/fs/cgroup"]);
        assert_eq!(directories("0::/a/b\n"), ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"]);
        let first = "5:cpu,cpuacct:/x\n4:memory:/docker/1\n1:name=systemd:/\n";
        assert_eq!(
            directories(first),
            ["/sys/fs/cgroup/memory/docker/1", "/sys/fs/cgroup/memory/docker", "/sys/fs/cgroup/memory"]
        );
        assert!(groups(first).iter().all(|group| group.first));
        assert_eq!(directories("nonsense\n::\n"), ["/sys/fs/cgroup"]);
    }

    #[test]
    fn pages_of_files_are_not_in_use_and_no_limit_is_none() {
        let second = |limit: &'static str| {
            move |path: &Path| match path.file_name()?.to_str()? {
                "memory.max" => Some(limit.to_owned()),
                "memory.current" => Some("900\n".to_owned()),
                "memory.stat" => {
                    Some("anon 500\ninactive_file 300\nactive_file 50\nactive_file_more 7\nfile_mapped 30\n".to_owned())
                }
                _ => None,
            }
        };
        let group = Group { directory: PathBuf::from("/g"), first: false };
        assert_eq!(group.report(second("1000\n")), Some(MemoryReport { used_bytes: 580, limit_bytes: 1_000 }));
        assert_eq!(group.report(second("max\n")), None);
        let high = |path: &Path| match path.file_name()?.to_str()? {
            "memory.high" => Some("700\n".to_owned()),
            _ => second("max\n")(path),
        };
        assert_eq!(group.report(high), Some(MemoryReport { used_bytes: 580, limit_bytes: 700 }));
        assert_eq!(group.report(|_| None), None);
        let first = |path: &Path| match path.file_name()?.to_str()? {
            "memory.limit_in_bytes" => Some("1000".to_owned()),
            "memory.usage_in_bytes" => Some("900".to_owned()),
            "memory.stat" => {
                Some("inactive_file 1\ntotal_inactive_file 100\ntotal_active_file 10\ntotal_mapped_file 20".to_owned())
            }
            _ => None,
        };
        let group = Group { first: true, ..group };
        assert_eq!(group.report(first), Some(MemoryReport { used_bytes: 810, limit_bytes: 1_000 }));
        assert_eq!(limit_of("9223372036854771712"), None);
    }

    #[test]
    fn a_machine_has_what_is_not_available_in_use() {
        let text = "MemTotal:        1000 kB\nMemFree:          100 kB\nMemAvailable:     400 kB\n";
        assert_eq!(of_machine(text), Some(MemoryReport { used_bytes: 200 << 10, limit_bytes: 1_000 << 10 }));
        assert_eq!(of_machine("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn a_process_has_no_pages_of_files_in_use() {
        let text = "Name:\tnorn\nVmRSS:\t 900 kB\nRssAnon:\t 500 kB\nRssFile:\t 390 kB\nRssShmem:\t 10 kB\n";
        assert_eq!(of_process(text, 7), Some(MemoryReport { used_bytes: 510 << 10, limit_bytes: 7 }));
        assert_eq!(of_process("Name:\tnorn\n", 7), None);
    }
}
