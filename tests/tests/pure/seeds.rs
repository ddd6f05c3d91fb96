//! The simulator as a library: it is deterministic, and seeds that once failed hold.
//!
//! This is a small part of what the simulator is for; `cargo sim -- swarm` does the rest.

use norn_sim::{Keep, Overrides, run};
use norn_tests::seeds::seldom;

fn holds(seed: u64) {
    holds_with(seed, &seldom());
}

fn holds_with(seed: u64, overrides: &Overrides) {
    let report = run(seed, overrides, Keep::Tail);
    assert_eq!(report.violation, None, "{}\n{}", report.headline(), report.lines.join("\n"));
    assert!(report.trace_count > 100, "something happens in seed {seed}");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let small = Overrides { tasks: Some(30), safety_ms: Some(6_000), ..seldom() };
    for seed in [7, 1_000_003] {
        let [one, other] = [run(seed, &small, Keep::All), run(seed, &small, Keep::All)];
        let differs = one.lines.iter().zip(&other.lines).position(|(one, other)| one != other);
        assert_eq!(differs, None, "seed {seed} differs from this line on");
        assert_eq!((one.lines.len(), one.trace_hash), (other.lines.len(), other.trace_hash), "seed {seed}");
        assert_eq!((one.counters, one.time_us), (other.counters, other.time_us), "seed {seed}");
    }
}

// Each of these seeds failed once, with the simulator of its day. Draws have changed since, so that they are ordinary
// seeds by now; they stay as the list of what has been wrong.

/// Claims that were given back counted as attempts, so that tasks died of them.
#[test]
fn seeds_of_released_claims_that_were_attempts() {
    [19, 77].into_iter().for_each(holds);
}

/// A grant picked the head of a queue that was out of date within the very step.
#[test]
fn seeds_of_stale_heads() {
    [28, 172].into_iter().for_each(holds);
}

/// A broker was given a grant back that another broker had recalled.
#[test]
fn seeds_of_recalled_grants() {
    [91, 393, 538].into_iter().for_each(holds);
}

/// A broker gave back a grant that it had only found again.
#[test]
fn seeds_of_grants_found_again() {
    [564, 3_828].into_iter().for_each(holds);
}

/// Acknowledgements of a follower that had fetched a whole table flagged none of the ended tasks in it.
#[test]
fn seeds_of_forgotten_flags() {
    [321].into_iter().for_each(holds);
}

/// A supposed leader that had stepped down was believed in for ever.
#[test]
fn seeds_of_leaders_believed_in_for_ever() {
    [301_012].into_iter().for_each(holds);
}

/// A table that came whole made tasks delayed, and no clock was set for them.
#[test]
fn seeds_of_delays_without_a_clock() {
    [602_498].into_iter().for_each(holds);
}

/// A repeated claim found its own claim of a task that had ended meanwhile, renewed it, and was answered "nothing".
#[test]
fn seeds_of_recalled_claims_of_ended_tasks() {
    [600_927].into_iter().for_each(holds);
}

/// Every restart pushed the time of ids further ahead, until a node refused all clients.
#[test]
fn seeds_of_time_pushed_ahead() {
    [24].into_iter().for_each(holds);
}

/// Facts that taught nothing made a task delayed after the wall clock went back, and no clock was set for it.
#[test]
fn seeds_of_wall_clocks_that_go_back() {
    [804_067, 804_977, 805_441].into_iter().for_each(holds);
}

/// Claims waited for a node that was heard by all and heard nobody.
#[test]
fn seeds_of_claims_that_wait_for_the_deaf() {
    [180].into_iter().for_each(holds);
}

/// Files in the middle of a log that are gone or swapped: several in a row, beside what no node ever says, and left there.
#[test]
fn seeds_of_lost_segments() {
    [154, 376, 393, 979].into_iter().for_each(holds);
}

/// A leader that told of heads which it did not grant woke its own waiting calls within one step, for ever.
#[test]
fn seeds_of_claims_that_wait_for_what_is_not_granted() {
    [41_006_622, 41_006_848].into_iter().for_each(holds);
}

/// A leader that had lost a task's record buried the task unarchived; a late question brought a tombstone back.
#[test]
fn seeds_of_what_is_buried() {
    [43_000_284, 44_002_322].into_iter().for_each(holds);
}

/// A last attempt failed at a leader that did not know that it was the last, and the task was granted once more.
#[test]
fn seeds_of_last_attempts() {
    [45_002_525].into_iter().for_each(holds);
}

/// A peer that was just started took the word of a process for one of an earlier image that counts its start alike.
#[test]
fn seeds_of_images_that_count_alike() {
    [3_167].into_iter().for_each(holds);
}

/// A replica that had come to a node and was whole took losses of before it came for its own in the next start.
#[test]
fn seeds_of_losses_of_before_a_replica_came() {
    [32_001_498].into_iter().for_each(holds);
}

/// The seeds of clusters that an operator changes all the time.
fn holds_while_changed(seed: u64) {
    let changed = Overrides { change_mean_ms: Some(800), spares: Some(2), nodes: Some(5), ..seldom() };
    holds_with(seed, &changed);
}

/// A worker was told that its task was invalid, though the claim had run out and the task went on after its back-off.
#[test]
fn seeds_of_late_words_that_a_task_is_invalid() {
    holds_while_policies_change(21);
}

/// What a member lacks was noted although no roster named that any more, and the node refused its own snapshot.
#[test]
fn seeds_of_notes_for_nobody() {
    holds_while_policies_change(853);
}

fn holds_while_policies_change(seed: u64) {
    let set = Overrides { policy_mean_ms: Some(500), ..seldom() };
    holds_with(seed, &set);
}

/// A node that was to be added was told so by nobody, and waited for ever.
#[test]
fn seeds_of_additions_that_are_not_answered() {
    [20_016].into_iter().for_each(holds_while_changed);
}

/// A late answer gave a replica that had left its partition the table of long before.
#[test]
fn seeds_of_late_tables_of_partitions_that_were_left() {
    [30_000_683].into_iter().for_each(holds_while_changed);
}

/// What a leader pulled and did not take it asked for again at once, for ever.
#[test]
fn seeds_of_pulls_without_end() {
    [30_000_176].into_iter().for_each(holds_while_changed);
}

/// The root was left with two voters, as those that should have come in place of one that left were not heard, and a disk of
/// the two lost a part of it.
#[test]
fn seeds_of_roots_with_too_few_voters() {
    [20_398].into_iter().for_each(holds_while_changed);
}

/// A node that is too old to know of the root was made to vote in it again and again, and never left it.
#[test]
fn seeds_of_old_nodes_that_were_to_vote_in_the_root() {
    [20_301].into_iter().for_each(holds_while_changed);
}

/// An exile that was away for longer than anybody waits dropped what it alone had when it heard that it is out.
#[test]
fn seeds_of_exiles_that_came_too_late() {
    [32_010_350, 32_011_017].into_iter().for_each(holds);
}

/// An exile that came too late, whose link to the leader was not up yet, took that for a program that knows no way back, and
/// dropped what it had, as it did where that was so.
#[test]
fn seeds_of_exiles_that_came_too_late_for_an_old_leader() {
    let arranged = Overrides {
        strict_percent: Some(0),
        arrange_mean_ms: Some(500),
        revert_after_ms: Some(2_000),
        exile_ttl_ms: Some(1_000),
        ..seldom()
    };
    assert_eq!(run(89, &arranged, Keep::Tail).violation, None);
    let changed = Overrides {
        nodes: Some(5),
        spares: Some(2),
        strict_percent: Some(10),
        change_mean_ms: Some(1_000),
        exile_ttl_ms: Some(1_000),
        ..seldom()
    };
    assert_eq!(run(47_001_135, &changed, Keep::Tail).violation, None);
}

/// An exile that came too late was not taken for one again as long as another exile was dead.
#[test]
fn seeds_of_exiles_beside_dead_ones() {
    holds_while_policies_change(85);
}

/// A repeated claim found its own claim of a task whose spec was lost, and was answered with nothing.
#[test]
fn seeds_of_recalled_claims_of_lost_tasks() {
    [32_010_458].into_iter().for_each(holds);
}

/// A node on an earlier image, of which nobody remembered anything, was sent the difference to a table that it does not hold.
#[test]
fn seeds_of_tables_that_are_not_held() {
    [32_011_419].into_iter().for_each(holds);
}

/// How a task ended that was forgotten only its leader told, to which one way no message came.
#[test]
fn seeds_of_forgotten_ends_behind_a_cut_link() {
    let overrides = Overrides { after_percent: Some(60), ..seldom() };
    assert_eq!(run(5_153, &overrides, Keep::Tail).violation, None);
}

/// How many had a sealed completion on disk was counted before the cohort became smaller, and told behind it.
#[test]
fn seeds_of_a_seal_that_was_counted_too_early() {
    let sealing = Overrides { holder_percent: Some(100), nodes: Some(5), spares: Some(2), ..seldom() };
    let changed = Overrides { change_mean_ms: Some(1_500), ..sealing };
    assert_eq!(run(51_000_123, &changed, Keep::Tail).violation, None);
}

/// A call about a completion that was sealed by another call was answered before the ending of the task was committed.
#[test]
fn seeds_of_a_seal_that_was_told_to_the_second_call() {
    [7, 31].into_iter().for_each(holds);
}

/// A replica that is heard and cannot be told anything was taken for one with an old program, and nothing was sealed.
#[test]
fn seeds_of_seals_that_waited_for_the_deaf() {
    let sealing = Overrides { holder_percent: Some(100), ..seldom() };
    for seed in [229, 1_204] {
        assert_eq!(run(seed, &sealing, Keep::Tail).violation, None, "seed {seed}");
    }
}

/// The only member of a cluster, which nobody can answer, was joined by another, and its next start on the same log was taken
/// for one on a shorter log: by the simulator alone.
#[test]
fn seeds_of_a_log_that_was_whole_for_want_of_peers() {
    let arranged = Overrides { arrange_mean_ms: Some(500), revert_after_ms: Some(2_000), ..seldom() };
    assert_eq!(run(42_002_000, &arranged, Keep::Tail).violation, None);
}

/// Wall clocks that jump by hours and monotonic ones that run at half to double speed, at once: claims overlap in each of
/// these, which is all that is wrong, and nodes say that their clocks are.
#[test]
fn without_any_clock_claims_overlap_and_nothing_else_is_wrong() {
    let clockless = Overrides { wild_wall_clock: Some(true), wild_monotonic: Some(true), ..seldom() };
    let changed = Overrides { nodes: Some(5), spares: Some(2), change_mean_ms: Some(1_500), ..clockless };
    for seed in [46_000_011, 46_000_043, 46_000_047, 46_000_063] {
        holds_with(seed, &changed);
    }
}

/// A machine that came in for a lost one after healing had an old program for ever, and could be told of no dependencies:
/// the simulator was wrong, as it upgraded every node but one that never was there before.
#[test]
fn seeds_of_a_newcomer_that_nobody_upgraded() {
    let lost = Overrides { loss_mean_ms: Some(3_000), reserves: Some(2), spares: Some(1), ..seldom() };
    let changed = Overrides { nodes: Some(5), change_mean_ms: Some(4_000), ..lost };
    assert_eq!(run(45_000_703, &changed, Keep::Tail).violation, None);
}

/// An operator had a task redriven while its leader wrote the letter. Both stood under one key, and of two replicas that had one
/// each, merging kept the letter: the copy that the operator was told of was gone.
#[test]
fn seed_of_a_redrive_beside_a_letter() {
    let letters = Overrides { letters_percent: Some(100), old_percent: Some(0), ..seldom() };
    assert_eq!(run(133, &letters, Keep::Tail).violation, None);
}

/// A start found its disk full. What it had written by then made the log longer, and did not say yet that no start had been
/// answered since: so an earlier image of the log could have grown until it looked whole.
#[test]
fn seed_of_a_start_of_which_the_disk_took_a_part() {
    let rough = Overrides { loss_ppm: Some(100_000), crash_mean_ms: Some(1_000), ..seldom() };
    let moved = Overrides { arrange_mean_ms: Some(500), revert_after_ms: Some(2_000), ..rough };
    assert_eq!(run(91, &moved, Keep::Tail).violation, None);
}

/// Schedules that caught up had more work for the workers than the simulator waited for.
#[test]
fn seeds_of_schedules_with_much_to_catch_up() {
    let often = Overrides { schedule_mean_ms: Some(1_000), ..seldom() };
    for seed in [500_045, 600_076] {
        holds_with(seed, &often);
    }
}

/// A schedule that was set late stood for ever after all had been removed, and the run had no end.
#[test]
fn seed_of_a_schedule_that_is_set_late() {
    let forgetful = Overrides { retain_ms: Some(0), forget_after_ms: Some(4_000), old_percent: Some(0), ..seldom() };
    let report = run(40, &Overrides { children_percent: Some(80), ..forgetful }, Keep::Tail);
    assert_eq!(report.violation, None, "{}", report.headline());
}

/// A task for which another one waited had missed one replica, which led later and had forgotten younger ones: its word alone
/// made the waiting task go on.
#[test]
fn seed_of_a_task_that_one_replica_took_for_forgotten() {
    let rough = Overrides { loss_ppm: Some(50_000), crash_mean_ms: Some(1_000), ..seldom() };
    let rough = Overrides { exchange_interval_ms: Some(10_000), ..rough };
    let report = run(18, &Overrides { queues: Some(1), key_percent: Some(80), ..rough }, Keep::Tail);
    assert_eq!(report.violation, None, "{}", report.headline());
}

/// The lease of a task with a key ran out, it was the turn of another one, and then the first one's holder prolonged its claim.
#[test]
fn seed_of_a_turn_that_was_taken_back() {
    let many = Overrides { after_percent: Some(40), children_percent: Some(40), letters_percent: Some(60), ..seldom() };
    let report = run(174_000_148, &Overrides { old_percent: Some(0), key_percent: Some(50), ..many }, Keep::Tail);
    assert_eq!(report.violation, None, "{}", report.headline());
}

/// A completion that brings a task moved to another node, which had said before that it knows of none, and its old holder said so
/// after it had left: the task was too old when it came to be enqueued.
#[test]
fn seed_of_a_completion_that_moved_while_all_were_asked() {
    let moving = Overrides { change_mean_ms: Some(300), spares: Some(3), nodes: Some(5), ..seldom() };
    let moving = Overrides { crash_mean_ms: Some(800), strobe_mean_ms: Some(3_000), ..moving };
    let report = run(182_005_097, &Overrides { crash_in_change_percent: Some(12), ..moving }, Keep::Tail);
    assert_eq!(report.violation, None, "{}", report.headline());
}

/// Members and cohorts change, and nodes crash at the steps of that.
fn changing() -> Overrides {
    let changing = Overrides { arrange_mean_ms: Some(400), change_mean_ms: Some(1_500), ..seldom() };
    let changing = Overrides { revert_after_ms: Some(2_000), spares: Some(2), ..changing };
    Overrides { crash_in_change_percent: Some(12), ..changing }
}

/// The only member of a cohort had what it was handed before the keeper knew of that cohort, and was never asked again; and what
/// an old member could not read was not offered again once it was upgraded.
#[test]
fn seeds_of_hints_that_nobody_let_go() {
    let wild = Overrides { wild_monotonic: Some(true), strobe_mean_ms: Some(3_000), ..changing() };
    let old = Overrides { old_percent: Some(40), cut_mean_ms: Some(3_000), ..changing() };
    for (seed, overrides) in [(515_000_034, wild), (536_000_486, old)] {
        holds_with(seed, &overrides);
    }
}

/// A task was lost with its machine while it was claimed. As its key was not known, and not what was to follow the end of its
/// lease either, tasks with keys were not granted any more.
#[test]
fn seed_of_a_key_that_a_lost_task_kept() {
    let report =
        run(516_000_051, &Overrides { old_percent: Some(40), cut_mean_ms: Some(3_000), ..changing() }, Keep::Tail);
    assert_eq!(report.violation, None, "{}", report.headline());
}

/// A leader that had been told nothing yet said that it keeps to the one claim that it inherited, was told so, and then said that it
/// keeps to none: the limit's home gave that claim to another partition while it was held.
#[test]
fn seed_of_a_quota_that_was_given_away_while_held() {
    holds(426);
}

/// A schedule that was set through a node that crashed before it could answer stood after all had been removed.
#[test]
fn seed_of_a_schedule_that_nobody_answered_for() {
    let report =
        run(536_000_351, &Overrides { old_percent: Some(40), cut_mean_ms: Some(3_000), ..changing() }, Keep::Tail);
    assert_eq!(report.violation, None, "{}", report.headline());
}

/// A letter was still to be written; a member had kept for others what it is asked for now; a cluster with one node has nobody
/// to compare its clock with; what a damaged log of an old node may have lost is anything; tasks of which nobody knows what they
/// were are kept for longer where tasks are archived; a change of a cohort is on the one disk that it takes before anybody says so; and
/// what a node has kept for others and handed over is no copy of what its disk has lost.
#[test]
fn seeds_that_the_properties_of_changing_cohorts_were_wrong_about() {
    let strobes = Overrides { strobe_mean_ms: Some(3_000), ..changing() };
    let wild = Overrides { wild_monotonic: Some(true), ..changing() };
    let leaping =
        Overrides { leap_mean_ms: Some(2_000), leap_hours_max: Some(100), arrange_mean_ms: Some(300), ..seldom() };
    let leaping = Overrides { retain_ms: Some(0), forget_after_ms: Some(4_000), children_percent: Some(80), ..leaping };
    let leaping = Overrides { nodes: Some(5), replicas: Some(1), old_percent: Some(0), ..leaping };
    let stormy = Overrides { crash_mean_ms: Some(1_000), cut_mean_ms: Some(400), cut_ms_max: Some(600), ..seldom() };
    let stormy = Overrides { nodes: Some(5), replicas: Some(3), partitions: Some(1), ..stormy };
    let stormy = Overrides { arrange_mean_ms: Some(300), revert_after_ms: Some(1_000), ..stormy };
    let cases = [
        (640, Overrides { crash_in_change_percent: Some(20), ..stormy }),
        (501_001_093, Overrides { crash_mean_ms: Some(3_000), ..strobes.clone() }),
        (273, Overrides { crash_mean_ms: Some(800), ..leaping }),
        (507_000_144, Overrides { wild_wall_clock: Some(true), ..wild.clone() }),
        (505_000_190, Overrides { strobe_mean_ms: Some(3_000), ..wild }),
        (526_000_567, Overrides { old_percent: Some(40), cut_mean_ms: Some(3_000), ..changing() }),
        (522_000_455, Overrides { nodes: Some(5), pause_mean_ms: Some(3_000), cut_mean_ms: Some(2_500), ..changing() }),
        (502_000_771, Overrides { nodes: Some(5), pause_mean_ms: Some(3_000), cut_mean_ms: Some(2_500), ..changing() }),
    ];
    for (seed, overrides) in cases {
        holds_with(seed, &overrides);
    }
}

// S6, S34: how far the order of claiming may be off between nodes
#[test]
fn without_faults_the_first_of_a_queue_is_the_next() {
    let mut granted = 0;
    for seed in 1..=10 {
        let report = run(seed, &Overrides { calm: Some(true), queues: Some(1), ..seldom() }, Keep::Tail);
        assert_eq!(report.violation, None, "{}", report.headline());
        granted += report.counters.get("tasks granted").copied().unwrap_or_default();
    }
    assert!(granted > 500, "{granted} tasks were granted");
}

#[test]
fn without_faults_a_full_queue_takes_no_more() {
    for seed in 1..=5 {
        let (calm, one) = (Some(true), Some(1));
        let full =
            Overrides { calm, limit_percent: Some(100), queues: one, workers: one, tasks: Some(300), ..seldom() };
        holds_with(seed, &full);
    }
}

/// A task that a transaction is to delete ended otherwise, and was forgotten, before that was made: it never was then.
#[test]
fn seeds_of_transactions_about_forgotten_tasks() {
    [102_781].into_iter().for_each(holds);
}

/// A node came back with an image of before its start just when its peer was started, which had heard a promise of the later start and
/// no heartbeat: it took the image's for the latest one.
#[test]
fn seeds_of_images_among_peers_that_have_just_started() {
    [487].into_iter().for_each(holds);
}

/// Two nodes passed one transaction on: what was told to be refused was made by the later copy.
#[test]
fn seeds_of_transactions_that_were_refused_and_made() {
    [206_121, 208_117].into_iter().for_each(holds);
}

/// A follower that had lost the body of a task answered for its partition without a word of it.
#[test]
fn seeds_of_followers_that_lost_a_body() {
    [209_646].into_iter().for_each(holds);
}

/// A client stayed with a node that was cut off from the others, as every other endpoint had failed once.
#[test]
fn seeds_of_clients_that_stay_with_a_node_that_is_cut_off() {
    [106_734].into_iter().for_each(holds);
}

/// A disk lost the change by which a cohort of two grew again, and the node took that for a loss that nobody can heal.
#[test]
fn seeds_of_cohorts_that_have_grown_since() {
    [109_600].into_iter().for_each(holds);
}

/// A claim was sealed after its lease ran out: it counted again where claims are limited, and what was shown had no room.
#[test]
fn seeds_of_late_seals_where_claims_are_limited() {
    let (holder_percent, concurrency_percent, policy_mean_ms) = (Some(100), Some(90), Some(500));
    let overrides = Overrides { holder_percent, concurrency_percent, policy_mean_ms, ..Overrides::default() };
    for seed in [1_030, 1_044, 1_382, 1_434, 1_683] {
        holds_with(seed, &overrides);
    }
}

/// Schedules of which nobody tells, as a member is out that nobody heard since it was upgraded; a task that was kept for others on
/// a disk that lost what it had of it as a replica; a group whose members were refused, as its id was from the future; a member of a
/// group that only a node which was away had; and late tombstones, which came back and swallowed what came behind them.
#[test]
fn seeds_of_what_the_simulator_took_for_a_failure() {
    [300_171, 302_962, 309_301, 408_605, 507_629].into_iter().for_each(holds);
    let (replay_ppm, replay_us_max) = (Some(500_000), Some(30_000_000));
    let late =
        Overrides { replay_ppm, replay_us_max, spares: Some(2), change_mean_ms: Some(500), ..Overrides::default() };
    let report = run(71, &late, Keep::Tail);
    assert_eq!(report.violation, None, "{}", report.headline());
}

/// A node that was just back led, and buried members of a group of which it did not know that they are some. The others did.
#[test]
fn seeds_of_tasks_of_which_a_leader_lacks_the_spec() {
    let report = run(335, &Overrides { group_percent: Some(80), ..Overrides::default() }, Keep::Tail);
    assert_eq!(report.violation, None, "{}", report.headline());
}

/// A late question of a deposed leader raised a quota for nobody, and the queue stood still.
#[test]
fn seeds_of_quotas_that_nobody_has() {
    let (replay_ppm, replay_us_max, spares) = (Some(500_000), Some(30_000_000), Some(2));
    let late = Overrides { replay_ppm, replay_us_max, spares, group_percent: Some(0), ..Overrides::default() };
    let (arrange_mean_ms, revert_after_ms) = (Some(500), Some(2_000));
    let calm = Overrides { crash_mean_ms: Some(0), pause_mean_ms: Some(0), cut_mean_ms: Some(0), ..late };
    let report = run(175, &Overrides { arrange_mean_ms, revert_after_ms, ..calm }, Keep::Tail);
    assert_eq!(report.violation, None, "{}", report.headline());
}

/// An image of before the same start: a vote of that start told a peer of more than the image has, without the number that was drawn
/// for it, as the link was one of an older program.
#[test]
fn seeds_of_images_behind_votes() {
    let (image_percent, crash_mean_ms, lost_writes_percent) = (Some(60), Some(300), Some(0));
    let (quick_restart_percent, crash_after_vote_percent) = (Some(100), Some(60));
    let images = Overrides { image_percent, crash_mean_ms, lost_writes_percent, ..Overrides::default() };
    let report = run(724, &Overrides { quick_restart_percent, crash_after_vote_percent, ..images }, Keep::Tail);
    assert_eq!(report.violation, None, "{}", report.headline());
}

/// A late table that builds on the one before came to a replica that was cleared meanwhile, and seemed to fit, as that stands where all
/// begin. It neither healed nor went.
#[test]
fn seeds_of_a_late_table_for_a_replica_that_was_cleared() {
    [403_386].into_iter().for_each(holds);
}

/// A start that died as it began a segment behind lost records left a file. The next one made the segment of it, and stopped as it
/// could not remove it.
#[test]
fn seeds_of_a_file_that_became_a_segment() {
    [710_647].into_iter().for_each(holds);
}

/// A member whose exile had ended while it was held at an old version came back with a seat that nobody knew. Its question was lost,
/// and it asked no more.
#[test]
fn seeds_of_a_seat_that_nobody_knows() {
    [717_686].into_iter().for_each(holds);
}

/// A letter was too old for what wild clocks had made of a floor; and a disk was replaced by an earlier image between an
/// acknowledgement and the answer, whose log told of a seat that had been left.
#[test]
fn seeds_that_excuses_were_missing_for() {
    [713_372, 719_076].into_iter().for_each(holds);
}

/// A node was away that the others knew as an older one: nobody could have schedules removed, which fired for hours.
#[test]
fn seeds_of_schedules_that_nobody_could_stop() {
    [720_558].into_iter().for_each(holds);
}

/// A disk had lost the header of its last segment by a lie, and then the record that says the same: it refuses to start.
#[test]
fn seeds_of_damage_where_a_disk_had_lied() {
    [741_430].into_iter().for_each(holds);
}

/// The one that had failed was cancelled for its own failure by a new leader of its group, which hid it; and one that few had was
/// counted as forgotten, rightly, before it was enqueued once more.
#[test]
fn seeds_of_members_that_fail_fast() {
    let groups = Overrides {
        crash_mean_ms: Some(400),
        misbehave_percent: Some(60),
        disk_full_percent: Some(0),
        damage_percent: Some(0),
        image_percent: Some(0),
        group_percent: Some(100),
        session_percent: Some(0),
        transaction_percent: Some(0),
        loss_mean_ms: Some(0),
        ..seldom()
    };
    [126, 236].into_iter().for_each(|seed| holds_with(seed, &groups));
}

/// A task was a tombstone when a snapshot had saved the tasks, and no more when it came to the tombstones: it was in neither.
#[test]
fn seeds_of_a_tombstone_that_was_in_no_snapshot() {
    [774_962].into_iter().for_each(holds);
}

/// A lease that was over for hours was renewed all the same, and counted as held meanwhile; and what may go slowly took too long.
#[test]
fn seeds_that_took_their_time() {
    [770_072, 771_518].into_iter().for_each(holds);
}

/// A task waits for one of a partition whose only member is away; and a letter that died itself was redriven.
#[test]
fn seeds_that_the_properties_were_wrong_about() {
    let moving = Overrides { arrange_mean_ms: Some(500), revert_after_ms: Some(2_000), ..seldom() };
    let waits = Overrides { strobe_mean_ms: Some(2_000), crash_in_change_percent: Some(15), ..moving };
    let redrives = Overrides { arrange_mean_ms: Some(300), image_percent: Some(50), spares: Some(2), ..seldom() };
    for (seed, overrides) in [(7_010, waits), (183_000_321, redrives)] {
        holds_with(seed, &overrides);
    }
}
