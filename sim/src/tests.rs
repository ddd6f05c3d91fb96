//! Whole runs.

use crate::options::Overrides;
use crate::report::run;
use crate::trace::Keep;
use norn_model::config::Mutant;
use std::collections::BTreeMap;

fn small() -> Overrides {
    Overrides { tasks: Some(20), safety_ms: Some(5_000), ..Overrides::default() }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 1..4 {
        let [one, other] = [run(seed, &small(), Keep::All), run(seed, &small(), Keep::All)];
        assert!(one.trace_count > 100);
        assert_eq!(one.lines, other.lines, "seed {seed}");
        assert_eq!(one.trace_hash, other.trace_hash);
    }
    assert_ne!(run(1, &small(), Keep::Tail).trace_hash, run(2, &small(), Keep::Tail).trace_hash);
}

#[test]
fn every_property_holds_for_some_seeds() {
    for seed in 1..20 {
        let report = run(seed, &small(), Keep::Tail);
        assert_eq!(report.violation, None, "{}", report.headline());
    }
}

#[test]
fn a_planted_bug_is_caught_and_the_report_names_the_command_that_shows_it_again() {
    let knobs = Overrides { mutant: Some(Mutant::AckBeforeDurable), ..small() };
    let report = (1..100).map(|seed| run(seed, &knobs, Keep::Tail)).find(|report| report.violation.is_some());
    let report = report.expect("one of a hundred seeds catches it");
    let again = run(report.seed, &report.overrides, Keep::Tail);
    assert_eq!(report.violation, again.violation);
    let command =
        format!("cargo sim -- run {} --tasks 20 --safety-ms 5000 --mutant ack-before-durable --trace", report.seed);
    assert!(report.headline().contains(&command), "{}", report.headline());
}

/// A node whose wall clock is seconds wrong, and nothing else goes wrong: it is fenced, others lead, all work is done.
#[test]
fn a_wrong_clock_is_noticed_and_costs_nothing_but_leadership() {
    let knobs = Overrides {
        nodes: Some(3),
        bad_jump_percent: Some(100),
        jump_mean_ms: Some(1_000),
        clock_fencing: Some(true),
        wild_wall_clock: Some(false),
        wild_monotonic: Some(false),
        crash_mean_ms: Some(0),
        blackout_mean_ms: Some(0),
        pause_mean_ms: Some(0),
        cut_mean_ms: Some(0),
        loss_ppm: Some(0),
        spike_ppm: Some(0),
        ..small()
    };
    let mut fenced = 0;
    for seed in 1..6 {
        let report = run(seed, &knobs, Keep::Tail);
        assert_eq!(report.violation, None, "{}", report.headline());
        fenced += report.counters.get("sometimes: clock fenced").copied().unwrap_or(0);
    }
    assert!(fenced > 0, "no clock was found to be wrong");
}

/// Goal: where memory is scarce, logs of open tasks leave it, and workers that claim these tasks are shown the logs. Method: leases
/// run out often.
#[test]
fn logs_of_open_tasks_leave_memory_and_are_shown() {
    let knobs = Overrides { payload_memory_bytes: Some(0), ..small() };
    let mut shown = 0;
    for seed in 1..7 {
        let report = run(seed, &knobs, Keep::Tail);
        assert_eq!(report.violation, None, "{}", report.headline());
        shown += report.counters.get("sometimes: granted with a log out of memory").copied().unwrap_or(0);
    }
    assert!(shown > 0, "no log was out of memory");
}

/// Goal: nodes whose disks fail end, come back, and break no promise. Method: every kind of trouble at once, and often.
#[test]
fn disks_that_fail_cost_restarts_and_no_promise() {
    let knobs = Overrides {
        disk_read_errors_ppm: Some(50_000),
        disk_write_errors_ppm: Some(5_000),
        disk_sync_errors_ppm: Some(5_000),
        disk_name_errors_ppm: Some(50_000),
        disk_full_percent: Some(30),
        disk_slow_percent: Some(30),
        reserve_bytes: Some(3_000),
        ..small()
    };
    let mut seen = BTreeMap::new();
    for seed in 1..13 {
        let report = run(seed, &knobs, Keep::Tail);
        assert_eq!(report.violation, None, "{}", report.headline());
        for (name, count) in report.counters {
            *seen.entry(name).or_insert(0) += count;
        }
    }
    let of_room = ["little room on the disk", "room on the disk again"];
    for name in ["disk failed", "disk failed during a start", "slow disk noticed"].into_iter().chain(of_room) {
        assert!(seen.contains_key(&format!("sometimes: {name}")), "no {name}");
    }
    assert!(seen.contains_key("fault: slow disk"));
}
