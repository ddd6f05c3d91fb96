//! Checks of what the system grants: buffers of sockets, open files, a synchronised clock.

use norn_client::api::Finding;
use norn_node::runtime::transport::{Granted, SOCKET_BUFFER_BYTES, try_bind};
use rustix::process::{Resource, getrlimit};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// Open files below which a node has too few for its log and its sockets.
const OPEN_FILES_MIN: u64 = 64;
/// Open files with which a node lacks none.
const OPEN_FILES_AMPLE: u64 = 1_024;
/// Time for a program that reports about the clock.
const CLOCK_TIMEOUT: Duration = Duration::from_secs(3);

/// Checks the buffers that a node's socket has, or if none was bound, those of another socket here.
pub fn udp_buffers(granted: Option<Granted>) -> Finding<'static> {
    const CHECK: &str = "udp_buffers";
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    match granted.map_or_else(|| try_bind(any), Ok) {
        Ok(granted) => judge_buffers(granted),
        Err(error) => Finding::not_checked(
            CHECK,
            &format!("no socket can be opened: {error}"),
            "see whether this user may open sockets",
        ),
    }
}

fn judge_buffers(granted: Granted) -> Finding<'static> {
    const CHECK: &str = "udp_buffers";
    let Granted { receive_bytes, send_bytes } = granted;
    let seen = format!("{receive_bytes} bytes to receive and {send_bytes} to send, of {SOCKET_BUFFER_BYTES} asked for");
    if receive_bytes.min(send_bytes) >= SOCKET_BUFFER_BYTES {
        return Finding::ok(CHECK, seen);
    }
    let advice = format!(
        "`sysctl -w net.core.rmem_max={SOCKET_BUFFER_BYTES} net.core.wmem_max={SOCKET_BUFFER_BYTES}`, and both in a file of \
         /etc/sysctl.d, then restart the node; until then datagrams are lost under load, and sent again"
    );
    Finding::warn(CHECK, seen, advice)
}

/// Checks the limit of open files: that of the running node, else of this process.
pub fn open_files(node: Option<u32>) -> Finding<'static> {
    let of_node = node.and_then(|process| {
        let limits = std::fs::read_to_string(format!("/proc/{process}/limits")).ok()?;
        Some((open_files_in(&limits)?, format!("of process {process}, the node")))
    });
    let (limit, whose) = of_node.unwrap_or_else(|| {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        (limit, "of this shell; a service has its own, which is seen while it runs".to_owned())
    });
    judge_open_files(limit, &whose)
}

/// The soft limit in a process's table of limits.
fn open_files_in(limits: &str) -> Option<u64> {
    let values = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let soft = values.split_whitespace().next()?;
    if soft == "unlimited" { Some(u64::MAX) } else { soft.parse().ok() }
}

fn judge_open_files(limit: u64, whose: &str) -> Finding<'static> {
    const CHECK: &str = "open_files";
    let shown = if limit == u64::MAX { "no limit".to_owned() } else { format!("a limit of {limit}") };
    let seen = format!("{shown} ({whose})");
    let advice =
        format!("`LimitNOFILE={OPEN_FILES_AMPLE}` in the unit of the service, or `ulimit -n {OPEN_FILES_AMPLE}`");
    match limit {
        0..OPEN_FILES_MIN => Finding::fail(CHECK, seen, advice),
        OPEN_FILES_MIN..OPEN_FILES_AMPLE => Finding::warn(CHECK, seen, advice),
        _ => Finding::ok(CHECK, seen),
    }
}

/// Checks whether the kernel's clock is synchronised. The system call that tells has no safe form here, so that programs are asked that
/// make it.
pub async fn clock() -> Finding<'static> {
    let timedatectl = said("timedatectl", &["show", "--property=NTPSynchronized"]).await;
    let chrony = match timedatectl {
        Some(_) => None,
        None => said("chronyc", &["-n", "tracking"]).await,
    };
    judge_clock(timedatectl.as_deref(), chrony.as_deref())
}

fn judge_clock(timedatectl: Option<&str>, chrony: Option<&str>) -> Finding<'static> {
    const CHECK: &str = "clock";
    const ADVICE: &str =
        "run chrony, ntpd or systemd-timesyncd here; `clocks` of the cluster's half compares the clocks themselves";
    let leap = |text: &str| {
        let status = text.lines().find_map(|line| line.strip_prefix("Leap status"))?;
        Some(status.trim_start_matches([' ', ':']).trim() != "Not synchronised")
    };
    let told = match (timedatectl.map(str::trim), chrony.and_then(leap)) {
        (Some("NTPSynchronized=yes"), _) => Some(("timedatectl", true)),
        (Some("NTPSynchronized=no"), _) => Some(("timedatectl", false)),
        (_, Some(is_synchronised)) => Some(("chronyc", is_synchronised)),
        _ => None,
    };
    match told {
        Some((program, true)) => Finding::ok(CHECK, format!("synchronised, by `{program}`")),
        Some((program, false)) => Finding::warn(CHECK, format!("not synchronised, by `{program}`"), ADVICE),
        None => Finding::not_checked(CHECK, "not known: neither `timedatectl` nor `chronyc` says it here", ADVICE),
    }
}

/// What a program prints, if it is here and succeeds in time.
async fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).env("LC_ALL", "C").stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(CLOCK_TIMEOUT, command.output()).await.ok()?.ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use norn_client::api::CheckOutcome;

    #[test]
    fn a_clock_is_synchronised_only_if_a_program_says_so() {
        let outcome = |timedatectl: Option<&str>, chrony: Option<&str>| {
            let finding = judge_clock(timedatectl, chrony);
            (finding.outcome, finding.seen.starts_with("not checked: not known"))
        };
        let leap = |status| format!("Reference ID    : 0A000001\nLeap status     : {status}\n");
        assert_eq!(outcome(Some("NTPSynchronized=yes\n"), None), (CheckOutcome::Ok, false));
        assert_eq!(outcome(Some("NTPSynchronized=no\n"), None), (CheckOutcome::Warn, false));
        assert_eq!(outcome(None, Some(&leap("Normal"))), (CheckOutcome::Ok, false));
        assert_eq!(outcome(None, Some(&leap("Not synchronised"))), (CheckOutcome::Warn, false));
        for (timedatectl, chrony) in [(None, None), (Some(""), Some("506 Cannot talk to daemon\n"))] {
            assert_eq!(outcome(timedatectl, chrony), (CheckOutcome::Warn, true));
        }
    }

    #[test]
    fn a_small_grant_is_warned_about_with_what_to_set() {
        let granted = |receive_bytes| Granted { receive_bytes, send_bytes: SOCKET_BUFFER_BYTES };
        assert_eq!(judge_buffers(granted(SOCKET_BUFFER_BYTES)).outcome, CheckOutcome::Ok);
        let small = judge_buffers(granted(212_992));
        let advice = small.advice.unwrap_or_default();
        assert!(small.outcome == CheckOutcome::Warn && advice.contains("net.core.rmem_max=4194304"), "{advice}");
        assert_ne!(udp_buffers(None).outcome, CheckOutcome::Fail);
    }

    #[test]
    fn the_limit_of_open_files_is_that_of_the_node_if_it_runs() {
        let table = "Limit  Soft Limit  Hard Limit  Units\nMax open files            512                  524288               files\n";
        assert_eq!(open_files_in(table), Some(512));
        assert_eq!(open_files_in("Max open files  unlimited  unlimited  files"), Some(u64::MAX));
        let outcomes = [63, 64, 1_023, 1_024].map(|limit| judge_open_files(limit, "").outcome);
        use CheckOutcome::{Fail, Ok, Warn};
        assert_eq!(outcomes, [Fail, Warn, Warn, Ok]);
        let own = open_files(Some(std::process::id()));
        assert!(own.seen.contains(", the node)"), "{own:?}");
        assert!(open_files(None).seen.contains("of this shell"));
    }
}
