//! Knobs that were added one after the other, each drawn from a copy of its own, so that runs without it stay what they are.

use super::Options;
use norn_wire::random::Random;

impl Options {
    /// Draws knobs of tasks and queues, each from a copy of its own, so that runs without it stay what they are. Returns the last
    /// copy.
    pub(super) fn draw_queues(&mut self, random: &Random) -> Random {
        let mut copy = random.clone().child();
        if copy.chance(1, 3) {
            self.policy_mean_ms = copy.between(300, 4_000);
        }
        let mut copy = copy.clone().child();
        if copy.chance(1, 3) {
            self.holder_percent = copy.between(30, 100);
        }
        let mut copy = copy.clone().child();
        if copy.chance(1, 2) {
            self.children_percent = copy.between(10, 60);
        }
        let mut copy = copy.clone().child();
        if copy.chance(1, 3) {
            self.letters_percent = copy.between(30, 100);
        }
        let mut copy = copy.clone().child();
        // With wall clocks that are hours off, catching up makes thousands of tasks, and each check looks at all of them.
        if copy.chance(1, 4) && !self.wild_wall_clock {
            self.schedule_mean_ms = copy.between(500, 5_000);
        }
        let mut copy = copy.clone().child();
        if copy.chance(1, 4) {
            self.key_percent = copy.between(5, 60);
        }
        let mut copy = copy.clone().child();
        if copy.chance(1, 4) {
            self.limit_percent = copy.between(30, 100);
        }
        copy
    }

    /// Draws faults that strike at steps, or step by step; each from a copy of its own, too.
    pub(super) fn draw_steps(&mut self, random: &Random) {
        let mut copy = random.clone().child();
        if copy.chance(1, 3) {
            self.strobe_mean_ms = copy.between(1_000, 10_000);
        }
        let mut copy = copy.clone().child();
        if copy.chance(1, 3) {
            self.crash_in_change_percent = copy.between(3, 30);
        }
        let mut copy = copy.clone().child();
        if copy.chance(1, 3) {
            self.cut_in_change_percent = copy.between(3, 30);
        }
        let mut copy = copy.clone().child();
        if copy.chance(1, 2) {
            self.unique_percent = copy.between(20, 80);
        }
        let mut copy = copy.clone().child();
        if copy.chance(1, 3) {
            self.group_percent = copy.between(5, 50);
        }
        let mut copy = copy.clone().child();
        if copy.chance(1, 3) {
            self.session_percent = copy.between(20, 90);
        }
        let mut copy = copy.clone().child();
        if copy.chance(1, 2) {
            self.leave_percent = copy.between(5, 60);
        }
        // Nodes that are further apart than the time after which a question is repeated.
        let mut far = copy.clone().child().child();
        if far.chance(1, 4) {
            self.resend_ms = far.between(10, 60);
        }
        for knob in [
            &mut self.ageing_percent,
            &mut self.rate_percent,
            &mut self.concurrency_percent,
            &mut self.key_concurrency_percent,
            &mut self.fair_percent,
        ] {
            copy = copy.child();
            if copy.chance(1, 4) {
                *knob = copy.between(30, 100);
            }
        }
        copy = copy.child();
        if copy.chance(1, 3) {
            self.transaction_percent = copy.between(30, 100);
        }
        copy = copy.child();
        if copy.chance(1, 3) {
            self.watchers = copy.between(1, 3);
        }
        copy = copy.child();
        if copy.chance(1, 8) && self.holder_percent > 0 {
            self.forged_percent = copy.between(5, 50);
        }
        copy = copy.child();
        if copy.chance(1, 6) {
            self.hold_mean_ms = copy.between(500, 5_000);
        }
        copy = copy.child();
        if copy.chance(1, 4) {
            self.purge_percent = copy.between(10, 80);
        }
        copy = copy.child();
        if copy.chance(2, 3) && self.transaction_percent > 0 {
            self.across_percent = copy.between(20, 100);
        }
    }
}
