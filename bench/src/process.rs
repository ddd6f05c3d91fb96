//! Data of the system about processes and about itself.

use anyhow::{Context, Result};
use std::fs::read_to_string;

/// Ticks of `utime` and `stime` in a second; the same on every Linux that programs see.
const TICKS_PER_SECOND: f64 = 100.0;
/// Generations of processes that are looked through.
#[cfg(feature = "peers")]
const ANCESTORS_MAX: usize = 32;

/// User and system time of a process with all its threads, in seconds.
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = Stat::of(pid)?;
    Ok(stat.own_ticks / TICKS_PER_SECOND)
}

/// User and system time of these processes and all their descendants, ended ones included, in seconds.
#[cfg(feature = "peers")]
pub fn family_cpu_seconds(roots: &[u32]) -> Result<f64> {
    let mut all = std::collections::BTreeMap::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process may end between the two looks.
        if let Ok(stat) = Stat::of(pid) {
            all.insert(pid, stat);
        }
    }
    let is_of_family = |pid: u32| {
        let ancestors = std::iter::successors(Some(pid), |pid| all.get(pid).map(|stat: &Stat| stat.parent));
        ancestors.take(ANCESTORS_MAX).any(|ancestor| roots.contains(&ancestor))
    };
    let family = all.iter().filter(|(pid, _)| is_of_family(**pid));
    Ok(family.map(|(_, stat)| stat.own_ticks + stat.ended_ticks).sum::<f64>() / TICKS_PER_SECOND)
}

/// What `/proc/PID/stat` says.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Stat {
    parent: u32,
    /// Ticks of its own threads.
    own_ticks: f64,
    /// Ticks of children that have ended.
    ended_ticks: f64,
}

impl Stat {
    fn of(pid: u32) -> Result<Stat> {
        let path = format!("/proc/{pid}/stat");
        let stat = read_to_string(&path).with_context(|| path.clone())?;
        Stat::parse(&stat).with_context(|| format!("{path} is not as expected"))
    }

    fn parse(stat: &str) -> Option<Stat> {
        // The name is in parentheses and may contain any characters.
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks = |place: usize| fields.get(place)?.parse::<f64>().ok();
        let parent = fields.get(1)?.parse().ok()?;
        Some(Stat { parent, own_ticks: ticks(11)? + ticks(12)?, ended_ticks: ticks(13)? + ticks(14)? })
    }
}

/// Time that this thread ran on a core, in seconds.
pub fn thread_cpu_seconds() -> Result<f64> {
    let text = read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds: u64 = text.split_whitespace().next().context("schedstat is empty")?.parse()?;
    Ok(nanoseconds as f64 / 1e9)
}

/// Resident memory of a process, in bytes.
pub fn resident_bytes(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let status = read_to_string(&path).with_context(|| path.clone())?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).with_context(|| format!("{path}: VmRSS"))?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes << 10)
}

/// Average number of runnable processes over the last minute.
pub fn load_average() -> Result<f64> {
    let text = read_to_string("/proc/loadavg")?;
    Ok(text.split_whitespace().next().context("/proc/loadavg is empty")?.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_parentheses_in_its_name_is_read() {
        let stat = "42 (a) b (c) S 7 42 42 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 100 1 1";
        assert_eq!(Stat::parse(stat), Some(Stat { parent: 7, own_ticks: 30.0, ended_ticks: 70.0 }));
        assert_eq!(Stat::parse("42 (short) S 7"), None);
    }
}
