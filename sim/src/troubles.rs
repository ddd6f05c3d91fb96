//! What goes wrong with the disks of nodes, and what follows: the log stops, the process ends as a real one does, and another one
//! starts later.
//!
//! Troubles are drawn for each process. Synced bytes stay as they are, so the cluster is supposed to recover from all of this.

use crate::adapter::log::LogError;
use crate::disk::Troubles;
use crate::world::World;
use norn_engine::Event as Input;
use norn_model::host::DiskReport;

/// Most room that is left on a disk which is nearly full, without a reserve.
const ROOM_BYTES_MAX: u64 = 10_000;
/// With a reserve, it is up to this many reserves more.
const ROOM_TIMES_MAX: u64 = 6;
/// Operations on the names of files.
const NAMING: [&str; 2] = ["rename", "remove"];
/// Factors by which a disk can be slow.
const SLOWNESS: [u64; 3] = [10, 100, 1_000];

impl World {
    /// Draws the troubles of the disk for the process that starts now.
    pub fn trouble_disk(&mut self, node: usize) {
        let sync_lies_ppm = self.lies_ppm(node);
        self.nodes[node].disk_errors = self.nodes[node].disk.suffered().errors();
        if self.healed() {
            return self.nodes[node].disk.end_troubles();
        }
        let options = &self.options;
        let mut troubles = Troubles {
            read_errors_ppm: options.disk_read_errors_ppm,
            write_errors_ppm: options.disk_write_errors_ppm,
            sync_errors_ppm: options.disk_sync_errors_ppm,
            name_errors_ppm: options.disk_name_errors_ppm,
            sync_lies_ppm,
            ..Troubles::default()
        };
        let random = &mut self.randoms.troubles;
        let disk = &self.nodes[node].disk;
        if random.chance(options.disk_full_percent, 100) {
            let room_max = ROOM_BYTES_MAX + ROOM_TIMES_MAX * options.reserve_bytes;
            troubles.capacity_bytes = Some(disk.used_bytes() + random.between(0, room_max));
        }
        if random.chance(options.disk_slow_percent, 100) {
            troubles.slowness = SLOWNESS[random.below(SLOWNESS.len() as u64) as usize];
        }
        let slow = troubles.slowness > 1;
        disk.trouble(troubles, random.child());
        if slow {
            self.count("fault: slow disk");
        }
    }

    /// Reports the state of the disk to the node, if that has changed.
    pub fn tell_disk(&mut self, node: usize) {
        let now_us = self.now_us;
        let Some(running) = &mut self.nodes[node].running else { return };
        let (room, spare_bytes) = (running.log.room(), running.log.spare_bytes());
        if let Some(report) = running.disk_latency.report(now_us, room) {
            let report = DiskReport { spare_bytes, ..report };
            self.line(format_args!("n{node} {report:?}"));
            self.give(node, Input::Disk(report));
        }
    }

    /// Checks a disk that is full or slow.
    pub fn watch_disk(&mut self, node: usize) {
        let Some(running) = self.nodes[node].running.as_mut().filter(|running| running.disk_latency.is_watched())
        else {
            return;
        };
        match running.log.look_for_room() {
            Ok(_) => {
                // Upkeep is due even if nothing is written meanwhile.
                if self.is_short(node) {
                    self.keep_up(node);
                }
                self.tell_disk(node);
            }
            Err(error) => self.log_stopped(node, &error),
        }
    }

    /// Handles a node that has handed over and stopped. One that did so for want of room is started again later.
    pub fn node_stopped(&mut self, node: usize) {
        self.line(format_args!("n{node} stopped"));
        if self.nodes[node].running.as_ref().is_some_and(|running| running.core.is_retired()) {
            return self.retired(node);
        }
        // Whatever room there is by now, the host ends a node that says so.
        self.count("sometimes: stopped without room");
        self.stop_node(node, false);
        self.schedule_restart(node);
    }

    /// Ends the troubles of all disks.
    pub fn heal_disks(&mut self) {
        self.nodes.iter().for_each(|process| process.disk.end_troubles());
    }

    /// Whether the disk has failed this process.
    pub fn disk_failed(&self, node: usize) -> bool {
        self.nodes[node].disk.suffered().errors() > self.nodes[node].disk_errors
    }

    /// Ends a node that cannot read or mend its log, and starts it again later.
    pub fn start_failed(&mut self, node: usize, reason: &str) {
        self.line(format_args!("n{node} does not start: {reason}"));
        self.count("sometimes: disk failed during a start");
        let lost = self.nodes[node].disk.crash(&mut self.randoms.disk);
        self.line(format_args!("n{node} crash {lost:?}"));
        self.schedule_restart(node);
    }

    /// Handles a log that has stopped. Its process ends, and sometimes the machine: if that lives on, it may show the next process
    /// bytes that are on no disk, as their sync has failed. This does not hold for names: a file system that cannot write its own
    /// records takes no more of them until it is mounted anew.
    pub fn log_stopped(&mut self, node: usize, error: &LogError) {
        let owed = matches!(error, LogError::Disk(_)) && self.disk_failed(node);
        if !owed {
            return self.fail("log", format!("node {node}: {error}"));
        }
        self.line(format_args!("n{node} log stopped: {error}"));
        let full = matches!(error, LogError::Disk(error) if error.full);
        self.count(if full { "sometimes: disk full" } else { "sometimes: disk failed" });
        let of_names =
            matches!(error, LogError::Disk(error) if error.file.is_empty() || NAMING.contains(&error.operation));
        let machine = of_names || self.randoms.troubles.chance(1, 2);
        self.stop_node(node, machine);
        self.schedule_restart(node);
    }
}
