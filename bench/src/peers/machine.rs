//! Description of the machine that a measurement was made on.

use anyhow::{Context, Result};
use std::fs::read_to_string;
use std::path::Path;

/// Facts about the machine, by name.
pub fn describe(directory: &Path) -> Result<Vec<(&'static str, String)>> {
    let cores = std::thread::available_parallelism()?;
    let model = field(&read_to_string("/proc/cpuinfo")?, "model name").unwrap_or_else(|| "unknown".to_owned());
    let memory = field(&read_to_string("/proc/meminfo")?, "MemTotal").context("/proc/meminfo has no MemTotal")?;
    let kernel = read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned();
    let directory = std::fs::canonicalize(directory)?;
    let mount = mount_of(&read_to_string("/proc/self/mounts")?, &directory);
    Ok(vec![
        ("cores", cores.to_string()),
        ("cpu", model),
        ("memory", memory),
        ("kernel", kernel),
        ("directory", directory.display().to_string()),
        ("filesystem", mount.unwrap_or_else(|| "unknown".to_owned())),
    ])
}

/// The first value of a field in lines of the form `name : value`.
fn field(text: &str, name: &str) -> Option<String> {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned()).next()
}

/// Type, device and options of the file system that holds a path. Of several at the same place the last one counts.
fn mount_of(mounts: &str, path: &Path) -> Option<String> {
    let mut best: Option<(usize, String)> = None;
    for line in mounts.lines() {
        let mut fields = line.split_whitespace();
        let (Some(device), Some(point), Some(kind), Some(options)) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        if path.starts_with(point) && best.as_ref().is_none_or(|(length, _)| point.len() >= *length) {
            best = Some((point.len(), format!("{kind} on {device} ({options})")));
        }
    }
    best.map(|(_, mount)| mount)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_mount_counts() {
        let mounts =
            "/dev/a / ext4 rw 0 0\nnone /tmp tmpfs rw,size=1 0 0\n/dev/b /tmp ext4 rw 0 0\n/dev/c /tmpdir xfs rw 0 0\n";
        assert_eq!(mount_of(mounts, Path::new("/tmp/x")).as_deref(), Some("ext4 on /dev/b (rw)"));
        assert_eq!(mount_of(mounts, Path::new("/var")).as_deref(), Some("ext4 on /dev/a (rw)"));
        assert_eq!(mount_of("", Path::new("/var")), None);
    }

    #[test]
    fn the_first_core_gives_the_model() {
        assert_eq!(
            field("processor\t: 0\nmodel name\t: One: two\nmodel name: Three\n", "model name").as_deref(),
            Some("One: two")
        );
        assert_eq!(field("processor\t: 0\n", "model name"), None);
    }

    #[test]
    fn this_machine_can_be_described() {
        let described = describe(Path::new("/")).expect("a machine");
        assert!(described.iter().all(|(name, value)| !name.is_empty() && !value.is_empty()), "{described:?}");
    }
}
