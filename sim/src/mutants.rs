//! Known bugs that can be put back, to see that the simulator catches them.

use crate::options::Overrides;
use norn_model::config::Mutant;

/// All bugs that the simulator catches within a thousand seeds, with their names.
pub const ALL: [(&str, Mutant); 110] = [
    ("vote-not-durable", Mutant::VoteNotDurable),
    ("grant-before-quorum", Mutant::GrantBeforeQuorum),
    ("merge-drops-update", Mutant::MergeDropsUpdate),
    ("logs-unread", Mutant::LogsUnread),
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
    ("orphans-unasked", Mutant::OrphansUnasked),
    ("floor-ignored", Mutant::FloorIgnored),
    ("half-level", Mutant::HalfLevel),
    ("hint-not-durable", Mutant::HintNotDurable),
    ("hint-gone-early", Mutant::HintGoneEarly),
    ("unanswered-counts", Mutant::UnansweredCounts),
    ("memory-forgotten", Mutant::MemoryForgotten),
    ("unsealed-counts", Mutant::UnsealedCounts),
    ("word-missing", Mutant::WordMissing),
    ("group-answers-early", Mutant::GroupAnswersEarly),
    ("turn-written-in-part", Mutant::TurnWrittenInPart),
    ("settles-unready", Mutant::SettlesUnready),
    ("versions-mixed", Mutant::VersionsMixed),
    ("clears-unheard", Mutant::ClearsUnheard),
    ("root-answers-at-once", Mutant::RootAnswersAtOnce),
    ("monotonic-only", Mutant::MonotonicOnly),
    ("reinstall-unanswered", Mutant::ReinstallUnanswered),
    ("leaves-early", Mutant::LeavesEarly),
    ("exile-merges", Mutant::ExileMerges),
    ("strays-drop", Mutant::StraysDrop),
    ("same-identity", Mutant::SameIdentity),
    ("counts-from-answer", Mutant::CountsFromAnswer),
    ("routes-asked-once", Mutant::RoutesAskedOnce),
    ("lease-unbounded", Mutant::LeaseUnbounded),
    ("lapsed-at-once", Mutant::LapsedAtOnce),
    ("seals-early", Mutant::SealsEarly),
    ("seals-superseded", Mutant::SealsSuperseded),
    ("rejected-brings", Mutant::RejectedBrings),
    ("letters-forgotten", Mutant::LettersForgotten),
    ("letters-minted", Mutant::LettersMinted),
    ("one-forgets", Mutant::OneForgets),
    ("turn-retaken", Mutant::TurnRetaken),
    ("keys-unknown", Mutant::KeysUnknown),
    ("ends-early", Mutant::EndsEarly),
    ("follows-once", Mutant::FollowsOnce),
    ("closes-early", Mutant::ClosesEarly),
    ("forgets-unasked", Mutant::ForgetsUnasked),
    ("schedule-id-drawn", Mutant::ScheduleIdDrawn),
    ("schedule-marked-early", Mutant::ScheduleMarkedEarly),
    ("moves-unheeded", Mutant::MovesUnheeded),
    ("acks-after-promise", Mutant::AcksAfterPromise),
    ("joint-new-side-only", Mutant::JointNewSideOnly),
    ("half-counts", Mutant::HalfCounts),
    ("stable-early", Mutant::StableEarly),
    ("no-joint", Mutant::NoJoint),
    ("state-from-others", Mutant::StateFromOthers),
    ("answers-inherited", Mutant::AnswersInherited),
    ("union-of-claims", Mutant::UnionOfClaims),
    ("switches-early", Mutant::SwitchesEarly),
    ("reverts-early", Mutant::RevertsEarly),
    ("unique-unasked", Mutant::UniqueUnasked),
    ("unique-unreserved", Mutant::UniqueUnreserved),
    ("unique-ended", Mutant::UniqueEnded),
    ("transaction-unasked", Mutant::TransactionUnasked),
    ("transaction-unlocked", Mutant::TransactionUnlocked),
    ("refusal-forgotten", Mutant::RefusalForgotten),
    ("decided-forgotten", Mutant::DecidedForgotten),
    ("vote-before-quorum", Mutant::VoteBeforeQuorum),
    ("vote-of-any-round", Mutant::VoteOfAnyRound),
    ("depends-unlocked", Mutant::DependsUnlocked),
    ("round-guessed", Mutant::RoundGuessed),
    ("decision-forgotten", Mutant::DecisionForgotten),
    ("outcome-unasked", Mutant::OutcomeUnasked),
    ("members-miscounted", Mutant::MembersMiscounted),
    ("joins-unheard", Mutant::JoinsUnheard),
    ("sessions-cut-short", Mutant::SessionsCutShort),
    ("age-ignored", Mutant::AgeIgnored),
    ("ages-forgotten", Mutant::AgesForgotten),
    ("ages-from-before", Mutant::AgesFromBefore),
    ("ages-replaced", Mutant::AgesReplaced),
    ("permits-reused", Mutant::PermitsReused),
    ("full-bucket", Mutant::FullBucket),
    ("level-forgotten", Mutant::LevelForgotten),
    ("quota-unasked", Mutant::QuotaUnasked),
    ("quota-unconfirmed", Mutant::QuotaUnconfirmed),
    ("keys-uncounted", Mutant::KeysUncounted),
    ("served-ignored", Mutant::ServedIgnored),
    ("unconfirmed-kept", Mutant::UnconfirmedKept),
    ("leave-unheeded", Mutant::LeaveUnheeded),
    ("lapses-unasked", Mutant::LapsesUnasked),
    ("watch-gap-unheeded", Mutant::WatchGapUnheeded),
    ("room-ignored", Mutant::RoomIgnored),
    ("paused-grants", Mutant::PausedGrants),
    ("wait-ignored", Mutant::WaitIgnored),
    ("heads-untold", Mutant::HeadsUntold),
    ("heads-of-turn-before", Mutant::HeadsOfTurnBefore),
    ("snapshot-revives", Mutant::SnapshotRevives),
    ("hello-shuts-out", Mutant::HelloShutsOut),
    ("ids-go-back", Mutant::IdsGoBack),
    ("purges-early", Mutant::PurgesEarly),
    ("purges-open", Mutant::PurgesOpen),
    ("wants-whole-room", Mutant::WantsWholeRoom),
];

/// Knobs for hunting a mutant: those given, and, where the mutant does harm in few runs, those that make such runs.
pub fn hunting(mutant: Mutant, knobs: &Overrides) -> Overrides {
    // Limits hold workers up, purged tasks disappear, and groups and sessions are work of their own: other bugs are hunted without
    // these.
    let unheld = Overrides { hold_mean_ms: Some(0), purge_percent: Some(0), ..Overrides::default() };
    let plain = Overrides {
        group_percent: Some(0),
        session_percent: Some(0),
        watchers: Some(0),
        ageing_percent: Some(0),
        rate_percent: Some(0),
        concurrency_percent: Some(0),
        transaction_percent: Some(0),
        across_percent: Some(0),
        key_concurrency_percent: Some(0),
        fair_percent: Some(0),
        ..unheld.clone()
    };
    let harmful = match mutant {
        Mutant::WordMissing => Overrides { image_percent: Some(90), crash_after_ack_percent: Some(15), ..plain },
        Mutant::FlagsForgotten => {
            Overrides { crash_before_flag_percent: Some(70), crash_mean_ms: Some(1_200), ..plain }
        }
        Mutant::HolesGrant => {
            Overrides { damage_percent: Some(60), lost_writes_percent: Some(50), crash_mean_ms: Some(1_500), ..plain }
        }
        Mutant::OrphansUnasked => Overrides {
            group_percent: Some(80),
            archives: Some(false),
            retain_ms: Some(0),
            forget_after_ms: Some(4_000),
            exchange_interval_ms: Some(30_000),
            ..unheld
        },
        // A replica loses operations from before what it forgot, and is saved before it has them again.
        Mutant::SnapshotRevives => Overrides {
            damage_percent: Some(60),
            crash_mean_ms: Some(1_500),
            retain_ms: Some(0),
            forget_after_ms: Some(3_000),
            compact_bytes: Some(20_000),
            nodes: Some(3),
            replicas: Some(3),
            partitions: Some(1),
            ..plain
        },
        Mutant::MemoryForgotten => {
            Overrides { image_percent: Some(90), crash_mean_ms: Some(1_000), policy_mean_ms: Some(0), ..plain }
        }
        Mutant::ArchivesUnasked => {
            Overrides { archives: Some(true), retain_ms: Some(500), exchange_interval_ms: Some(30_000), ..plain }
        }
        Mutant::RootAnswersAtOnce => Overrides {
            change_mean_ms: Some(300),
            spares: Some(2),
            nodes: Some(5),
            pause_mean_ms: Some(3_000),
            ..plain
        },
        Mutant::HelloShutsOut | Mutant::IdsGoBack => Overrides { wild_wall_clock: Some(true), ..plain },
        Mutant::MonotonicOnly => Overrides { wild_wall_clock: Some(false), wild_monotonic: Some(true), ..plain },
        Mutant::SameIdentity => Overrides {
            loss_mean_ms: Some(1_500),
            reserves: Some(2),
            crash_after_vote_percent: Some(40),
            lost_writes_percent: Some(40),
            ..plain
        },
        Mutant::ExileMerges => Overrides {
            loss_mean_ms: Some(3_000),
            reserves: Some(2),
            return_percent: Some(100),
            exile_ttl_ms: Some(1_000),
            retain_ms: Some(0),
            forget_after_ms: Some(4_000),
            ..plain
        },
        _ => hunting_in_cohorts(mutant, plain),
    };
    // The bug is planted whatever the knobs say: otherwise another one might be taken for it.
    Overrides { mutant: Some(mutant), ..knobs.or(&harmful) }
}

/// Knobs for bugs of elections and cohort changes.
fn hunting_in_cohorts(mutant: Mutant, plain: Overrides) -> Overrides {
    match mutant {
        Mutant::StraysDrop => Overrides {
            arrange_mean_ms: Some(500),
            revert_after_ms: Some(2_000),
            exile_ttl_ms: Some(1_000),
            strict_percent: Some(0),
            ..plain
        },
        Mutant::RevertsEarly => Overrides {
            arrange_mean_ms: Some(150),
            revert_after_ms: Some(5_000),
            cut_in_change_percent: Some(80),
            crash_mean_ms: Some(0),
            nodes: Some(5),
            replicas: Some(3),
            partitions: Some(4),
            ..plain
        },
        Mutant::SwitchesEarly => Overrides {
            arrange_mean_ms: Some(300),
            revert_after_ms: Some(1_000),
            crash_in_change_percent: Some(20),
            crash_mean_ms: Some(1_000),
            cut_mean_ms: Some(400),
            cut_ms_max: Some(600),
            nodes: Some(5),
            replicas: Some(3),
            partitions: Some(1),
            ..plain
        },
        Mutant::JointNewSideOnly | Mutant::StableEarly | Mutant::NoJoint => Overrides {
            arrange_mean_ms: Some(500),
            revert_after_ms: Some(2_000),
            crash_in_change_percent: Some(15),
            ..plain
        },
        // A leader is away for about as long as it takes to elect another.
        Mutant::AcksAfterPromise => Overrides {
            nodes: Some(3),
            replicas: Some(3),
            spares: Some(0),
            partitions: Some(1),
            heartbeat_ms: Some(20),
            election_timeout_ms: Some(70),
            delay_us_max: Some(60_000),
            cut_mean_ms: Some(250),
            cut_ms_max: Some(300),
            pause_mean_ms: Some(400),
            pause_ms_max: Some(300),
            crash_mean_ms: Some(0),
            arrange_mean_ms: Some(0),
            change_mean_ms: Some(0),
            ..plain
        },
        Mutant::HalfCounts => Overrides { nodes: Some(4), replicas: Some(4), ..plain },
        Mutant::SettlesUnready | Mutant::VersionsMixed | Mutant::ClearsUnheard | Mutant::LeavesEarly => {
            Overrides { arrange_mean_ms: Some(500), revert_after_ms: Some(2_000), ..plain }
        }
        _ => hunting_in_queues(mutant, plain),
    }
}

/// Knobs for bugs of what happens to tasks.
fn hunting_in_queues(mutant: Mutant, plain: Overrides) -> Overrides {
    match mutant {
        Mutant::ClosesEarly => Overrides { children_percent: Some(80), ..plain },
        Mutant::MovesUnheeded => Overrides {
            children_percent: Some(80),
            retain_ms: Some(0),
            forget_after_ms: Some(4_000),
            leap_mean_ms: Some(2_000),
            leap_hours_max: Some(100),
            nodes: Some(5),
            replicas: Some(1),
            arrange_mean_ms: Some(300),
            crash_mean_ms: Some(800),
            ..plain
        },
        Mutant::ForgetsUnasked => {
            Overrides { children_percent: Some(80), retain_ms: Some(0), forget_after_ms: Some(4_000), ..plain }
        }
        Mutant::UnsealedCounts => {
            Overrides { holder_percent: Some(100), forged_percent: Some(50), policy_mean_ms: Some(500), ..plain }
        }
        Mutant::SealsEarly | Mutant::SealsSuperseded => Overrides { holder_percent: Some(100), ..plain },
        Mutant::RejectedBrings => Overrides { holder_percent: Some(100), children_percent: Some(80), ..plain },
        Mutant::OneForgets => Overrides {
            queues: Some(1),
            after_percent: Some(60),
            exchange_interval_ms: Some(10_000),
            retain_ms: Some(500),
            forget_after_ms: Some(5_000),
            loss_ppm: Some(50_000),
            crash_mean_ms: Some(1_000),
            ..plain
        },
        Mutant::LettersForgotten => Overrides { letters_percent: Some(100), ..plain },
        Mutant::LettersMinted => Overrides { letters_percent: Some(100), crash_mean_ms: Some(800), ..plain },
        Mutant::LeaseUnbounded | Mutant::LapsedAtOnce => Overrides { policy_mean_ms: Some(500), ..plain },
        Mutant::ScheduleIdDrawn => Overrides { schedule_mean_ms: Some(1_000), ..plain },
        // The leader of the metadata group should hold no replica of many tasks.
        Mutant::ScheduleMarkedEarly => {
            Overrides { schedule_mean_ms: Some(1_000), nodes: Some(5), replicas: Some(3), ..plain }
        }
        _ => hunting_in_keys(mutant, plain),
    }
}

/// Knobs for bugs of tasks with keys.
fn hunting_in_keys(mutant: Mutant, plain: Overrides) -> Overrides {
    match mutant {
        Mutant::KeysUnknown => Overrides {
            key_percent: Some(80),
            queues: Some(1),
            exchange_interval_ms: Some(10_000),
            loss_ppm: Some(30_000),
            crash_mean_ms: Some(1_000),
            strict_percent: Some(0),
            ..plain
        },
        Mutant::UniqueUnasked | Mutant::UniqueUnreserved | Mutant::UniqueEnded => Overrides {
            key_percent: Some(80),
            unique_percent: Some(70),
            lost_writes_percent: Some(30),
            exchange_interval_ms: Some(5_000),
            batch_percent: Some(0),
            queues: Some(1),
            ..plain
        },
        // Workers renew when others already wait for the key.
        Mutant::TurnRetaken => Overrides {
            key_percent: Some(80),
            unique_percent: Some(0),
            queues: Some(1),
            workers: Some(8),
            wait_percent: Some(100),
            misbehave_percent: Some(80),
            lease_ms_min: Some(200),
            lease_ms_max: Some(400),
            delay_us_max: Some(60_000),
            spike_ppm: Some(100_000),
            spike_us_max: Some(400_000),
            ..plain
        },
        _ => hunting_in_groups(mutant, plain),
    }
}

/// Knobs for bugs of groups, sessions and transactions.
fn hunting_in_groups(mutant: Mutant, plain: Overrides) -> Overrides {
    match mutant {
        Mutant::MembersMiscounted | Mutant::JoinsUnheard => {
            Overrides { group_percent: Some(60), children_percent: Some(60), batch_percent: Some(0), ..plain }
        }
        Mutant::SessionsCutShort => Overrides {
            session_percent: Some(90),
            crash_mean_ms: Some(1_000),
            wild_wall_clock: Some(false),
            wild_monotonic: Some(false),
            ..plain
        },
        Mutant::RefusalForgotten => Overrides {
            transaction_percent: Some(100),
            producers: Some(6),
            workers: Some(6),
            duplicate_ppm: Some(500_000),
            delay_us_max: Some(150_000),
            ..plain
        },
        Mutant::TransactionUnasked | Mutant::TransactionUnlocked => Overrides {
            transaction_percent: Some(100),
            lost_writes_percent: Some(30),
            crash_mean_ms: Some(1_000),
            exchange_interval_ms: Some(5_000),
            ..plain
        },
        // Two transactions overlook each other's changes only if no worker claims what they depend on.
        Mutant::DependsUnlocked => Overrides {
            transaction_percent: Some(100),
            across_percent: Some(100),
            producers: Some(8),
            workers: Some(1),
            crash_mean_ms: Some(3_000),
            cut_mean_ms: Some(0),
            delay_us_max: Some(200_000),
            ..plain
        },
        Mutant::VoteBeforeQuorum => Overrides {
            transaction_percent: Some(100),
            across_percent: Some(100),
            producers: Some(6),
            crash_mean_ms: Some(500),
            loss_ppm: Some(300_000),
            ..plain
        },
        Mutant::VoteOfAnyRound | Mutant::RoundGuessed | Mutant::DecisionForgotten | Mutant::OutcomeUnasked => {
            Overrides {
                transaction_percent: Some(100),
                across_percent: Some(100),
                producers: Some(6),
                crash_mean_ms: Some(1_000),
                delay_us_max: Some(100_000),
                ..plain
            }
        }
        Mutant::DecidedForgotten => Overrides {
            transaction_percent: Some(100),
            cancel_percent: Some(30),
            retain_ms: Some(200),
            forget_after_ms: Some(2_000),
            replicas: Some(2),
            crash_mean_ms: Some(1_000),
            cut_mean_ms: Some(1_000),
            cut_ms_max: Some(2_000),
            ..plain
        },
        _ => hunting_in_limits(mutant, plain),
    }
}

/// Knobs for bugs of the claim order and of limits on claims.
fn hunting_in_limits(mutant: Mutant, plain: Overrides) -> Overrides {
    match mutant {
        Mutant::AgeIgnored => {
            Overrides { ageing_percent: Some(100), queues: Some(1), workers: Some(2), policy_mean_ms: Some(0), ..plain }
        }
        // Leases are longer than what a restart may forget.
        Mutant::AgesForgotten | Mutant::AgesFromBefore | Mutant::AgesReplaced => Overrides {
            lease_ms_min: Some(8_000),
            lease_ms_max: Some(20_000),
            crash_mean_ms: Some(1_500),
            wild_monotonic: Some(false),
            ..plain
        },
        Mutant::PermitsReused => {
            Overrides { rate_percent: Some(100), queues: Some(1), wild_monotonic: Some(false), ..plain }
        }
        Mutant::FullBucket | Mutant::LevelForgotten => Overrides {
            rate_percent: Some(100),
            queues: Some(1),
            wild_monotonic: Some(false),
            workers: Some(6),
            tasks: Some(300),
            crash_mean_ms: Some(800),
            ..plain
        },
        Mutant::QuotaUnasked | Mutant::QuotaUnconfirmed => Overrides {
            concurrency_percent: Some(100),
            queues: Some(1),
            partitions: Some(8),
            workers: Some(6),
            ..plain
        },
        Mutant::KeysUncounted => Overrides {
            key_concurrency_percent: Some(100),
            key_percent: Some(80),
            queues: Some(1),
            workers: Some(6),
            policy_mean_ms: Some(0),
            ..plain
        },
        Mutant::ServedIgnored => Overrides {
            fair_percent: Some(100),
            key_percent: Some(60),
            queues: Some(1),
            partitions: Some(1),
            workers: Some(2),
            policy_mean_ms: Some(0),
            ..plain
        },
        Mutant::WatchGapUnheeded => Overrides { watchers: Some(2), crash_mean_ms: Some(800), ..plain },
        // There is a backlog, and grants come from where the work is known to be.
        Mutant::HeadsUntold => Overrides {
            calm: Some(true),
            limit_percent: Some(0),
            queues: Some(1),
            partitions: Some(8),
            workers: Some(2),
            tasks: Some(300),
            delay_percent: Some(0),
            after_percent: Some(0),
            key_percent: Some(0),
            cancel_percent: Some(0),
            ..plain
        },
        _ => hunting_in_policies(mutant, plain),
    }
}

/// Knobs for bugs of what a queue accepts and hands out.
fn hunting_in_policies(mutant: Mutant, plain: Overrides) -> Overrides {
    match mutant {
        Mutant::RoomIgnored => Overrides {
            calm: Some(true),
            limit_percent: Some(100),
            nodes: Some(3),
            replicas: Some(3),
            queues: Some(1),
            workers: Some(1),
            tasks: Some(300),
            ..plain
        },
        // Leases are longer than a client may take, and clients leave while they are answered.
        Mutant::UnconfirmedKept | Mutant::LeaveUnheeded => Overrides {
            leave_percent: Some(60),
            wait_percent: Some(50),
            lease_ms_min: Some(8_000),
            lease_ms_max: Some(20_000),
            workers: Some(6),
            tasks: Some(300),
            ..plain
        },
        // Leases are shorter, and nothing has gone wrong for a while when they begin: the node that knows of the grant is reachable.
        Mutant::LapsesUnasked => Overrides {
            crash_mean_ms: Some(15_000),
            cut_mean_ms: Some(15_000),
            pause_mean_ms: Some(0),
            blackout_mean_ms: Some(0),
            leap_mean_ms: Some(0),
            arrange_mean_ms: Some(0),
            change_mean_ms: Some(0),
            loss_mean_ms: Some(0),
            leave_percent: Some(60),
            wait_percent: Some(50),
            lease_ms_min: Some(200),
            lease_ms_max: Some(500),
            workers: Some(6),
            tasks: Some(300),
            ..plain
        },
        Mutant::PurgesEarly | Mutant::PurgesOpen => Overrides { purge_percent: Some(60), ..plain },
        Mutant::PausedGrants | Mutant::WaitIgnored => Overrides {
            hold_mean_ms: Some(500),
            queues: Some(1),
            after_percent: Some(40),
            cancel_percent: Some(20),
            ..plain
        },
        // Much has ended and been forgotten, and still fills the disks.
        Mutant::WantsWholeRoom => Overrides {
            disk_full_percent: Some(100),
            reserve_bytes: Some(8_000),
            compact_bytes: Some(1 << 30),
            segment_bytes: Some(20_000),
            saved_bytes: Some(50_000),
            retain_ms: Some(0),
            forget_after_ms: Some(4_000),
            partitions: Some(1),
            tasks: Some(300),
            safety_ms: Some(300_000),
            crash_mean_ms: Some(0),
            pause_mean_ms: Some(0),
            cut_mean_ms: Some(0),
            ..plain
        },
        _ => hunting_in_turns(mutant, plain),
    }
}

/// Knobs for bugs of several messages in one turn.
fn hunting_in_turns(mutant: Mutant, plain: Overrides) -> Overrides {
    match mutant {
        // A leader lacks work when it is asked for it, and it comes together with the last answer.
        Mutant::HeadsOfTurnBefore => Overrides {
            enveloped: Some(true),
            gather_us_max: Some(20_000),
            nodes: Some(3),
            replicas: Some(3),
            queues: Some(3),
            partitions: Some(2),
            loss_ppm: Some(20_000),
            delay_us_max: Some(30_000),
            cut_mean_ms: Some(4_000),
            cut_ms_max: Some(2_000),
            crash_mean_ms: Some(0),
            wait_percent: Some(0),
            strict_percent: Some(100),
            limit_percent: Some(0),
            delay_percent: Some(0),
            after_percent: Some(0),
            key_percent: Some(0),
            children_percent: Some(0),
            cancel_percent: Some(0),
            policy_mean_ms: Some(0),
            ..plain
        },
        _ => plain,
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
