//! Data of the system about processes and about itself.

use anyhow::{Context, Result};
use std::fs::read_to_string;

/// Ticks of `utime` and `stime` in a second; the same on every Linux that programs see.
const TICKS_PER_SECOND: f64 = 100.0;

/// User and system time of a process with all its threads, in seconds.
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let stat = read_to_string(&path).with_context(|| path.clone())?;
    // The name is in parentheses and may contain any characters.
    let (_, fields) = stat.rsplit_once(')').with_context(|| format!("{path} has no name"))?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut ticks = || -> Result<f64> { Ok(fields.next().with_context(|| format!("{path} is short"))?.parse()?) };
    Ok((ticks()? + ticks()?) / TICKS_PER_SECOND)
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
