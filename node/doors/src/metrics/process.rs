//! What the operating system tells of the process. Elsewhere than on Linux it is left out.

/// Ticks of `/proc` in a second: part of the kernel's interface to programs on all platforms that Norn runs on.
const TICKS_PER_S: f64 = 100.0;

/// What is known of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Process {
    /// Time of processors, in seconds.
    pub cpu_s: Option<f64>,
    /// Resident memory.
    pub resident_bytes: Option<u64>,
    /// Open file descriptors.
    pub open_fds: Option<u64>,
    /// When it started, in seconds since the Unix epoch.
    pub start_s: Option<f64>,
}

impl Process {
    /// Looks at the own process. Reads files that are not on a disk.
    pub fn look() -> Process {
        let text = |path: &str| std::fs::read_to_string(path).ok();
        let stat = text("/proc/self/stat");
        let [cpu_s, since_boot_s] = stat.as_deref().map_or([None, None], times);
        let boot_s = text("/proc/stat").as_deref().and_then(|stat| number_behind(stat, "btime "));
        Process {
            cpu_s,
            resident_bytes: text("/proc/self/status")
                .and_then(|status| number_behind(&status, "VmRSS:"))
                .map(|kib| kib * 1_024),
            // The list has a descriptor of its own.
            open_fds: std::fs::read_dir("/proc/self/fd").ok().map(|fds| (fds.count() as u64).saturating_sub(1)),
            start_s: boot_s.zip(since_boot_s).map(|(boot_s, since_s)| boot_s as f64 + since_s),
        }
    }
}

/// Time of processors, and the start since boot, in seconds.
fn times(stat: &str) -> [Option<f64>; 2] {
    // The name of the process may hold spaces and parentheses.
    let Some((_, fields)) = stat.rsplit_once(')') else { return [None, None] };
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let ticks = |place: usize| fields.get(place).and_then(|field| field.parse::<u64>().ok());
    let cpu = ticks(11).zip(ticks(12)).map(|(user, system)| (user + system) as f64 / TICKS_PER_S);
    [cpu, ticks(19).map(|ticks| ticks as f64 / TICKS_PER_S)]
}

fn number_behind(text: &str, label: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(label))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 1 2 3 4 150 50 0 0 20 0 9 0 12345 1 2 3";
        assert_eq!(times(stat), [Some(2.0), Some(123.45)]);
        assert_eq!(times("7 (a) S"), [None, None]);
        assert_eq!(number_behind("VmPeak: 9 kB\nVmRSS:\t  812 kB\n", "VmRSS:"), Some(812));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_own_process_is_known() {
        let Process { cpu_s, resident_bytes, open_fds, start_s } = Process::look();
        assert!(cpu_s.is_some() && resident_bytes > Some(1 << 16) && open_fds > Some(2));
        assert!(start_s > Some(1e9));
    }
}
