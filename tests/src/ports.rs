//! The only allocator of UDP ports for nodes.
//!
//! Ports lie below the system's ephemeral range, so that a client's socket cannot take the port of a node that is down for a moment. A
//! process owns a port for as long as it holds the lock on the file that is named after the port. So test programs that one user runs
//! at the same time never share a port, even if they belong to different checkouts.

use rustix::fs::{FlockOperation, flock};
use rustix::process::getuid;
use std::fs::{File, OpenOptions};
use std::net::UdpSocket;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Mutex;

const PORTS: Range<u16> = 10_000..32_000;

/// Locks of this process, and the position at which the next search begins.
static TAKEN: Mutex<(Vec<File>, Option<u16>)> = Mutex::new((Vec::new(), None));

/// A free port, a different one with each call.
pub fn free_port() -> u16 {
    free_ports(1).start
}

/// A range of `count` free ports, a different one with each call.
pub fn free_ports(count: u16) -> Range<u16> {
    let (locks, next) = &mut *TAKEN.lock().expect("no search panics");
    let width = PORTS.end - PORTS.start - count;
    // Processes start at different positions, so that they seldom collide.
    let begin = next.unwrap_or_else(|| (std::process::id().wrapping_mul(7_919) % u32::from(width)) as u16);
    for offset in 0..width {
        let place = (begin + offset) % width;
        let first = PORTS.start + place;
        let ports = first..first + count;
        if let Some(taken) = ports.clone().map(take).collect::<Option<Vec<File>>>() {
            locks.extend(taken);
            *next = Some((place + count) % width);
            return ports;
        }
    }
    panic!("no {count} ports next to each other are free");
}

/// The lock of a port, if no other process holds it and no socket is bound to the port.
fn take(port: u16) -> Option<File> {
    let directory = std::env::temp_dir().join(format!("norn-test-ports-{}", getuid().as_raw()));
    std::fs::create_dir_all(&directory).expect("a directory for the locks of ports");
    let path: PathBuf = directory.join(port.to_string());
    let file = OpenOptions::new().create(true).append(true).open(path).expect("a file for the lock of a port");
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    is_free(port).then_some(file)
}

/// Whether a port is unbound now.
pub fn is_free(port: u16) -> bool {
    UdpSocket::bind(("127.0.0.1", port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::{free_ports, take};

    /// `flock` excludes open files from each other, so a second one in the same process stands for another process.
    #[test]
    fn a_port_that_is_taken_is_given_to_no_other_search() {
        let first = free_ports(3);
        assert!(first.clone().all(|port| take(port).is_none()), "{first:?}");
        let second = free_ports(3);
        assert!(second.clone().all(|port| !first.contains(&port)), "{first:?} and {second:?}");
    }
}
