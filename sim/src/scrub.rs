//! Damage to the disk of a running node, and the node's own search for it.
//!
//! A byte at rest changes. Nothing is lost by that as long as the process lives, so the log must find it and write what it knows once
//! more. If the process ends before, its next start finds the loss.

use crate::world::World;
use norn_engine::Event as Input;
use norn_model::config::Config;
use norn_storage::SnapshotError;
use norn_storage::disk::Disk;
use norn_storage::scrub::{ScrubPace, Scrubbed};
use norn_storage::verify::{Problem, verify};
use norn_wire::TaskId;

impl World {
    /// When a process that starts now scrubs, in true time.
    pub fn pace(&self) -> ScrubPace {
        let rest_us = self.options.scrub_rest_ms * 1_000;
        let mut pace = ScrubPace::new(self.options.scrub_bytes_per_second, rest_us);
        pace.scrubbed(self.now_us, &Scrubbed { over: true, ..Scrubbed::default() });
        pace
    }

    /// Changes a byte of a file that is not written any more, now and then.
    pub fn rot(&mut self, node: usize) {
        let rot_ppm = self.options.rot_ppm;
        if rot_ppm == 0 || !self.may_spoil(node) || !self.randoms.troubles.chance(rot_ppm, 1_000_000) {
            return;
        }
        // Data that is on no other disk must stay readable.
        let in_memory = self.options.payload_memory_bytes == Config::default().payload_memory_bytes;
        if !in_memory && !self.roots_agree() {
            return;
        }
        let disk = self.nodes[node].disk.copy();
        let files = disk.list().expect("a copy has no troubles");
        let last = files.iter().rfind(|file| file.ends_with(".log")).cloned();
        let still =
            |file: &&String| (file.ends_with(".log") || file.ends_with(".snapshot")) && last.as_ref() != Some(*file);
        let still: Vec<&String> = files.iter().filter(still).collect();
        if still.is_empty() {
            return;
        }
        let file = still[self.randoms.troubles.below(still.len() as u64) as usize];
        let length = disk.length(file).expect("a copy has no troubles");
        if length > 0 {
            let place = self.randoms.troubles.below(length);
            let change = self.randoms.troubles.between(1, 255) as u8;
            self.nodes[node].disk.flip(file, place, change);
            self.line(format_args!("n{node} {file} rots at {place}"));
            self.struck(node, "fault: rot");
        }
    }

    /// Lets the log scrub, if it is time.
    pub fn scrub(&mut self, node: usize) {
        let now_us = self.now_us;
        let Some(running) = &mut self.nodes[node].running else { return };
        if running.pace.due_us().is_none_or(|due_us| now_us < due_us) {
            return;
        }
        match running.log.scrub() {
            Err(error) => self.log_stopped(node, &error),
            Ok(scrubbed) => {
                running.pace.scrubbed(now_us, &scrubbed);
                if scrubbed.over {
                    self.count("sometimes: scrubbed");
                }
                let Some(rot) = scrubbed.rot else { return };
                self.line(format_args!("n{node} {rot}"));
                self.count("sometimes: scrub found damage");
                if !self.may_be_damaged(node) {
                    return self.fail("scrub", format!("node {node}: {rot}"));
                }
                self.keep_up(node);
            }
        }
    }

    /// Whether anything may have happened to the disk of a node.
    pub fn may_be_damaged(&self, node: usize) -> bool {
        self.may_refuse(node) || self.nodes[node].flipped || self.disk_failed(node)
    }

    /// Handles a snapshot that could not be written.
    pub fn snapshot_given_up(&mut self, node: usize, error: &SnapshotError) {
        // The log itself may need the room.
        let is_full = self.options.disk_full_percent > 0 && matches!(error, SnapshotError::NoRoom);
        if !is_full && !self.may_be_damaged(node) {
            self.fail("log", format!("node {node}: {error}"));
        }
        self.count("sometimes: snapshot given up");
        if let SnapshotError::BodiesLost { last, .. } = error {
            self.snapshot_lacks(node, last.clone());
        }
    }

    /// Handles a snapshot that cannot have the bodies of these tasks.
    pub fn snapshot_lacks(&mut self, node: usize, ids: Vec<TaskId>) {
        if !self.may_be_damaged(node) {
            self.fail("log", format!("node {node}: bodies are lost on a good disk: {ids:?}"));
        }
        self.count("sometimes: snapshot lacks bodies");
        self.give(node, Input::BodiesLost { ids });
    }

    /// Whether a disk has damage.
    pub fn is_rotten(&self, node: usize) -> bool {
        self.problem(node).is_some()
    }

    fn problem(&self, node: usize) -> Option<Problem> {
        let mut problem = None;
        let found = |found: Problem| problem = problem.take().or(Some(found));
        verify(&self.nodes[node].disk.copy(), found).expect("a copy has no troubles");
        problem
    }

    /// Damage on the disk of a node that runs and scrubs, if any.
    pub fn rotten(&self) -> Option<String> {
        let scrubs = self.options.scrub_bytes_per_second > 0;
        let running = |node: &usize| scrubs && self.nodes[*node].running.is_some();
        (0..self.nodes.len()).filter(running).find_map(|node| {
            let files = self.nodes[node].disk.copy().list().expect("a copy has no troubles");
            // Damage to the segment that is written to is handled when that is full.
            let last = files.iter().rfind(|file| file.ends_with(".log"));
            let problem = self.problem(node).filter(|problem| last != Some(&problem.file))?;
            Some(format!("node {node} has not made good what is wrong with its disk: {problem:?}"))
        })
    }
}
