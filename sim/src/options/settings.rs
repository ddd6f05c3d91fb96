//! What the options of a run mean for its nodes.

use super::Options;
use norn_model::config::{Config, Retention};
use std::sync::Arc;

/// Greatest delay of a message where nothing fails.
const CALM_DELAY_US: u64 = 20_000;

impl Options {
    /// Time after which a finished task is forgotten, if nothing is in the way.
    pub fn forgets_in_ms(&self) -> u64 {
        self.retain_ms + self.forget_after_ms
    }

    /// Turns all faults off: the network, disks and clocks are always good, and the cluster stays as it is founded.
    pub fn calm_down(&mut self) {
        let never = [
            &mut self.absence_percent,
            &mut self.gather_us_max,
            &mut self.loss_ppm,
            &mut self.duplicate_ppm,
            &mut self.spike_ppm,
            &mut self.replay_ppm,
            &mut self.lost_writes_percent,
            &mut self.crash_mean_ms,
            &mut self.blackout_mean_ms,
            &mut self.crash_after_vote_percent,
            &mut self.crash_after_ack_percent,
            &mut self.crash_in_change_percent,
            &mut self.crash_before_flag_percent,
            &mut self.pause_mean_ms,
            &mut self.cut_mean_ms,
            &mut self.cut_in_change_percent,
            &mut self.break_mean_ms,
            &mut self.jump_mean_ms,
            &mut self.bad_jump_percent,
            &mut self.strobe_mean_ms,
            &mut self.leap_mean_ms,
            &mut self.sync_slow_ppm,
            &mut self.disk_read_errors_ppm,
            &mut self.disk_write_errors_ppm,
            &mut self.disk_sync_errors_ppm,
            &mut self.disk_name_errors_ppm,
            &mut self.disk_full_percent,
            &mut self.disk_slow_percent,
            &mut self.damage_percent,
            &mut self.image_percent,
            &mut self.lies_ppm,
            &mut self.harm_percent,
            &mut self.rot_ppm,
            &mut self.arrange_mean_ms,
            &mut self.change_mean_ms,
            &mut self.spares,
            &mut self.loss_mean_ms,
            &mut self.reserves,
            &mut self.policy_mean_ms,
            &mut self.hold_mean_ms,
            &mut self.schedule_mean_ms,
            &mut self.ageing_percent,
            &mut self.rate_percent,
            &mut self.concurrency_percent,
        ];
        never.into_iter().for_each(|knob| *knob = 0);
        (self.wild_wall_clock, self.wild_monotonic, self.ordered) = (false, false, true);
        self.delay_us_max = self.delay_us_max.min(CALM_DELAY_US);
        self.retain_ms = Config::default().retention.default_ms;
        self.forget_after_ms = Config::default().forget_after_ms;
    }

    /// Configuration of the nodes.
    pub fn config(&self) -> Config {
        Config {
            heartbeat_ms: self.heartbeat_ms,
            resend_ms: self.resend_ms,
            election_timeout_ms: self.election_timeout_ms,
            exchange_interval_ms: self.exchange_interval_ms,
            repair_bytes_per_second: self.repair_bytes_per_second,
            repair_items_per_second: self.repair_items_per_second,
            clock_fencing: self.clock_fencing,
            clock_calm_ms: self.clock_calm_ms,
            payload_memory_bytes: self.payload_memory_bytes,
            retention: Arc::new(Retention { default_ms: self.retain_ms, ..Retention::default() }),
            forget_after_ms: self.forget_after_ms,
            hints_bytes_max: self.hints_bytes_max,
            hint_ttl_ms: self.hint_ttl_ms,
            revert_after_ms: self.revert_after_ms,
            exile_ttl_ms: self.exile_ttl_ms,
            archives: self.archives,
            mutant: self.mutant,
            ..Config::default()
        }
    }
}
