//! What goes wrong in the safety phase, and the healing.
//!
//! Every kind strikes at random times around its own mean, so that kinds overlap. All faults are such that the cluster
//! is supposed to keep its promises during them and to recover after them: disks lose what they have synced only within
//! bounds (`damage.rs`), and claims have one kind of clock to rely on, unless options make both wild.

use crate::clock::draw_signed;
use crate::network::Weather;
use crate::process::draw_rate;
use crate::world::{Event, Phase, World};
use norn_wire::NodeId;
use norn_wire::random::Random;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A node crashes.
    Crash,
    /// All nodes crash.
    Blackout,
    /// A node does nothing for a while.
    Pause,
    /// Messages stop between some places.
    Cut,
    /// A client's connection breaks.
    Break,
    /// A clock jumps, or changes its rate.
    Clock,
    /// A clock jumps back and forth.
    Strobe,
    /// Hours or days pass in which nothing happens.
    Leap,
    /// An operator moves a partition to other nodes.
    Move,
    /// An operator changes the cluster.
    Change,
    /// A machine is lost for good.
    Loss,
    /// An operator changes a setting of a queue.
    Policy,
    /// An operator pauses or resumes a queue, or what waits in it for a failed task.
    Hold,
    /// An operator sets, removes or pauses a schedule.
    Schedule,
}

/// What a leader does in a cohort change, of which other nodes may hear or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    /// It takes the next step.
    Step,
    /// It begins to lead during a change, to these members.
    Leads {
        /// The members to come.
        next: Vec<NodeId>,
    },
}

const ALL: [Fault; 14] = [
    Fault::Crash,
    Fault::Blackout,
    Fault::Pause,
    Fault::Cut,
    Fault::Break,
    Fault::Clock,
    Fault::Leap,
    Fault::Move,
    Fault::Change,
    Fault::Loss,
    Fault::Policy,
    Fault::Schedule,
    Fault::Strobe,
    Fault::Hold,
];
const HOUR_US: u64 = 3_600_000_000;
const BAD_JUMP_US: u64 = 12_000_000;
/// Most jumps of a clock that strobes.
const STROBES_MAX: u64 = 200;

impl World {
    /// Schedules the first fault of each kind.
    pub fn schedule_faults(&mut self) {
        ALL.into_iter().for_each(|fault| self.schedule_fault(fault));
    }

    fn schedule_fault(&mut self, fault: Fault) {
        let options = &self.options;
        let mean_ms = match fault {
            Fault::Crash => options.crash_mean_ms,
            Fault::Blackout => options.blackout_mean_ms,
            Fault::Pause => options.pause_mean_ms,
            Fault::Cut => options.cut_mean_ms,
            Fault::Break => options.break_mean_ms,
            Fault::Clock => options.jump_mean_ms,
            Fault::Strobe => options.strobe_mean_ms,
            Fault::Leap => options.leap_mean_ms,
            Fault::Move => options.arrange_mean_ms,
            Fault::Change => options.change_mean_ms,
            Fault::Loss => options.loss_mean_ms,
            Fault::Policy => options.policy_mean_ms,
            Fault::Hold => options.hold_mean_ms,
            Fault::Schedule => options.schedule_mean_ms,
        };
        if mean_ms > 0 {
            let delay_us = self.random_of(fault).between(0, 2_000 * mean_ms);
            self.schedule_in(delay_us, Event::Fault(fault));
        }
    }

    /// Generator of a kind of fault. A kind that came later has its own, so that runs without it stay what they are.
    fn random_of(&mut self, fault: Fault) -> &mut Random {
        match fault {
            Fault::Strobe => &mut self.randoms.strobes,
            Fault::Hold => &mut self.randoms.holds,
            _ => &mut self.randoms.faults,
        }
    }

    /// Carries out a fault.
    pub fn fault(&mut self, fault: Fault) {
        if self.healed() {
            return;
        }
        self.schedule_fault(fault);
        let nodes = self.nodes.len() as u64;
        let node = self.random_of(fault).below(nodes) as usize;
        match fault {
            Fault::Crash => self.fault_crash(node),
            Fault::Blackout => self.fault_blackout(),
            Fault::Pause => self.fault_pause(node),
            Fault::Cut => self.fault_cut(),
            Fault::Break => self.fault_break(),
            Fault::Clock => self.fault_clock(node),
            Fault::Strobe => self.fault_strobe(node),
            Fault::Leap => self.fault_leap(),
            Fault::Move => self.move_partition(node),
            Fault::Change => self.change_cluster(node),
            Fault::Loss => self.lose_machine(node),
            Fault::Policy => self.change_policy(node),
            Fault::Hold => self.hold_queue(node),
            Fault::Schedule => self.change_schedule(node),
        }
    }

    fn fault_crash(&mut self, node: usize) {
        if self.nodes[node].running.is_none() {
            return;
        }
        match self.randoms.faults.below(3) {
            0 => self.nodes[node].effects_left = Some(self.randoms.faults.below(6)),
            1 => self.nodes[node].crash_in_sync = true,
            _ => {
                self.crash_node(node);
                self.schedule_restart(node);
            }
        }
    }

    /// Carries out a crash that was set up for the middle of a sync.
    pub fn crash_in_sync(&mut self, node: usize, boot: u64) {
        if self.nodes[node].boot == boot && self.nodes[node].running.is_some() && !self.healed() {
            self.crash_node(node);
            self.schedule_restart(node);
        }
    }

    /// Schedules the start of a crashed node, after a while or soon.
    pub fn schedule_restart(&mut self, node: usize) {
        let quick = self.randoms.faults.chance(self.options.quick_restart_percent, 100);
        let longest_ms = if quick { self.options.election_timeout_ms / 2 } else { self.options.down_ms_max };
        let delay_us = if self.healed() { 1_000 } else { self.randoms.faults.between(1_000, longest_ms * 1_000) };
        self.schedule_in(delay_us, Event::Start { node });
    }

    fn fault_blackout(&mut self) {
        self.count("fault: blackout");
        for node in 0..self.nodes.len() {
            self.crash_node(node);
            self.schedule_restart(node);
        }
    }

    fn fault_pause(&mut self, node: usize) {
        let length_us = self.randoms.faults.between(1_000, self.options.pause_ms_max * 1_000);
        if self.nodes[node].running.is_some() && self.nodes[node].paused_until_us < self.now_us {
            self.pause_node(node, length_us);
        }
    }

    fn fault_cut(&mut self) {
        self.count("fault: cut");
        let nodes = self.nodes.len();
        let places = nodes + self.clients.len();
        let shape = self.randoms.faults.below(5);
        let sides: Vec<u64> = (0..places).map(|_| self.randoms.faults.below(2)).collect();
        let lone = self.randoms.faults.below(nodes as u64) as usize;
        let other = self.randoms.faults.below(nodes as u64) as usize;
        for from in 0..places {
            for to in (0..places).filter(|to| *to != from) {
                let apart = sides[from] != sides[to];
                let cut = match shape {
                    // Two halves, clients among them.
                    0 => apart,
                    // Two halves with a bridge.
                    1 => apart && from != lone && to != lone,
                    // One node alone among the nodes.
                    2 => (from == lone || to == lone) && from < nodes && to < nodes,
                    // One node hears no other, or no other hears it.
                    3 => (if sides[0] == 0 { from } else { to }) == lone && from < nodes && to < nodes,
                    // One direction of one link.
                    _ => from == lone && to == other,
                };
                if cut {
                    self.network.cut(from, to);
                }
            }
        }
        self.cut_number += 1;
        let number = self.cut_number;
        self.line(format_args!("cut {number} shape {shape} lone {lone} other {other} sides {sides:?}"));
        let length_us = self.randoms.faults.between(10_000, self.options.cut_ms_max * 1_000);
        self.schedule_in(length_us, Event::Mend { number });
    }

    /// Cuts the network around a node that has just taken a step of a change: no node hears of it, or only some do, which may go on
    /// with it or without it.
    pub fn cut_at(&mut self, node: usize, turn: &Turn) {
        if self.healed() || !self.randoms.cuts.chance(self.options.cut_in_change_percent, 100) {
            return;
        }
        self.count("fault: cut at a step of a change");
        let aimed = self.randoms.cuts.chance(1, 2);
        let mut sides: Vec<bool> = (0..self.nodes.len()).map(|_| self.randoms.cuts.chance(1, 2)).collect();
        match turn {
            Turn::Step if aimed => sides = (0..sides.len()).map(|other| other == node).collect(),
            Turn::Leads { next } if aimed => {
                let identity = |other: usize| self.nodes[other].identity.map(|identity| identity.node);
                let new = |other: usize| identity(other).is_some_and(|node| next.contains(&node));
                let own = sides[node];
                sides = (0..sides.len()).map(new).collect();
                sides[node] &= own;
            }
            Turn::Step | Turn::Leads { .. } => {}
        }
        // Nodes that were cut off before are on one of the sides now.
        self.mend(self.cut_number);
        for (from, to) in (0..sides.len()).flat_map(|from| (0..sides.len()).map(move |to| (from, to))) {
            if sides[from] != sides[to] {
                self.network.cut(from, to);
            }
        }
        self.cut_number += 1;
        let number = self.cut_number;
        self.line(format_args!("cut {number} at n{node}, {turn:?}: sides {sides:?}"));
        let length_us = self.randoms.cuts.between(10_000, 6_000 * self.options.election_timeout_ms);
        self.schedule_in(length_us, Event::Mend { number });
    }

    /// Ends the latest cut, and all before it.
    pub fn mend(&mut self, number: u64) {
        if number != self.cut_number {
            return;
        }
        self.line(format_args!("mend {number}"));
        let nodes = self.nodes.len();
        for (one, other) in self.network.mend() {
            if one < nodes && other < nodes {
                self.link(one, other);
            }
        }
    }

    fn fault_break(&mut self) {
        let open = self.connections.len() as u64;
        if open == 0 {
            return;
        }
        self.count("fault: client connection");
        let place = self.randoms.faults.below(open) as usize;
        let number = *self.connections.keys().nth(place).expect("there are that many");
        self.break_connection(number);
    }

    fn fault_clock(&mut self, node: usize) {
        let now_us = self.now_us;
        let minority = (self.options.nodes - 1) / 2;
        let process = &mut self.nodes[node];
        let random = &mut self.randoms.clocks;
        let (wild_rates, wild_walls) = (self.options.wild_monotonic, self.options.wild_wall_clock);
        if wild_rates && (!wild_walls || random.chance(1, 2)) {
            process.rate_ppm = random.between(500_000, 2_000_000);
            process.clock.set_rate(now_us, process.rate_ppm);
        } else if wild_walls {
            process.wall.jump(now_us, draw_signed(random, self.options.wild_hours * HOUR_US));
        } else {
            // Ten times what two clocks may differ, and more.
            let bad = (node as u64) < minority && random.chance(self.options.bad_jump_percent, 100);
            let bound_us = if bad { BAD_JUMP_US } else { process.wall.bound_us() as u64 };
            process.wall.jump(now_us, draw_signed(random, bound_us));
        }
        let (mono_us, wall_ms) = (process.clock.read_us(now_us), process.wall.read_ms(now_us));
        self.count("fault: clock");
        self.line(format_args!("n{node} clock {mono_us} us {wall_ms} ms"));
    }

    /// Sets a node's wall clock for a script.
    pub fn set_wall(&mut self, node: usize, ahead_us: i64) {
        self.nodes[node].wall.jump(self.now_us, ahead_us);
        let wall_ms = self.nodes[node].wall.read_ms(self.now_us);
        self.line(format_args!("n{node} set to {wall_ms} ms"));
    }

    fn fault_strobe(&mut self, node: usize) {
        let left = self.randoms.strobes.between(2, STROBES_MAX);
        self.count("fault: clock strobes");
        self.strobe(node, left);
    }

    /// Whether claims rely on wall clocks that do not jump, as monotonic clocks run at any rate.
    fn relies_on_walls(&self) -> bool {
        self.options.wild_monotonic && !self.options.wild_wall_clock
    }

    /// Lets a clock jump, and `left` times more. The last jump leads to where the clock may be.
    pub fn strobe(&mut self, node: usize, left: u64) {
        if self.healed() || self.relies_on_walls() {
            return;
        }
        let now_us = self.now_us;
        let minority = (self.options.nodes - 1) / 2;
        let (wild, bad) = (self.options.wild_wall_clock, self.options.bad_jump_percent > 0);
        let random = &mut self.randoms.strobes;
        let wall = &mut self.nodes[node].wall;
        let bound_us = match left {
            _ if wild => self.options.wild_hours * HOUR_US,
            0 => wall.bound_us() as u64,
            _ if bad && (node as u64) < minority => BAD_JUMP_US,
            _ => wall.bound_us() as u64,
        };
        wall.jump(now_us, draw_signed(random, bound_us));
        let delay_us = random.between(100, 100_000);
        let wall_ms = self.nodes[node].wall.read_ms(now_us);
        self.line(format_args!("n{node} strobe {left} {wall_ms} ms"));
        if left > 0 {
            self.schedule_in(delay_us, Event::Strobe { node, left: left - 1 });
        }
    }

    fn fault_leap(&mut self) {
        let length_us = self.randoms.faults.between(HOUR_US / 60, self.options.leap_hours_max * HOUR_US);
        self.count("fault: leap");
        self.line(format_args!("leap {length_us}"));
        self.leap(length_us);
    }

    /// Ends all faults: all nodes up, links good, clocks calm, workers well-behaved.
    pub fn heal(&mut self) {
        self.line(format_args!("heal"));
        self.phase = Phase::Healed { since_us: self.now_us };
        self.network.weather = Weather::calm();
        self.cut_number += 1;
        self.mend(self.cut_number);
        let walls_jump = self.options.bad_jump_percent > 0 && !self.relies_on_walls();
        for node in 0..self.nodes.len() {
            let rate_ppm = draw_rate(&self.options, &mut self.randoms.clocks);
            let process = &mut self.nodes[node];
            process.effects_left = None;
            process.crash_in_sync = false;
            process.rate_ppm = rate_ppm;
            process.clock.set_rate(self.now_us, rate_ppm);
            if walls_jump {
                let bound_us = process.wall.bound_us() as u64;
                process.wall.jump(self.now_us, draw_signed(&mut self.randoms.clocks, bound_us));
            }
            if self.options.wild_wall_clock {
                // Later than any wrong clock was, so that nothing waits for hours.
                process.wall.jump(self.now_us, (self.options.wild_hours + 1) as i64 * HOUR_US as i64);
            }
            process.paused_until_us = process.paused_until_us.min(self.now_us);
            self.schedule_in(1, Event::NodeResume { node });
            self.schedule_in(1_000, Event::Start { node });
        }
        self.end_returns();
        self.heal_clients();
        self.begin_absence();
        self.end_schedules();
        self.schedule_in(200_000, Event::Poll);
    }
}
