//! Runs of the simulator under settings that a swarm rarely draws, as a smoke test; and runs without faults, or without correct
//! clocks.
//!
//! A seed is not a regression test for the bug that it once found: its run changes with every draw that is added. Such bugs have
//! scripted tests beside the code that contained them.

use norn_sim::{Keep, Overrides, run};

fn holds(seed: u64, overrides: &Overrides) {
    let report = run(seed, overrides, Keep::Tail);
    assert_eq!(report.violation, None, "{}\n{}", report.headline(), report.lines.join("\n"));
    assert!(report.trace_count > 100, "something happens in seed {seed}");
}

/// Members and cohorts change, and nodes crash during the steps of the changes.
fn changing() -> Overrides {
    Overrides {
        arrange_mean_ms: Some(400),
        change_mean_ms: Some(1_500),
        revert_after_ms: Some(2_000),
        spares: Some(2),
        crash_in_change_percent: Some(12),
        ..Overrides::default()
    }
}

#[test]
fn seeds_in_which_members_change_hold() {
    let wild = Overrides { wild_monotonic: Some(true), strobe_mean_ms: Some(3_000), ..changing() };
    let cut = Overrides { cut_mean_ms: Some(3_000), ..changing() };
    let exiles = Overrides { exile_ttl_ms: Some(1_000), strict_percent: Some(0), ..changing() };
    let lost = Overrides { loss_mean_ms: Some(3_000), reserves: Some(2), nodes: Some(5), ..changing() };
    for (seed, overrides) in [(515_000_034, wild), (536_000_486, cut), (89, exiles), (45_000_703, lost)] {
        holds(seed, &overrides);
    }
}

#[test]
fn seeds_with_bad_disks_and_late_messages_hold() {
    let rough = Overrides { loss_ppm: Some(100_000), crash_mean_ms: Some(1_000), ..Overrides::default() };
    let images = Overrides {
        image_percent: Some(60),
        crash_mean_ms: Some(300),
        quick_restart_percent: Some(100),
        crash_after_vote_percent: Some(60),
        ..Overrides::default()
    };
    let late = Overrides {
        replay_ppm: Some(500_000),
        replay_us_max: Some(30_000_000),
        spares: Some(2),
        change_mean_ms: Some(500),
        ..Overrides::default()
    };
    for (seed, overrides) in [(91, rough), (724, images), (71, late)] {
        holds(seed, &overrides);
    }
}

#[test]
fn seeds_with_all_kinds_of_work_hold() {
    let sealing = Overrides { holder_percent: Some(100), concurrency_percent: Some(90), ..Overrides::default() };
    let letters = Overrides { letters_percent: Some(100), ..Overrides::default() };
    let often = Overrides { schedule_mean_ms: Some(1_000), ..Overrides::default() };
    let forgetful = Overrides {
        retain_ms: Some(0),
        forget_after_ms: Some(4_000),
        children_percent: Some(80),
        ..Overrides::default()
    };
    let keys = Overrides { queues: Some(1), key_percent: Some(80), ..Overrides::default() };
    let groups = Overrides { group_percent: Some(100), misbehave_percent: Some(60), ..Overrides::default() };
    let policies = Overrides { policy_mean_ms: Some(500), ..Overrides::default() };
    let cases = [
        (1_030, sealing),
        (133, letters),
        (500_045, often),
        (40, forgetful),
        (18, keys),
        (236, groups),
        (853, policies),
        (206_121, Overrides { transaction_percent: Some(100), ..Overrides::default() }),
    ];
    for (seed, overrides) in cases {
        holds(seed, &overrides);
    }
}

/// Wall clocks that jump by hours together with monotonic clocks that run at half to double speed. Claims overlap in each of these
/// runs, but nothing else is wrong, and nodes report that their clocks are wrong.
#[test]
fn without_any_clock_claims_overlap_and_nothing_else_is_wrong() {
    let clockless = Overrides { wild_wall_clock: Some(true), wild_monotonic: Some(true), ..Overrides::default() };
    let changed = Overrides { nodes: Some(5), spares: Some(2), change_mean_ms: Some(1_500), ..clockless };
    for seed in [46_000_011, 46_000_043, 46_000_047, 46_000_063] {
        holds(seed, &changed);
    }
}

// S6, S34: bounds on how far nodes may deviate from the order of claiming
#[test]
fn without_faults_the_first_of_a_queue_is_the_next() {
    let mut granted = 0;
    for seed in 1..=10 {
        let report = run(seed, &Overrides { calm: Some(true), queues: Some(1), ..Overrides::default() }, Keep::Tail);
        assert_eq!(report.violation, None, "{}", report.headline());
        granted += report.counters.get("tasks granted").copied().unwrap_or_default();
    }
    assert!(granted > 500, "{granted} tasks were granted");
}

#[test]
fn without_faults_a_full_queue_takes_no_more() {
    for seed in 1..=5 {
        let full = Overrides {
            calm: Some(true),
            limit_percent: Some(100),
            queues: Some(1),
            workers: Some(1),
            tasks: Some(300),
            ..Overrides::default()
        };
        holds(seed, &full);
    }
}
