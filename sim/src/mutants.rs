//! Known bugs that can be put back, to see that the simulator catches them.

use crate::options::Overrides;
use norn_node::config::Mutant;

/// All of them, with their names.
pub const ALL: [(&str, Mutant); 24] = [
    ("vote-not-durable", Mutant::VoteNotDurable),
    ("grant-before-quorum", Mutant::GrantBeforeQuorum),
    ("merge-drops-update", Mutant::MergeDropsUpdate),
    ("drop-without-record", Mutant::DropWithoutRecord),
    ("renewal-shortens", Mutant::RenewalShortens),
    ("ack-before-durable", Mutant::AckBeforeDurable),
    ("vote-ignores-viewstamp", Mutant::VoteIgnoresViewstamp),
    ("done-flag-ignored", Mutant::DoneFlagIgnored),
    ("wall-clock-only", Mutant::WallClockOnly),
    ("flags-forgotten", Mutant::FlagsForgotten),
    ("leader-believed", Mutant::LeaderBelieved),
    ("fenced-leads", Mutant::FencedLeads),
    ("recovering-counts", Mutant::RecoveringCounts),
    ("holes-grant", Mutant::HolesGrant),
    ("wrong-place", Mutant::WrongPlace),
    ("forgets-by-majority", Mutant::ForgetsByMajority),
    ("archives-unasked", Mutant::ArchivesUnasked),
    ("floor-ignored", Mutant::FloorIgnored),
    ("half-level", Mutant::HalfLevel),
    ("hint-not-durable", Mutant::HintNotDurable),
    ("hint-gone-early", Mutant::HintGoneEarly),
    ("unanswered-counts", Mutant::UnansweredCounts),
    ("memory-forgotten", Mutant::MemoryForgotten),
    ("word-missing", Mutant::WordMissing),
];

/// The knobs with which a mutant is hunted: those given, and where it does harm in few runs, those that make such runs.
pub fn hunting(mutant: Mutant, knobs: &Overrides) -> Overrides {
    let (image, crash_after_ack, crash_mean) = match mutant {
        Mutant::WordMissing => (Some(90), Some(15), None),
        Mutant::MemoryForgotten => (Some(90), None, Some(1_000)),
        _ => (None, None, None),
    };
    Overrides {
        mutant: Some(mutant),
        image_percent: knobs.image_percent.or(image),
        crash_after_ack_percent: knobs.crash_after_ack_percent.or(crash_after_ack),
        crash_mean_ms: knobs.crash_mean_ms.or(crash_mean),
        ..knobs.clone()
    }
}

/// A mutant's name.
pub fn name(mutant: Mutant) -> &'static str {
    ALL.iter().find(|(_, other)| *other == mutant).expect("every mutant is listed").0
}

/// The mutant of this name.
pub fn parse(text: &str) -> Result<Mutant, String> {
    let found = ALL.iter().find(|(name, _)| *name == text);
    let names = || ALL.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    found.map(|(_, mutant)| *mutant).ok_or_else(|| format!("there are {}", names()))
}
