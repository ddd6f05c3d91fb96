//! Knobs of a run. All are drawn from the seed, so that rare mixtures occur; each can be set by a flag.

mod queues;
mod script_host;
mod settings;

pub use script_host::Conditions;

use crate::mutants;
use norn_model::config::{Config, Mutant};
use norn_wire::random::Random;

macro_rules! options {
    ($($(#[$doc:meta])* $name:ident: $kind:ty,)*) => {
        /// The knobs of one run.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Options {
            $($(#[$doc])* pub $name: $kind,)*
            /// A known bug to put back.
            pub mutant: Option<Mutant>,
        }

        /// Knobs set by hand; the others are drawn.
        #[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
        pub struct Overrides {
            $($(#[$doc])* #[arg(long, value_name = "VALUE", help_heading = "Knobs")] pub $name: Option<$kind>,)*
            /// Puts a known bug back, by name; see `mutants`.
            #[arg(long, value_name = "NAME", value_parser = mutants::parse)]
            pub mutant: Option<Mutant>,
        }

        impl Overrides {
            fn apply(&self, options: &mut Options) {
                $(if let Some(value) = self.$name { options.$name = value; })*
                options.mutant = self.mutant;
            }

            /// These knobs, and those of `rest` where these are not set.
            pub fn or(&self, rest: &Overrides) -> Overrides {
                Overrides { $($name: self.$name.or(rest.$name),)* mutant: self.mutant.or(rest.mutant) }
            }

            /// The knobs as flags, ready to paste.
            pub fn flags(&self) -> String {
                let mut flags = String::new();
                $(if let Some(value) = self.$name {
                    flags += &format!(" --{} {value}", stringify!($name).replace('_', "-"));
                })*
                if let Some(mutant) = self.mutant {
                    flags += &format!(" --mutant {}", mutants::name(mutant));
                }
                flags
            }
        }

        impl Options {
            /// Every knob with its value, one per line.
            pub fn lines(&self) -> Vec<String> {
                let mut lines = vec![$(format!("{} = {}", stringify!($name), self.$name)),*];
                lines.extend(self.mutant.map(|mutant| format!("mutant = {}", mutants::name(mutant))));
                lines
            }
        }
    };
}

options! {
    /// Nodes.
    nodes: u64,
    /// Runs at whose end one node or link stays away while the others must make progress, in a hundred.
    absence_percent: u64,
    /// Replicas of each partition.
    replicas: u64,
    /// Partitions, a power of two.
    partitions: u64,
    /// Clients that enqueue.
    producers: u64,
    /// Clients that work.
    workers: u64,
    /// Queues.
    queues: u64,
    /// Tasks to enqueue.
    tasks: u64,
    /// Length of the phase with faults.
    safety_ms: u64,
    /// Time to recover in after healing.
    heal_limit_ms: u64,
    /// Messages lost, in a million.
    loss_ppm: u64,
    /// Messages doubled, in a million.
    duplicate_ppm: u64,
    /// Least delay of a message.
    delay_us_min: u64,
    /// Usual greatest delay of a message.
    delay_us_max: u64,
    /// Messages much delayed, in a million.
    spike_ppm: u64,
    /// Greatest delay of a much delayed message.
    spike_us_max: u64,
    /// Messages between two nodes keep their order.
    ordered: bool,
    /// Mean time between crashes of a node; 0 is never.
    crash_mean_ms: u64,
    /// Longest time that a crashed node stays down.
    down_ms_max: u64,
    /// Crashes that are over within the election timeout, in a hundred.
    quick_restart_percent: u64,
    /// Mean time between crashes of all nodes; 0 is never.
    blackout_mean_ms: u64,
    /// Mean time between pauses of a node; 0 is never.
    pause_mean_ms: u64,
    /// Longest pause.
    pause_ms_max: u64,
    /// Nodes speak a protocol version with envelopes: what a turn has for a peer travels together.
    enveloped: bool,
    /// Longest time for which a node gathers what arrives, and then handles it in one turn; 0 is never.
    gather_us_max: u64,
    /// Mean time between cuts of the network; 0 is never.
    cut_mean_ms: u64,
    /// Longest cut.
    cut_ms_max: u64,
    /// Mean time between broken client connections; 0 is never.
    break_mean_ms: u64,
    /// Mean time between jumps of a wall clock; 0 is never.
    jump_mean_ms: u64,
    /// Jumps of a minority's wall clocks that lead beyond the bound, in a hundred.
    bad_jump_percent: u64,
    /// Nodes with a wrong wall clock give up leading.
    clock_fencing: bool,
    /// How long a clock must be right again before it is relied on.
    clock_calm_ms: u64,
    /// Rate error of clocks within the bound, in parts per million.
    drift_ppm: u64,
    /// Wall clocks jump by hours; monotonic clocks are good.
    wild_wall_clock: bool,
    /// Monotonic clocks of nodes run at half to double speed; wall clocks are good.
    wild_monotonic: bool,
    /// Fastest sync.
    sync_us_min: u64,
    /// Usual slowest sync.
    sync_us_max: u64,
    /// Syncs that take up to 100 ms, in a million.
    sync_slow_ppm: u64,
    /// Length of a segment of the log.
    segment_bytes: u64,
    /// Length of the log from which a snapshot is worth it.
    compact_bytes: u64,
    /// Bytes of state in one part of a snapshot.
    saved_bytes: u64,
    /// Facts are not synced before they are acknowledged, and machines do not lose power: processes merely die.
    unsynced_facts: bool,
    /// Shortest lease that workers ask for.
    lease_ms_min: u64,
    /// Longest lease that workers ask for.
    lease_ms_max: u64,
    /// Jobs that do not simply end with a completion, in a hundred.
    misbehave_percent: u64,
    /// Claims that wait, in a hundred.
    wait_percent: u64,
    /// Claims that their clients give up early, in a hundred.
    leave_percent: u64,
    /// Time without an answer after which nodes ask again.
    resend_ms: u64,
    /// Mean time between strobes of a clock, which jumps back and forth for a while, faster than other nodes can measure; 0 is never.
    strobe_mean_ms: u64,
    /// Enqueued tasks that are cancelled, in a hundred.
    cancel_percent: u64,
    /// Enqueues that are batches, in a hundred.
    batch_percent: u64,
    /// Tasks that are delayed, in a hundred.
    delay_percent: u64,
    /// Tasks that wait for others, in a hundred.
    after_percent: u64,
    /// Writes with strict acknowledgement, in a hundred.
    strict_percent: u64,
    /// Heartbeat of the nodes.
    heartbeat_ms: u64,
    /// Election timeout of the nodes.
    election_timeout_ms: u64,
    /// Interval of anti-entropy.
    exchange_interval_ms: u64,
    /// Bytes that a node sends in a second for repair.
    repair_bytes_per_second: u64,
    /// Tasks that a node sends in a second for repair.
    repair_items_per_second: u64,
    /// Steps after which the whole node is checked again.
    check_every: u64,
    /// Voters that crash as soon as their vote has left, in a hundred, and come back at once.
    crash_after_vote_percent: u64,
    /// Crashes of the node whose disk may be rolled back, as soon as an acknowledgement has left, in a hundred; it comes back at
    /// once.
    crash_after_ack_percent: u64,
    /// Crashes of a node around a step of a change of the cohort, in a hundred; it comes back soon.
    crash_in_change_percent: u64,
    /// Cuts around a node that has just taken a step of a change of the cohort, or begins to lead in one, in a hundred.
    cut_in_change_percent: u64,
    /// Followers that crash before an acknowledgement with a done flag has left, in a hundred, and come back at once.
    crash_before_flag_percent: u64,
    /// Writes to other replicas that are lost in addition, in a hundred, so that replicas know different things.
    lost_writes_percent: u64,
    /// Reads of a disk that fail, in a million.
    disk_read_errors_ppm: u64,
    /// Writes to a disk that fail, in a million.
    disk_write_errors_ppm: u64,
    /// Syncs of files that fail, in a million.
    disk_sync_errors_ppm: u64,
    /// Operations on a directory that fail, in a million.
    disk_name_errors_ppm: u64,
    /// Processes whose disk has little room left, in a hundred.
    disk_full_percent: u64,
    /// Reserve that nodes keep on their disks, so that they refuse tasks before the disk is full; 0 for none.
    reserve_bytes: u64,
    /// Processes whose disk is ten to a thousand times slower than usual, in a hundred.
    disk_slow_percent: u64,
    /// Starts that find records of one partition lost, in a hundred, where no other node has anything to heal.
    damage_percent: u64,
    /// Starts of one node that find its disk replaced by an earlier image, in a hundred.
    image_percent: u64,
    /// Syncs of one node's disk that succeed and do nothing, in a million.
    lies_ppm: u64,
    /// Starts of one node that find its disk damaged in coarse ways, in a hundred.
    harm_percent: u64,
    /// Syncs after which a byte at rest on one node's disk changes, in a million.
    rot_ppm: u64,
    /// Bytes of their logs that nodes scrub in a second; 0 for none.
    scrub_bytes_per_second: u64,
    /// Pause between two scrubbing passes.
    scrub_rest_ms: u64,
    /// Bytes of bodies that nodes keep in memory.
    payload_memory_bytes: u64,
    /// How long finished tasks are kept.
    retain_ms: u64,
    /// Bytes of hints that a node keeps.
    hints_bytes_max: u64,
    /// How long a node notes what a member that is away lacks.
    hint_ttl_ms: u64,
    /// Age of an id at which a finished task may be forgotten.
    forget_after_ms: u64,
    /// Finished tasks are archived first.
    archives: bool,
    /// Mean time between leaps, in which nothing happens for long; 0 is never.
    leap_mean_ms: u64,
    /// Longest leap.
    leap_hours_max: u64,
    /// Greatest error of wild wall clocks.
    wild_hours: u64,
    /// Messages that arrive once more much later, in a million.
    replay_ppm: u64,
    /// Greatest delay of those.
    replay_us_max: u64,
    /// Mean time between moves of a partition to other nodes; 0 is never.
    arrange_mean_ms: u64,
    /// Time without progress after which a move is given up.
    revert_after_ms: u64,
    /// Completions that bring child tasks, in a hundred.
    children_percent: u64,
    /// Queues with a dead-letter queue, in a hundred; and tasks that are redriven once they have failed as invalid, in two hundred.
    letters_percent: u64,
    /// Tasks that their worker purges once they are completed, in a hundred; and before that, which must be refused.
    purge_percent: u64,
    /// Tasks with a key, in a hundred.
    key_percent: u64,
    /// Single tasks with keys that are enqueued as the only ones with their key, in a hundred.
    unique_percent: u64,
    /// Enqueues that begin a group, and completions that bring one, in a hundred.
    group_percent: u64,
    /// Claims that workers make under a session, in a hundred.
    session_percent: u64,
    /// Queues that are watched from beginning to end.
    watchers: u64,
    /// Queues that take few tasks at a time, in a hundred.
    limit_percent: u64,
    /// Queues whose tasks age, in a hundred.
    ageing_percent: u64,
    /// Queues whose claims come no faster than a rate, in a hundred.
    rate_percent: u64,
    /// Queues of which few tasks may be held at once, in a hundred.
    concurrency_percent: u64,
    /// Occasions on which producers change several tasks in a transaction, in a hundred.
    transaction_percent: u64,
    /// Those transactions that may change tasks of two routing tags, in a hundred.
    across_percent: u64,
    /// Queues of which several tasks with the same key may be held at once, in a hundred.
    key_concurrency_percent: u64,
    /// Queues with fair queueing of their keys, in a hundred.
    fair_percent: u64,
    /// Claims whose completion needs a seal that are first completed under a token of another kind, in a hundred.
    forged_percent: u64,
    /// Nodes, out of all of them, that are not founders.
    spares: u64,
    /// Mean time between an operator's changes of the cluster; 0 is never.
    change_mean_ms: u64,
    /// Mean time between an operator's changes of a queue's settings; 0 is never.
    policy_mean_ms: u64,
    /// Mean time between an operator's pauses and resumptions of a queue, or changes of what happens in it to tasks that wait for a
    /// failed one; 0 is never.
    hold_mean_ms: u64,
    /// Mean time between an operator's changes of schedules; 0 is never.
    schedule_mean_ms: u64,
    /// Queues whose tasks only their holder may end, in a hundred.
    holder_percent: u64,
    /// Mean time between losses of a machine for good; 0 is never.
    loss_mean_ms: u64,
    /// Machines beside the nodes, each of which can take the place of a lost one.
    reserves: u64,
    /// Lost machines that come back with their old disk, in a hundred.
    return_percent: u64,
    /// Time after which the facts of a node that is away and has left a partition are no longer waited for.
    exile_ttl_ms: u64,
    /// No faults, no moves and no changes of settings, whatever else is drawn or set. Never drawn.
    calm: bool,
}

/// A draw that is 0, so that the fault is off, one time in four.
fn mean(random: &mut Random, low: u64, high: u64) -> u64 {
    let value = random.between(low, high);
    if random.chance(1, 4) { 0 } else { value }
}

/// A rate in a million that is often 0, often small and sometimes great.
fn rate(random: &mut Random, high: u64) -> u64 {
    match random.below(3) {
        0 => 0,
        1 => random.between(1, high / 10),
        _ => random.between(high / 10, high),
    }
}

impl Options {
    /// Draws the options of a seed.
    pub fn draw(random: &mut Random, overrides: &Overrides) -> Options {
        let mut options = Options::draw_nodes(random);
        options.draw_wild(random);
        options.draw_hasty_voters(random);
        if random.chance(1, 3) {
            options.crash_before_flag_percent = random.between(20, 90);
            options.lost_writes_percent = random.between(10, 60);
        }
        if random.chance(2, 3) {
            options.compact_bytes = [2_000, 20_000, 200_000][random.below(3) as usize];
            options.saved_bytes = [500, 5_000, 50_000][random.below(3) as usize];
        }
        options.draw_disks(random);
        options.unsynced_facts = random.chance(1, 8);
        // From a copy, so that runs without this fault stay what they are.
        let mut copy = random.clone();
        if copy.chance(1, 2) {
            options.damage_percent = copy.between(10, 60);
            // Facts that are lost do harm where few nodes have them.
            if copy.chance(1, 2) {
                options.crash_before_flag_percent = copy.between(60, 90);
                options.lost_writes_percent = copy.between(30, 50);
            }
        }
        let mut copy = copy.child();
        if copy.chance(1, 2) {
            options.draw_forgetting(&mut copy);
        }
        if copy.chance(1, 4) {
            options.leap_mean_ms = copy.between(2_000, 20_000);
            options.leap_hours_max = copy.between(1, 240);
        }
        if copy.chance(1, 2) {
            options.wild_hours = 72;
        }
        if copy.chance(1, 3) {
            options.repair_bytes_per_second = copy.between(1 << 14, 1 << 18);
            options.repair_items_per_second = copy.between(20, 500);
        }
        if copy.chance(1, 3) {
            options.payload_memory_bytes = [0, 0, 1_000, 10_000][copy.below(4) as usize];
        }
        let mut copy = copy.child();
        if copy.chance(1, 4) {
            options.draw_absent_members(&mut copy);
        }
        options.draw_copies(&mut copy);
        let mut copy = copy.clone().child();
        if copy.chance(1, 2) {
            options.arrange_mean_ms = copy.between(300, 5_000);
            options.revert_after_ms = copy.between(500, 10_000);
        }
        // A knob that was removed. Its draws remain, so that later draws stay the same for every seed.
        let mut copy = copy.clone().child();
        if copy.chance(1, 2) {
            copy.between(20, 100);
        }
        let mut copy = copy.clone().child();
        if copy.chance(1, 3) {
            options.change_mean_ms = copy.between(500, 8_000);
            options.spares = copy.between(0, 2);
            options.nodes += options.spares;
        }
        let mut copy = copy.clone().child();
        if copy.chance(1, 4) {
            options.loss_mean_ms = copy.between(2_000, 10_000);
            options.reserves = copy.between(1, 2);
            options.return_percent = [0, 50, 100][copy.below(3) as usize];
            options.exile_ttl_ms = [1_000, 10_000, 7 * 24 * 3_600_000][copy.below(3) as usize];
        }
        options.draw_turns(&copy);
        let copy = options.draw_queues(&copy);
        options.draw_steps(&copy);
        overrides.apply(&mut options);
        if options.calm {
            options.calm_down();
        }
        options.spares = options.spares.min(options.nodes - 1);
        options.replicas = options.replicas.min(options.nodes - options.spares);
        // Where disks fail, data that was not synced is lost.
        let copies = options.image_percent + options.lies_ppm + options.harm_percent + options.rot_ppm;
        options.unsynced_facts &= !options.disks_fail() && copies == 0;
        options
    }

    /// Draws the numbers of nodes and of replicas of each partition.
    fn draw_size(random: &mut Random) -> (u64, u64) {
        let nodes = [3, 3, 3, 3, 3, 3, 1, 4, 5, 5][random.below(10) as usize];
        (nodes, if nodes == 5 && random.chance(1, 2) { 5 } else { nodes.min(3) })
    }

    #[expect(clippy::too_many_lines, reason = "one line for each knob")]
    fn draw_nodes(random: &mut Random) -> Options {
        let (nodes, replicas) = Options::draw_size(random);
        let heartbeat_ms = random.between(20, 80);
        Options {
            nodes,
            absence_percent: 60,
            replicas,
            partitions: 1 << random.below(4),
            producers: random.between(1, 3),
            workers: random.between(1, 6),
            queues: random.between(1, 3),
            tasks: random.between(20, 200),
            safety_ms: random.between(8_000, 40_000),
            heal_limit_ms: 120_000,
            loss_ppm: rate(random, 200_000),
            duplicate_ppm: rate(random, 100_000),
            delay_us_min: random.between(50, 1_000),
            delay_us_max: random.between(1_000, 20_000),
            spike_ppm: rate(random, 20_000),
            spike_us_max: random.between(20_000, 2_000_000),
            ordered: random.chance(1, 3),
            crash_mean_ms: mean(random, 1_000, 15_000),
            down_ms_max: random.between(100, 8_000),
            quick_restart_percent: random.between(0, 60),
            blackout_mean_ms: if random.chance(1, 3) { random.between(5_000, 30_000) } else { 0 },
            pause_mean_ms: mean(random, 2_000, 20_000),
            pause_ms_max: [50, 1_000, 10_000, 30_000][random.below(4) as usize],
            enveloped: true,
            gather_us_max: 0,
            cut_mean_ms: mean(random, 1_000, 15_000),
            cut_ms_max: random.between(200, 10_000),
            break_mean_ms: mean(random, 300, 10_000),
            jump_mean_ms: mean(random, 1_000, 20_000),
            bad_jump_percent: 0,
            clock_fencing: true,
            clock_calm_ms: random.between(200, 10_000),
            drift_ppm: 990,
            wild_wall_clock: false,
            wild_monotonic: false,
            sync_us_min: 50,
            sync_us_max: random.between(200, 5_000),
            sync_slow_ppm: rate(random, 50_000),
            segment_bytes: [2_000, 20_000, 200_000, 1 << 20][random.below(4) as usize],
            compact_bytes: u64::MAX,
            saved_bytes: 1,
            unsynced_facts: false,
            lease_ms_min: random.between(200, 1_000),
            lease_ms_max: random.between(1_000, 10_000),
            misbehave_percent: random.between(0, 80),
            wait_percent: random.between(0, 100),
            leave_percent: 0,
            resend_ms: Config::default().resend_ms,
            cancel_percent: random.between(0, 20),
            batch_percent: random.between(0, 40),
            delay_percent: random.between(0, 40),
            // From a copy, so that it shifts no draw after it.
            after_percent: draw_after_percent(&mut random.clone().child()),
            strict_percent: random.between(50, 100),
            heartbeat_ms,
            election_timeout_ms: heartbeat_ms * random.between(4, 10),
            exchange_interval_ms: random.between(100, 2_000),
            repair_bytes_per_second: Config::default().repair_bytes_per_second,
            repair_items_per_second: Config::default().repair_items_per_second,
            check_every: 1 << random.between(2, 7),
            crash_after_vote_percent: 0,
            crash_after_ack_percent: 0,
            crash_before_flag_percent: 0,
            lost_writes_percent: 0,
            disk_read_errors_ppm: 0,
            disk_write_errors_ppm: 0,
            disk_sync_errors_ppm: 0,
            disk_name_errors_ppm: 0,
            disk_full_percent: 0,
            reserve_bytes: 0,
            disk_slow_percent: 0,
            damage_percent: 0,
            image_percent: 0,
            lies_ppm: 0,
            harm_percent: 0,
            rot_ppm: 0,
            scrub_bytes_per_second: 0,
            scrub_rest_ms: 1,
            payload_memory_bytes: Config::default().payload_memory_bytes,
            retain_ms: 7 * 24 * 3_600_000,
            hints_bytes_max: Config::default().hints_bytes_max,
            hint_ttl_ms: Config::default().hint_ttl_ms,
            forget_after_ms: 24 * 3_600_000,
            archives: false,
            leap_mean_ms: 0,
            leap_hours_max: 1,
            wild_hours: 3,
            replay_ppm: 0,
            replay_us_max: 1,
            arrange_mean_ms: 0,
            revert_after_ms: 2_000,
            children_percent: 0,
            letters_percent: 0,
            purge_percent: 0,
            key_percent: 0,
            unique_percent: 0,
            group_percent: 0,
            session_percent: 0,
            watchers: 0,
            limit_percent: 0,
            ageing_percent: 0,
            rate_percent: 0,
            concurrency_percent: 0,
            transaction_percent: 0,
            across_percent: 0,
            key_concurrency_percent: 0,
            fair_percent: 0,
            forged_percent: 0,
            strobe_mean_ms: 0,
            crash_in_change_percent: 0,
            cut_in_change_percent: 0,
            spares: 0,
            change_mean_ms: 0,
            policy_mean_ms: 0,
            hold_mean_ms: 0,
            schedule_mean_ms: 0,
            holder_percent: 0,
            loss_mean_ms: 0,
            reserves: 0,
            return_percent: 0,
            exile_ttl_ms: Config::default().exile_ttl_ms,
            calm: false,
            mutant: None,
        }
    }

    /// Draws from a copy, so that the other knobs of a seed stay what they are.
    fn draw_turns(&mut self, random: &Random) {
        let mut copy = random.clone();
        copy.bits();
        let mut copy = copy.child();
        if copy.chance(1, 2) {
            self.gather_us_max = [200, 2_000, 20_000][copy.below(3) as usize];
        }
        self.enveloped = copy.chance(3, 4);
    }

    fn draw_hasty_voters(&mut self, random: &mut Random) {
        if random.chance(1, 3) {
            self.crash_after_vote_percent = random.between(5, 40);
            // Candidates meet if messages take as long as a candidate's patience.
            self.delay_us_max = self.heartbeat_ms * random.between(500, 2_000);
        }
    }

    fn draw_forgetting(&mut self, random: &mut Random) {
        self.retain_ms = [0, 500, 5_000][random.below(3) as usize];
        self.forget_after_ms = random.between(4_000, 15_000);
        self.archives = random.chance(1, 3);
        if random.chance(1, 2) {
            self.replay_ppm = rate(random, 50_000);
            self.replay_us_max = random.between(1_000_000, 60_000_000);
        }
    }

    /// Draws writes that are content with one disk, at nodes that hold no replica and often reach none.
    fn draw_absent_members(&mut self, random: &mut Random) {
        self.nodes = random.between(2, 6);
        self.replicas = self.replicas.min(self.nodes - 1).min(random.between(1, 3));
        self.strict_percent = random.between(0, 50);
        self.cut_mean_ms = random.between(500, 5_000);
        self.hints_bytes_max = [0, 2_000, 20_000, 1 << 20, 1 << 20][random.below(5) as usize];
        self.hint_ttl_ms = [1_000, 5_000, 24 * 3_600_000][random.below(3) as usize];
    }

    fn draw_copies(&mut self, random: &mut Random) {
        match random.below(8) {
            0 | 4 => self.image_percent = random.between(40, 100),
            1 => self.lies_ppm = random.between(50_000, 900_000),
            2 => self.harm_percent = random.between(5, 40),
            3 => self.rot_ppm = random.between(500, 20_000),
            _ => {}
        }
        // Facts that are lost do harm where few nodes have them, or where they were a promise of this very moment.
        if self.image_percent + self.lies_ppm > 0 {
            self.crash_mean_ms = random.between(1_000, 4_000);
            // From a copy, so that other runs stay what they are.
            let mut copy = random.clone().child();
            let kind = random.below(4);
            if kind != 1 && copy.chance(1, 3) {
                // The crash comes before any other message tells how far the log was.
                self.crash_after_ack_percent = copy.between(2, 20);
            }
            match kind {
                0 => {}
                1 => self.crash_after_vote_percent = random.between(20, 60),
                _ => {
                    self.crash_before_flag_percent = random.between(60, 90);
                    self.lost_writes_percent = random.between(30, 50);
                    self.strict_percent = 100;
                }
            }
        }
        if self.rot_ppm > 0 || random.chance(1, 3) {
            self.scrub_bytes_per_second = [50_000, 1_000_000][random.below(2) as usize];
            self.scrub_rest_ms = random.between(10, 3_000);
            // A pass brings back the bodies that one part of the state lacks.
            self.saved_bytes = self.saved_bytes.max(5_000);
        }
    }

    fn draw_disks(&mut self, random: &mut Random) {
        if random.chance(1, 4) {
            self.disk_read_errors_ppm = rate(random, 50_000);
            self.disk_write_errors_ppm = rate(random, 5_000);
            self.disk_sync_errors_ppm = rate(random, 5_000);
            self.disk_name_errors_ppm = rate(random, 50_000);
            self.disk_full_percent = mean(random, 1, 30);
            self.reserve_bytes = [0, 3_000, 30_000][random.clone().below(3) as usize];
            self.disk_slow_percent = mean(random, 1, 30);
        }
    }

    /// Whether data that was synced may be lost.
    pub fn loses_records(&self) -> bool {
        self.damage_percent + self.image_percent + self.lies_ppm + self.harm_percent + self.rot_ppm + self.loss_mean_ms
            > 0
    }

    /// Whether disks keep what was synced, and sync about as fast as usual.
    pub fn disks_are_sound(&self) -> bool {
        !self.loses_records() && !self.disks_fail() && self.disk_slow_percent == 0
    }

    fn disks_fail(&self) -> bool {
        let errors = [
            self.disk_read_errors_ppm,
            self.disk_write_errors_ppm,
            self.disk_sync_errors_ppm,
            self.disk_name_errors_ppm,
            self.disk_full_percent,
        ];
        errors.iter().any(|rate| *rate > 0)
    }

    fn draw_wild(&mut self, random: &mut Random) {
        match random.below(10) {
            0 => self.wild_wall_clock = true,
            1 => self.wild_monotonic = true,
            2..=4 => self.bad_jump_percent = random.between(20, 100),
            _ => {}
        }
        // The exclusion of claims must not rest on the detection of wrong clocks.
        self.clock_fencing = !self.wild_wall_clock && !self.wild_monotonic && random.chance(7, 8);
    }
}

fn draw_after_percent(random: &mut Random) -> u64 {
    if random.chance(1, 3) { random.between(5, 60) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_follow_from_the_seed_and_keep_the_core_s_bounds() {
        for seed in 0..500 {
            let draw = || Options::draw(&mut Random::new(seed), &Overrides::default());
            let options = draw();
            assert_eq!(options, draw());
            assert_eq!(options.config().validate(), Ok(()));
            assert!(options.replicas <= options.nodes - options.spares && options.partitions.is_power_of_two());
            assert!(!(options.wild_wall_clock && options.wild_monotonic));
        }
    }

    #[test]
    fn an_override_changes_that_knob_alone_and_shows_as_a_flag() {
        let overrides = Overrides { tasks: Some(7), wild_monotonic: Some(true), ..Overrides::default() };
        let plain = Options::draw(&mut Random::new(4), &Overrides::default());
        let options = Options::draw(&mut Random::new(4), &overrides);
        assert_eq!(options, Options { tasks: 7, wild_monotonic: true, ..plain });
        assert_eq!(overrides.flags(), " --tasks 7 --wild-monotonic true");
    }
}
