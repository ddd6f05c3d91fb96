//! Options of a [`ScriptHost`](crate::Stage): as those of seeds, without what a script cannot be written for.

use super::{Options, mean};
use norn_wire::random::Random;

/// How much goes wrong on a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conditions {
    /// Nothing goes wrong but what the script does.
    Calm,
    /// Messages are lost, doubled, delayed and reordered, connections break, parts of the network are cut off, nodes pause and crash.
    Rough,
}

impl Options {
    /// Draws the options of a stage. Each node holds everything, so that of three one may be missing.
    pub fn of_script_host(random: &mut Random, conditions: Conditions, nodes: u64) -> Options {
        let mut options = Options::draw_nodes(random);
        let heartbeat_ms = random.between(30, 80);
        (options.nodes, options.replicas) = (nodes, nodes);
        options.partitions = 1 << random.between(1, 3);
        (options.producers, options.workers) = (0, 0);
        options.safety_ms = u64::MAX / 1_000;
        options.absence_percent = 0;
        options.heartbeat_ms = heartbeat_ms;
        options.election_timeout_ms = heartbeat_ms * random.between(4, 8);
        options.check_every = 128;
        options.blackout_mean_ms = 0;
        options.down_ms_max = 3_000;
        options.compact_bytes = [20_000, 200_000][random.below(2) as usize];
        options.saved_bytes = 5_000;
        match conditions {
            Conditions::Calm => options.calm(),
            Conditions::Rough => options.rough(random),
        }
        options
    }

    fn calm(&mut self) {
        (self.loss_ppm, self.duplicate_ppm, self.spike_ppm) = (0, 0, 0);
        (self.crash_mean_ms, self.pause_mean_ms, self.cut_mean_ms) = (0, 0, 0);
        (self.break_mean_ms, self.jump_mean_ms, self.sync_slow_ppm) = (0, 0, 0);
    }

    /// Bad, but short enough each time that a repeated call gets through.
    fn rough(&mut self, random: &mut Random) {
        self.loss_ppm = random.between(0, 50_000);
        self.spike_us_max = random.between(20_000, 300_000);
        self.crash_mean_ms = random.between(8_000, 30_000);
        self.pause_mean_ms = mean(random, 8_000, 30_000);
        self.pause_ms_max = [50, 1_000, 3_000][random.below(3) as usize];
        self.cut_mean_ms = mean(random, 8_000, 30_000);
        self.cut_ms_max = random.between(200, 2_000);
        self.break_mean_ms = mean(random, 1_000, 10_000);
    }
}
