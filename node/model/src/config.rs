//! Settings of the protocol core. The [`table`] has the defaults and bounds of all settings.

use norn_wire::QueueName;
use std::collections::BTreeMap;
use std::sync::Arc;

pub mod table;

/// Settings of the protocol core. All nodes of a cluster should agree on them; safety does not depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Interval of heartbeats between a pair of nodes.
    pub heartbeat_ms: u64,
    /// Silence after which a leader counts as lost; with three replicas, the next one campaigns within twice this time again.
    pub election_timeout_ms: u64,
    /// Time after which an unanswered replication message is sent again.
    pub resend_ms: u64,
    /// Time after which an unfinished request is answered `Unknown` or `Unavailable`.
    pub request_timeout_ms: u64,
    /// Interval of anti-entropy rounds.
    pub exchange_interval_ms: u64,
    /// Limit on the bytes per second that a node sends to repair other replicas.
    pub repair_bytes_per_second: u64,
    /// Limit on the tasks per second that a node sends to repair other replicas; comparing sixteen tasks counts as sending one.
    pub repair_items_per_second: u64,
    /// Interval at which parked claims ask all leaders again, and leaders ask about the dependencies of their tasks.
    pub sweep_interval_ms: u64,
    /// Bound on the difference of wall clocks that claims rely on.
    pub clock_epsilon_ms: u64,
    /// Bound on the rate error of monotonic clocks that claims rely on, in parts per million.
    pub clock_drift_ppm: u64,
    /// Whether a node with a wall clock far from a majority's gives up leading. Safety does not depend on it.
    pub clock_fencing: bool,
    /// Time for which a clock that was wrong must be right before it is relied on.
    pub clock_calm_ms: u64,
    /// Time for which a preferred leader must be up before another leader hands over to it.
    pub transfer_after_ms: u64,
    /// Bytes of payloads and headers of tasks, and of results and log entries of ended ones, that stay in memory; others are read
    /// back from the log.
    pub payload_memory_bytes: u64,
    /// Number of tasks at this node, waiting or ended, at which it refuses new ones.
    pub tasks_max: u64,
    /// Retention of finished tasks.
    pub retention: Arc<Retention>,
    /// Age of an id at which its task may be forgotten. Nothing may be enqueued under an id that is not above a forgotten one, so
    /// this must be longer than any write may be in flight.
    pub forget_after_ms: u64,
    /// Bytes of hints for members that are away; at the limit, hints that anti-entropy can make up for are dropped, then sloppy
    /// writes without any member are refused.
    pub hints_bytes_max: u64,
    /// Absence after which no further hints are kept for a member, and after which data that only this node has causes a warning.
    pub hint_ttl_ms: u64,
    /// Time without progress after which a change of a partition's cohort is given up.
    pub revert_after_ms: u64,
    /// Absence after which the cohort no longer waits for a removed replica. A replica that returns later still hands over what only
    /// it has.
    pub exile_ttl_ms: u64,
    /// Whether finished tasks are archived before they are buried.
    pub archives: bool,
    /// Newest protocol version offered to peers and clients.
    pub protocol_version_max: u8,
    /// A known bug to put back, to check that the simulation catches it.
    #[cfg(feature = "mutants")]
    pub mutant: Option<Mutant>,
}

/// Retention of finished tasks, by queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    /// Retention of all other queues.
    pub default_ms: u64,
    /// Retention of single queues.
    pub queues: BTreeMap<QueueName, u64>,
}

impl Default for Retention {
    fn default() -> Self {
        Retention { default_ms: 7 * 24 * 3_600_000, queues: BTreeMap::new() }
    }
}

impl Retention {
    /// Retention of a queue, or of a task whose queue is unknown.
    pub fn of(&self, queue: Option<&QueueName>) -> u64 {
        queue.and_then(|queue| self.queues.get(queue)).copied().unwrap_or(self.default_ms)
    }
}

/// Bugs that the simulator must catch.
#[cfg(feature = "mutants")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// A vote is answered before it is on disk.
    VoteNotDurable,
    /// A grant is answered once only the leader has it.
    GrantBeforeQuorum,
    /// Merging two logs keeps only one of them.
    MergeDropsUpdate,
    /// A grant omits log entries that are no longer in memory.
    LogsUnread,
    /// A claim is dropped without telling the followers how the task ended.
    DropWithoutRecord,
    /// A renewal sets the lease to the requested length, even if that is shorter.
    RenewalShortens,
    /// A write is acknowledged before it is on disk.
    AckBeforeDurable,
    /// A voter ignores whether the candidate's table is older than its own.
    VoteIgnoresViewstamp,
    /// A leader ignores the followers' done flags.
    DoneFlagIgnored,
    /// Claims expire by the wall clock alone.
    WallClockOnly,
    /// A follower flags ended tasks only where it saw the operation that granted them, not where their claims came with a whole table
    /// or from its own log.
    FlagsForgotten,
    /// A node believes in a supposed leader as long as it hears from it, even if it has restarted, stepped down or lost its quorum.
    LeaderBelieved,
    /// A node whose clock is known to be wrong continues to lead.
    FencedLeads,
    /// A replica with a damaged table votes and counts as before.
    RecoveringCounts,
    /// A leader counts replicas with incomplete facts toward the grant quorum.
    HolesGrant,
    /// A body is read back from the place of a neighbouring task, and not checked.
    WrongPlace,
    /// Tasks are forgotten when a majority has the tombstones, and for good when a majority has forgotten.
    ForgetsByMajority,
    /// A leader archives and buries what it knows itself, without asking the followers.
    ArchivesUnasked,
    /// A leader buries a task whose spec it lacks without asking whether other replicas have it.
    OrphansUnasked,
    /// Facts about tasks that may have been forgotten are accepted from any node.
    FloorIgnored,
    /// A hint is acknowledged before it is on disk.
    HintNotDurable,
    /// A hint is dropped when it is sent.
    HintGoneEarly,
    /// Where Merkle trees differ, only the first half of a node's children is compared.
    HalfLevel,
    /// A node does not wait for what peers remember of its log, and ignores it.
    UnansweredCounts,
    /// A peer's remembered log position is forgotten when its new start is heard.
    MemoryForgotten,
    /// A completion under a token that needs no seal counts in any mode of its queue.
    UnsealedCounts,
    /// A node learns of a peer's new start only from heartbeats, not from promises made in it.
    PromisesUnheard,
    /// A node ignores that peers heard of a later log position in its own start than it has reached.
    RivalUnnoticed,
    /// Acknowledgements of operations omit the durable log position.
    WordMissing,
    /// The end of a sync counts for what was handed to the log after the sync had begun.
    GroupAnswersEarly,
    /// Of the records of a turn with several events, the last operations are not written, and all count as written.
    TurnWrittenInPart,
    /// A change of a cohort completes before the next members have caught up.
    SettlesUnready,
    /// Answers of different versions of a cohort add up to a quorum.
    VersionsMixed,
    /// A replica that leaves a partition is cleared without being asked for what only it has.
    ClearsUnheard,
    /// The leader of the metadata group answers from its own state, committed or not, and whether or not it still leads.
    RootAnswersAtOnce,
    /// Claims expire by the monotonic clock alone.
    MonotonicOnly,
    /// A table that a replica has already is not acknowledged again.
    ReinstallUnanswered,
    /// A replica that leaves a partition drops its data as soon as it is dismissed.
    LeavesEarly,
    /// Facts are accepted from nodes that were dismissed or are no longer members.
    ExileMerges,
    /// A replica that was cleared unheard drops all its data when it learns of that.
    StraysDrop,
    /// A machine that returns with an empty disk keeps its node identity. The simulator's host does this.
    SameIdentity,
    /// A worker counts its lease from the time of the answer. The simulator's host does this.
    CountsFromAnswer,
    /// Cohorts that leaders advertise are asked for only once, whichever node advertises them.
    RoutesAskedOnce,
    /// A renewal grants the requested length even if the queue allows less.
    LeaseUnbounded,
    /// A task whose lease has expired does not wait for the queue's back-off.
    LapsedAtOnce,
    /// A seal becomes a fact before it is committed.
    SealsEarly,
    /// A former holder of a task can have its completion sealed as well.
    SealsSuperseded,
    /// The child tasks of a rejected completion are enqueued all the same.
    RejectedBrings,
    /// A dependency is reported as ended when it has not.
    EndsEarly,
    /// A leader asks about a task's dependencies only once.
    FollowsOnce,
    /// Child tasks of a completion count as handed over once they are sent.
    ClosesEarly,
    /// Tasks are forgotten regardless of completions whose child tasks are still to come.
    ForgetsUnasked,
    /// The claim of a dead task is dropped whether or not its dead-letter copy is written.
    LettersForgotten,
    /// A claim of a task with a key is renewed although another task of the key has had its turn.
    TurnRetaken,
    /// The answer of one replica suffices for a dependency to count as forgotten.
    OneForgets,
    /// A leader grants tasks with keys although it does not know all held tasks, and does not ask for them.
    KeysUnknown,
    /// Each write of a dead-letter copy uses a new id, regardless of existing copies.
    LettersMinted,
    /// A schedule's task gets a new id each time that it is enqueued.
    ScheduleIdDrawn,
    /// A schedule's firing is recorded before a majority has it.
    ScheduleMarkedEarly,
    /// A node's answer about the completions that it knows counts even if partitions have moved since.
    MovesUnheeded,
    /// A replica acknowledges operations of an epoch below its promise.
    AcksAfterPromise,
    /// While joint, a majority of the next members is enough.
    JointNewSideOnly,
    /// Half of the members is a majority.
    HalfCounts,
    /// The next members decide alone before the joint cohort is committed.
    StableEarly,
    /// The next members decide alone at once.
    NoJoint,
    /// A candidate has seen the tables of a majority, but voters vote for it regardless of their own tables.
    StateFromOthers,
    /// A leader answers from the inherited table before a majority has it.
    AnswersInherited,
    /// A candidate that takes over a newer table keeps its own claims beside those.
    UnionOfClaims,
    /// A leader changes the cohort by one member, without a joint cohort, before its installation is committed.
    SwitchesEarly,
    /// A leader reverts a change before its installation is committed.
    RevertsEarly,
    /// A replica with a damaged table counts again once it has a leader's installation.
    RegainsByInstall,
    /// A replica that has heard of a cohort without it does not ask whether it is dismissed.
    OutsideUnasked,
    /// A unique task is enqueued without asking whether there is one with its key.
    UniqueUnasked,
    /// A unique task is written before its leader has reserved it in a table that a majority has.
    UniqueUnreserved,
    /// A unique task counts as open if a single replica believes so, even if other replicas know that it has ended.
    UniqueEnded,
    /// A transaction is judged by the leader's knowledge alone, without asking other replicas.
    TransactionUnasked,
    /// Tasks that a transaction changes can be claimed, renewed and completed meanwhile.
    TransactionUnlocked,
    /// A transaction that was refused is judged anew when it is requested again.
    RefusalForgotten,
    /// A partition votes for its part of a transaction before a majority has that on disk.
    VoteBeforeQuorum,
    /// Votes of earlier rounds of a transaction count.
    VoteOfAnyRound,
    /// Tasks that a prepared part of a transaction depends on can be changed by others.
    DependsUnlocked,
    /// A coordinator answers that a round is given up in which it gathers votes.
    RoundGuessed,
    /// A coordinator forgets its decision before the other partitions have made their parts.
    DecisionForgotten,
    /// A partition with a prepared part does not ask for the outcome.
    OutcomeUnasked,
    /// Tasks of a decided transaction can be forgotten before it is carried out.
    DecidedForgotten,
    /// The end of a group's member counts for the next member as well.
    MembersMiscounted,
    /// A group does not wait for the groups that its members bring.
    JoinsUnheard,
    /// A session counts as ended once its leader is not heard from.
    SessionsCutShort,
    /// Tasks of a queue with ageing are claimed by priority alone.
    AgeIgnored,
    /// A restart forgets the ages of leases, and reports that to no node.
    AgesForgotten,
    /// A start takes leases to be as old as the last preceding record of its node's running time.
    AgesFromBefore,
    /// The table of a new leader resets the ages of all leases.
    AgesReplaced,
    /// A rate token is good for any number of claims.
    PermitsReused,
    /// A leader gives rate tokens at once, and from a full bucket, regardless of what earlier leaders have given.
    FullBucket,
    /// A leader begins with an empty bucket, regardless of rate tokens that time earned before it led.
    LevelForgotten,
    /// A snapshot is begun only where the free space is as large as the whole log. The log does this.
    WantsWholeRoom,
    /// The level of a bucket is written only where a client asks for rate tokens. A play catches it (`sim/src/rates.rs`), and no seed:
    /// only rate tokens that no client asked for are lost, and no written level is wrong.
    LevelsUnkept,
    /// A rate that is removed and set again begins with the rate tokens earned before.
    BurstAgain,
    /// The leader of a partition grants as many claims as the whole queue may have, without asking the coordinator partition.
    QuotaUnasked,
    /// A slot quota is lowered although its leader has not confirmed that it keeps to the lower one.
    QuotaUnconfirmed,
    /// A leader with nothing to give back of a slot quota does not repeat that, whatever the coordinator partition believes.
    QuotaLeaks,
    /// A leader allows twice as many held tasks of a key as configured.
    KeysUncounted,
    /// Where keys take turns, the served key is not recorded.
    ServedIgnored,
    /// Claims that a client does not confirm are not given back.
    UnconfirmedKept,
    /// What a client says about a claim call that it has left is not passed on to other nodes.
    LeaveUnheeded,
    /// An expired claim counts as an attempt, whether or not its client has confirmed it.
    LapsesUnasked,
    /// A watch continues as if complete where a node has not reported all events.
    WatchGapUnheeded,
    /// A full queue still accepts tasks.
    RoomIgnored,
    /// Tasks of a paused queue are granted.
    PausedGrants,
    /// A task that should wait where its dependency failed fails as well.
    WaitIgnored,
    /// Leaders do not advertise changes of their heads.
    HeadsUntold,
    /// A leader publishes heads only at the end of a turn, so its later events do not know of the work that came with its earlier ones.
    HeadsOfTurnBefore,
    /// A snapshot does not say which endings of its table are forgotten already.
    SnapshotRevives,
    /// A purged task is forgotten at once, at each replica independently.
    PurgesEarly,
    /// A task is purged whether or not it has ended.
    PurgesOpen,
    /// A node that lends no ids refuses the session, and with it all calls that need none.
    HelloShutsOut,
    /// Ids go back with the clock that was ahead when earlier ones were lent.
    IdsGoBack,
}

impl Default for Config {
    fn default() -> Self {
        Config::from_numbers(|name| table::number_of(name).default)
    }
}

/// A setting out of its bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {value}, allowed are {low} to {high}")]
pub struct ConfigError {
    /// Setting.
    pub name: &'static str,
    /// Its value.
    pub value: u64,
    /// Least.
    pub low: u64,
    /// Greatest.
    pub high: u64,
}

impl Config {
    /// Takes each number by its name in the [`table`]; settings that are not numbers get their defaults.
    pub fn from_numbers(number: impl Fn(&'static str) -> u64) -> Self {
        Config {
            heartbeat_ms: number("heartbeat_ms"),
            election_timeout_ms: number("election_timeout_ms"),
            resend_ms: number("resend_ms"),
            request_timeout_ms: number("request_timeout_ms"),
            exchange_interval_ms: number("exchange_interval_ms"),
            repair_bytes_per_second: number("repair_bytes_per_second"),
            repair_items_per_second: number("repair_items_per_second"),
            sweep_interval_ms: number("sweep_interval_ms"),
            clock_epsilon_ms: number("clock_epsilon_ms"),
            clock_drift_ppm: number("clock_drift_ppm"),
            clock_fencing: number("clock_fencing") == 1,
            clock_calm_ms: number("clock_calm_ms"),
            transfer_after_ms: number("transfer_after_ms"),
            payload_memory_bytes: number("payload_memory_bytes"),
            tasks_max: number("tasks_max"),
            retention: Arc::new(Retention::default()),
            forget_after_ms: number("forget_after_ms"),
            hints_bytes_max: number("hints_bytes_max"),
            hint_ttl_ms: number("hint_ttl_ms"),
            revert_after_ms: number("revert_after_ms"),
            exile_ttl_ms: number("exile_ttl_ms"),
            archives: false,
            protocol_version_max: u8::try_from(number("protocol_version_max")).unwrap_or(u8::MAX),
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }

    /// The numbers by their names in the [`table`].
    fn numbers(&self) -> [(&'static str, u64); 21] {
        [
            ("protocol_version_max", self.protocol_version_max.into()),
            ("heartbeat_ms", self.heartbeat_ms),
            ("election_timeout_ms", self.election_timeout_ms),
            ("resend_ms", self.resend_ms),
            ("request_timeout_ms", self.request_timeout_ms),
            ("exchange_interval_ms", self.exchange_interval_ms),
            ("repair_bytes_per_second", self.repair_bytes_per_second),
            ("repair_items_per_second", self.repair_items_per_second),
            ("sweep_interval_ms", self.sweep_interval_ms),
            ("clock_epsilon_ms", self.clock_epsilon_ms),
            ("clock_drift_ppm", self.clock_drift_ppm),
            ("clock_fencing", self.clock_fencing.into()),
            ("clock_calm_ms", self.clock_calm_ms),
            ("transfer_after_ms", self.transfer_after_ms),
            ("payload_memory_bytes", self.payload_memory_bytes),
            ("tasks_max", self.tasks_max),
            ("forget_after_ms", self.forget_after_ms),
            ("hints_bytes_max", self.hints_bytes_max),
            ("hint_ttl_ms", self.hint_ttl_ms),
            ("revert_after_ms", self.revert_after_ms),
            ("exile_ttl_ms", self.exile_ttl_ms),
        ]
    }

    /// Checks the bounds of the settings of the core, by the [`table`].
    pub fn validate(&self) -> Result<(), ConfigError> {
        let numbers = self.numbers();
        let value_of = |name: &str| numbers.iter().find(|(own, _)| *own == name).map_or(0, |(_, value)| *value);
        for (name, value) in numbers {
            let bounds = table::number_of(name).bounds(value_of);
            if !bounds.allow(value) {
                return Err(ConfigError { name, value, low: bounds.low, high: bounds.high });
            }
        }
        Ok(())
    }

    /// A duration on a clock that may run fast by the allowed drift: at least `ms` of true time.
    pub fn stretched_us(&self, ms: u64) -> u64 {
        ms.saturating_mul(1_000 + self.clock_drift_ppm.div_ceil(1_000)).saturating_add(1)
    }

    /// Whether the bug is put back. Always false in a build without test switches.
    #[cfg(feature = "mutants")]
    pub fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}

/// Whether a known bug is put back; constant false without the test switch.
#[cfg(feature = "mutants")]
#[macro_export]
macro_rules! mutant {
    ($config:expr, $name:ident) => {
        $config.has($crate::config::Mutant::$name)
    };
}

/// Whether a known bug is put back; constant false without the test switch.
#[cfg(not(feature = "mutants"))]
#[macro_export]
macro_rules! mutant {
    ($config:expr, $name:ident) => {{
        let _ = &$config;
        false
    }};
}
pub use crate::mutant;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_within_bounds_and_others_are_named() {
        assert_eq!(Config::default().validate(), Ok(()));
        let wrong = Config { election_timeout_ms: 60, ..Config::default() };
        assert_eq!(wrong.validate().unwrap_err().name, "election_timeout_ms");
    }

    /// Goal: no two fields are mixed up. Method: each number is different.
    #[test]
    fn numbers_have_the_names_of_their_fields() {
        let place = |name: &str| table::settings().position(|setting| setting.name == name).unwrap() as u64;
        for (name, value) in Config::from_numbers(place).numbers() {
            let is_switch = name == "clock_fencing";
            assert!(value == place(name) || is_switch, "{name}");
        }
    }

    // S47
    #[test]
    fn a_stretched_length_covers_the_drift() {
        assert!(Config::default().stretched_us(30_000) > 30_030_000);
        assert_eq!(Config::default().stretched_us(u64::MAX), u64::MAX, "whoever names it may be a peer");
    }
}
