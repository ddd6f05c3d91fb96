//! The simulator as a library: it is deterministic, seeds that once failed hold, and known bugs are caught.
//!
//! This is a small part of what the simulator is for; `cargo sim -- swarm` and `cargo sim -- mutants` do the rest.

use norn_node::config::Mutant;
use norn_sim::{Keep, Overrides, Report, mutants, run};
use std::collections::BTreeSet;

/// What the nodes hold is checked seldom: these runs are made without optimisation.
fn seldom() -> Overrides {
    Overrides { check_every: Some(128), ..Overrides::default() }
}

fn holds(seed: u64) {
    let report = run(seed, &seldom(), Keep::Tail);
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

/// The seeds of clusters that an operator changes all the time.
fn holds_while_changed(seed: u64) {
    let changed = Overrides { change_mean_ms: Some(800), spares: Some(2), nodes: Some(5), ..seldom() };
    let report = run(seed, &changed, Keep::Tail);
    assert_eq!(report.violation, None, "{}\n{}", report.headline(), report.lines.join("\n"));
}

/// A node that was to be added was told so by nobody, and waited for ever.
#[test]
fn seeds_of_additions_that_are_not_answered() {
    [20_016].into_iter().for_each(holds_while_changed);
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

/// For each known bug a seed from which on it is caught within [`SEEDS_EACH`] seeds, found by `cargo sim -- mutants`.
/// Whoever changes what the simulator draws has to look for new ones.
const CAUGHT_FROM: [(Mutant, u64); 36] = [
    (Mutant::VoteNotDurable, 30),
    (Mutant::GrantBeforeQuorum, 2),
    (Mutant::MergeDropsUpdate, 2),
    (Mutant::DropWithoutRecord, 1),
    (Mutant::RenewalShortens, 2),
    (Mutant::AckBeforeDurable, 2),
    (Mutant::VoteIgnoresViewstamp, 94),
    (Mutant::DoneFlagIgnored, 2),
    (Mutant::WallClockOnly, 37),
    (Mutant::FlagsForgotten, 2),
    (Mutant::LeaderBelieved, 3),
    (Mutant::FencedLeads, 4),
    (Mutant::RecoveringCounts, 42),
    (Mutant::HolesGrant, 456),
    (Mutant::WrongPlace, 2),
    (Mutant::ForgetsByMajority, 2),
    (Mutant::ArchivesUnasked, 148),
    (Mutant::FloorIgnored, 3),
    (Mutant::HalfLevel, 6),
    (Mutant::HintNotDurable, 5),
    (Mutant::HintGoneEarly, 5),
    (Mutant::UnansweredCounts, 4),
    (Mutant::MemoryForgotten, 73),
    (Mutant::WordMissing, 7),
    (Mutant::SettlesUnready, 1),
    (Mutant::VersionsMixed, 730),
    (Mutant::ClearsUnheard, 52),
    (Mutant::FieldTooNew, 2),
    (Mutant::RootAnswersAtOnce, 10),
    (Mutant::MonotonicOnly, 2),
    (Mutant::ReinstallUnanswered, 2),
    (Mutant::LeavesEarly, 1),
    (Mutant::ExileMerges, 78),
    (Mutant::SameIdentity, 2),
    (Mutant::CountsFromAnswer, 2),
    (Mutant::RoutesAskedOnce, 585),
];
/// Seeds tried for each at most: a change of what a run draws moves the seeds a little, and that alone is no failure.
const SEEDS_EACH: u64 = 60;

fn catch(mutant: Mutant, from: u64) -> Option<Report> {
    let overrides = mutants::hunting(mutant, &seldom());
    (from..from + SEEDS_EACH).map(|seed| run(seed, &overrides, Keep::Tail)).find(|report| report.violation.is_some())
}

fn are_caught(mutants: &[(Mutant, u64)]) {
    for (mutant, from) in mutants {
        let caught = catch(*mutant, *from);
        assert!(caught.is_some(), "{mutant:?} survives {SEEDS_EACH} seeds from {from}: `cargo sim -- mutants`");
        let report = caught.expect("it is");
        // The very same run without the bug is right: it is the bug that was caught.
        let healthy = Overrides { mutant: None, ..mutants::hunting(*mutant, &seldom()) };
        let healthy = run(report.seed, &healthy, Keep::Tail);
        assert_eq!(healthy.violation, None, "{}", healthy.headline());
    }
}

#[test]
fn known_bugs_are_caught() {
    are_caught(&CAUGHT_FROM[..CAUGHT_FROM.len() / 2]);
}

#[test]
fn more_known_bugs_are_caught() {
    are_caught(&CAUGHT_FROM[CAUGHT_FROM.len() / 2..]);
}

#[test]
fn every_known_bug_is_accounted_for() {
    let all: BTreeSet<&str> = mutants::ALL.iter().map(|(name, _)| *name).collect();
    let known = CAUGHT_FROM.iter().map(|(mutant, _)| mutants::name(*mutant));
    assert_eq!(known.collect::<BTreeSet<_>>(), all);
    assert_eq!(all.len(), CAUGHT_FROM.len(), "none is named twice");
}
