//! The simulator catches bugs that are planted into the nodes.
//!
//! `cargo sim -- mutants` searches for all of them from the first seed on. Here the search for each begins at a seed where it is known
//! to be found.

use norn_model::config::Mutant;
use norn_sim::{Keep, Overrides, Report, mutants, run, run_until};
use std::collections::BTreeSet;

/// For each planted bug a seed from which it is caught within [`SEEDS_EACH`] seeds, found by `cargo sim -- mutants`. A change of what
/// the simulator draws requires a search for new ones.
const CAUGHT_FROM: [(Mutant, u64); 110] = [
    (Mutant::VoteNotDurable, 29),
    (Mutant::GrantBeforeQuorum, 2),
    (Mutant::MergeDropsUpdate, 2),
    (Mutant::LogsUnread, 2),
    (Mutant::DropWithoutRecord, 3),
    (Mutant::RenewalShortens, 6),
    (Mutant::AckBeforeDurable, 2),
    (Mutant::VoteIgnoresViewstamp, 20),
    (Mutant::DoneFlagIgnored, 1090),
    (Mutant::WallClockOnly, 54),
    (Mutant::FlagsForgotten, 81),
    (Mutant::LeaderBelieved, 54),
    (Mutant::FencedLeads, 14),
    (Mutant::RecoveringCounts, 30),
    (Mutant::HolesGrant, 3341),
    (Mutant::WrongPlace, 2),
    (Mutant::ForgetsByMajority, 4),
    (Mutant::OrphansUnasked, 145),
    (Mutant::FloorIgnored, 3),
    (Mutant::HalfLevel, 9),
    (Mutant::HintNotDurable, 5),
    (Mutant::HintGoneEarly, 5),
    (Mutant::UnansweredCounts, 16),
    (Mutant::MemoryForgotten, 156),
    (Mutant::UnsealedCounts, 8),
    (Mutant::WordMissing, 1114),
    (Mutant::GroupAnswersEarly, 2),
    (Mutant::TurnWrittenInPart, 2),
    (Mutant::SettlesUnready, 1005),
    (Mutant::ClearsUnheard, 9),
    (Mutant::RootAnswersAtOnce, 38),
    (Mutant::MonotonicOnly, 6),
    (Mutant::ReinstallUnanswered, 44),
    (Mutant::LeavesEarly, 69),
    (Mutant::ExileMerges, 89),
    (Mutant::StraysDrop, 80),
    (Mutant::SameIdentity, 6),
    (Mutant::CountsFromAnswer, 1019),
    (Mutant::LeaseUnbounded, 6),
    (Mutant::LapsedAtOnce, 8),
    (Mutant::SealsSuperseded, 1),
    (Mutant::RejectedBrings, 11),
    (Mutant::EndsEarly, 2),
    (Mutant::FollowsOnce, 77),
    (Mutant::ScheduleIdDrawn, 2),
    (Mutant::ScheduleMarkedEarly, 2),
    (Mutant::ClosesEarly, 9),
    (Mutant::ForgetsUnasked, 1006),
    (Mutant::LettersForgotten, 15),
    (Mutant::LettersMinted, 1),
    (Mutant::OneForgets, 10),
    (Mutant::HalfCounts, 3),
    (Mutant::StableEarly, 5),
    (Mutant::NoJoint, 1),
    (Mutant::AnswersInherited, 17),
    (Mutant::UnionOfClaims, 2),
    (Mutant::SwitchesEarly, 2),
    (Mutant::RevertsEarly, 116),
    (Mutant::UniqueUnasked, 1),
    (Mutant::UniqueUnreserved, 3234),
    (Mutant::UniqueEnded, 3),
    (Mutant::TransactionUnasked, 44),
    (Mutant::TransactionUnlocked, 22),
    (Mutant::RefusalForgotten, 81),
    (Mutant::DecidedForgotten, 44),
    (Mutant::VoteBeforeQuorum, 193),
    (Mutant::VoteOfAnyRound, 148),
    (Mutant::DependsUnlocked, 165),
    (Mutant::RoundGuessed, 30),
    (Mutant::DecisionForgotten, 1),
    (Mutant::OutcomeUnasked, 1),
    (Mutant::MembersMiscounted, 6),
    (Mutant::JoinsUnheard, 1001),
    (Mutant::SessionsCutShort, 56),
    (Mutant::AgeIgnored, 4),
    (Mutant::AgesForgotten, 1),
    (Mutant::AgesFromBefore, 1),
    (Mutant::AgesReplaced, 1),
    (Mutant::PermitsReused, 3),
    (Mutant::FullBucket, 14),
    (Mutant::LevelForgotten, 5),
    (Mutant::QuotaUnasked, 3),
    (Mutant::QuotaUnconfirmed, 8),
    (Mutant::KeysUncounted, 5),
    (Mutant::ServedIgnored, 2),
    (Mutant::UnconfirmedKept, 3),
    (Mutant::LeaveUnheeded, 3055),
    (Mutant::LapsesUnasked, 5),
    (Mutant::WatchGapUnheeded, 8),
    (Mutant::RoomIgnored, 2),
    (Mutant::PausedGrants, 9),
    (Mutant::WaitIgnored, 2),
    (Mutant::HeadsUntold, 2),
    (Mutant::HeadsOfTurnBefore, 85),
    (Mutant::SnapshotRevives, 410),
    (Mutant::HelloShutsOut, 4),
    (Mutant::IdsGoBack, 11),
    (Mutant::PurgesEarly, 5),
    (Mutant::PurgesOpen, 2),
    (Mutant::JointNewSideOnly, 66),
    (Mutant::KeysUnknown, 1),
    (Mutant::SealsEarly, 85),
    (Mutant::VersionsMixed, 66),
    (Mutant::RoutesAskedOnce, 27),
    (Mutant::MovesUnheeded, 178),
    (Mutant::ArchivesUnasked, 697),
    (Mutant::AcksAfterPromise, 37),
    (Mutant::StateFromOthers, 182),
    (Mutant::TurnRetaken, 49),
    (Mutant::WantsWholeRoom, 7),
];
/// Seeds tried for each bug at most. A change of what a run draws shifts the seeds a little, and that alone must not fail the test.
const SEEDS_EACH: u64 = 60;

/// Checks the nodes' state rarely: many seeds are tried, and these bugs show in what clients see. Nodes handle each message by itself,
/// as with peers of protocol version 3, unless the bug is about what is handled together, or about what a later version brought.
fn seldom(mutant: Mutant) -> Overrides {
    let across = matches!(
        mutant,
        Mutant::VoteBeforeQuorum
            | Mutant::VoteOfAnyRound
            | Mutant::DependsUnlocked
            | Mutant::RoundGuessed
            | Mutant::DecisionForgotten
            | Mutant::OutcomeUnasked
    );
    let turns = matches!(mutant, Mutant::GroupAnswersEarly | Mutant::TurnWrittenInPart | Mutant::HeadsOfTurnBefore);
    let together = across || turns;
    let (enveloped, gather_us_max) = (Some(together), (!together).then_some(0));
    Overrides { check_every: Some(128), enveloped, gather_us_max, ..Overrides::default() }
}

fn catch(mutant: Mutant, from: u64) -> Option<Report> {
    let overrides = mutants::hunting(mutant, &seldom(mutant));
    (from..from + SEEDS_EACH).map(|seed| run(seed, &overrides, Keep::Tail)).find(|report| report.violation.is_some())
}

fn are_caught<'a>(mutants: impl Iterator<Item = &'a (Mutant, u64)>) {
    for (mutant, from) in mutants {
        let caught = catch(*mutant, *from);
        assert!(caught.is_some(), "{mutant:?} survives {SEEDS_EACH} seeds from {from}: `cargo sim -- mutants`");
        let report = caught.expect("it is");
        // The same run without the bug has no violation up to that moment, so the violation comes from the bug.
        let healthy = Overrides { mutant: None, ..mutants::hunting(*mutant, &seldom(*mutant)) };
        let healthy = run_until(report.seed, &healthy, Keep::Tail, report.time_us);
        assert_eq!(healthy.violation, None, "{}", healthy.headline());
    }
}

/// Tests that each search for a part of the bugs, so that the parts run in parallel.
macro_rules! parts {
    ($($name:ident: $part:literal,)*) => {
        /// Each part starts at another bug and skips those of the others.
        const PARTS: [usize; [$($part),*].len()] = [$($part),*];

        $(#[test]
        fn $name() {
            are_caught(CAUGHT_FROM.iter().skip($part).step_by(PARTS.len()));
        })*
    };
}

parts! {
    known_bugs_are_caught_part_1: 0,
    known_bugs_are_caught_part_2: 1,
    known_bugs_are_caught_part_3: 2,
    known_bugs_are_caught_part_4: 3,
    known_bugs_are_caught_part_5: 4,
    known_bugs_are_caught_part_6: 5,
}

#[test]
fn every_known_bug_is_accounted_for() {
    let all: BTreeSet<&str> = mutants::ALL.iter().map(|(name, _)| *name).collect();
    let known: BTreeSet<&str> = CAUGHT_FROM.iter().map(|(mutant, _)| mutants::name(*mutant)).collect();
    assert_eq!(known, all);
    assert_eq!(all.len(), CAUGHT_FROM.len(), "none is named twice");
    assert!(PARTS.iter().enumerate().all(|(place, part)| place == *part), "no bug is left out: {PARTS:?}");
}
