//! Settings of the protocol core. The [`table`] has the defaults and bounds of these and all others.

use norn_wire::QueueName;
use std::collections::BTreeMap;
use std::sync::Arc;

pub mod table;

/// Settings of the protocol core. All nodes of a cluster should agree on them; safety does not depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Between heartbeats of a pair of nodes.
    pub heartbeat_ms: u64,
    /// A leader not heard for this long is given up; with three replicas, the next one campaigns within twice as long again.
    pub election_timeout_ms: u64,
    /// Before an unanswered replication message is sent again.
    pub resend_ms: u64,
    /// A request that could not be finished by then is answered `Unknown` or `Unavailable`.
    pub request_timeout_ms: u64,
    /// Between rounds of anti-entropy.
    pub exchange_interval_ms: u64,
    /// Bytes that a node sends to repair other replicas.
    pub repair_bytes_per_second: u64,
    /// Tasks that a node sends to repair other replicas; looking at sixteen counts as much.
    pub repair_items_per_second: u64,
    /// Between looks of parked claims at all leaders, and between questions of leaders for what their tasks wait for.
    pub sweep_interval_ms: u64,
    /// Bound on the difference of wall clocks that claims rely on.
    pub clock_epsilon_ms: u64,
    /// Bound on the rate error of monotonic clocks that claims rely on, in parts per million.
    pub clock_drift_ppm: u64,
    /// A node whose wall clock is far from a majority's gives up leading. Safety does not depend on it.
    pub clock_fencing: bool,
    /// A clock that was wrong must be right for so long before it is relied on.
    pub clock_calm_ms: u64,
    /// A node that leads although another is preferred hands over after the other was up for so long.
    pub transfer_after_ms: u64,
    /// Bytes of payloads and headers of tasks, and of results and log entries of ended ones, that stay in memory; the others are read
    /// back from the log.
    pub payload_memory_bytes: u64,
    /// Tasks at this node, waiting or ended, at which it refuses new ones.
    pub tasks_max: u64,
    /// How long finished tasks are kept.
    pub retention: Arc<Retention>,
    /// Tasks are forgotten only when their ids are so old. Nothing may be enqueued under an id that is not above a forgotten
    /// one, so this must be longer than any write may be on its way.
    pub forget_after_ms: u64,
    /// Bytes of hints for members that are away; at the bound those are dropped that anti-entropy makes up for, then sloppy
    /// writes without any member are refused.
    pub hints_bytes_max: u64,
    /// Nothing is noted any more for a member that was away for so long, and what nobody but this node has is warned of.
    pub hint_ttl_ms: u64,
    /// A change of a partition's cohort that comes no nearer to its end for so long is given up.
    pub revert_after_ms: u64,
    /// A removed replica that is away for so long is not waited for any more. What it alone has it hands over if it comes.
    pub exile_ttl_ms: u64,
    /// Finished tasks are archived before they are buried.
    pub archives: bool,
    /// The newest protocol version that is offered to peers and clients.
    pub protocol_version_max: u8,
    /// A known bug to put back, so that a simulation can be seen to catch it.
    #[cfg(feature = "mutants")]
    pub mutant: Option<Mutant>,
}

/// How long finished tasks are kept, by queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    /// Where nothing else is said.
    pub default_ms: u64,
    /// For single queues.
    pub queues: BTreeMap<QueueName, u64>,
}

impl Default for Retention {
    fn default() -> Self {
        Retention { default_ms: 7 * 24 * 3_600_000, queues: BTreeMap::new() }
    }
}

impl Retention {
    /// Of a queue, or of a task whose queue is not known.
    pub fn of(&self, queue: Option<&QueueName>) -> u64 {
        queue.and_then(|queue| self.queues.get(queue)).copied().unwrap_or(self.default_ms)
    }
}

/// Bugs that the simulator must catch.
#[cfg(feature = "mutants")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// A vote is answered without having been written down.
    VoteNotDurable,
    /// A grant is answered once the leader alone has it.
    GrantBeforeQuorum,
    /// Merging two logs keeps only one of them.
    MergeDropsUpdate,
    /// A grant shows no log entries that have left memory.
    LogsUnread,
    /// A claim is dropped without telling the followers how the task ended.
    DropWithoutRecord,
    /// A renewal sets the lease to what was asked, even if shorter.
    RenewalShortens,
    /// A write is acknowledged before it is on disk.
    AckBeforeDurable,
    /// A vote ignores how old the candidate's table is.
    VoteIgnoresViewstamp,
    /// A leader does not heed the followers' word that a task has ended.
    DoneFlagIgnored,
    /// Claims expire by the wall clock alone.
    WallClockOnly,
    /// A follower flags ended tasks only where it saw the operation that granted them, not where their claims came with a
    /// whole table or out of its own log.
    FlagsForgotten,
    /// A supposed leader is believed in as long as it is heard, even if it has restarted, stepped down or lost its quorum.
    LeaderBelieved,
    /// A node whose clock is known to be wrong goes on leading.
    FencedLeads,
    /// A replica whose table has lost something votes and counts as before.
    RecoveringCounts,
    /// A leader counts replicas with holes for grants.
    HolesGrant,
    /// A body is read back from the place of the task beside it, and not looked at.
    WrongPlace,
    /// Tasks are forgotten when a majority has the tombstones, and for good when a majority has forgotten.
    ForgetsByMajority,
    /// A leader archives and buries what it knows itself, and asks nobody.
    ArchivesUnasked,
    /// A leader buries a task of which it lacks the spec without asking whether others have it.
    OrphansUnasked,
    /// Facts about tasks that may have been forgotten are taken from anybody.
    FloorIgnored,
    /// A hint is acknowledged before it is on disk.
    HintNotDurable,
    /// A hint is given up when it is sent.
    HintGoneEarly,
    /// Where trees differ, only the first half of a node's children is compared.
    HalfLevel,
    /// A node does not wait for what peers remember of its log, and does not heed it.
    UnansweredCounts,
    /// What is remembered of a peer's log is forgotten when its new start is heard.
    MemoryForgotten,
    /// A completion under a token that needs no seal counts whatever the queue's mode.
    UnsealedCounts,
    /// Only a heartbeat tells of a start, not a promise that was made in it.
    PromisesUnheard,
    /// A node does not heed that more was told in its start than it has told.
    RivalUnnoticed,
    /// Acknowledgements of operations do not say how far the log is durable.
    WordMissing,
    /// A cohort is changed before the next members have what they should have.
    SettlesUnready,
    /// Answers of different versions of a cohort add up to a quorum.
    VersionsMixed,
    /// Whoever leaves a partition is cleared without being asked what it alone has.
    ClearsUnheard,
    /// The leader of the root answers what it believes, committed or not, whether it still leads or not.
    RootAnswersAtOnce,
    /// Claims expire by the monotonic clock alone.
    MonotonicOnly,
    /// A table that a replica has already is not acknowledged again.
    ReinstallUnanswered,
    /// Whoever leaves a partition drops what it has once it is dismissed.
    LeavesEarly,
    /// Facts are taken from whoever was let go of, or is nobody any more.
    ExileMerges,
    /// A replica that was cleared unheard drops all that it has when it hears of that.
    StraysDrop,
    /// A machine that comes back with an empty disk is the node that it was. The simulator's host does this.
    SameIdentity,
    /// A worker counts its lease from the answer. The simulator's host does this.
    CountsFromAnswer,
    /// Cohorts that leaders tell of are asked for only once, whoever tells of them.
    RoutesAskedOnce,
    /// A renewal takes what was asked even if the queue allows less.
    LeaseUnbounded,
    /// A task whose lease ran out does not wait for the queue's back-off.
    LapsedAtOnce,
    /// A seal is a fact before it is committed.
    SealsEarly,
    /// Who held a task before may have its completion sealed as well.
    SealsSuperseded,
    /// What a completion brings that does not count is enqueued all the same.
    RejectedBrings,
    /// A task that others wait for is said to have ended when it has not.
    EndsEarly,
    /// What a task waits for is asked for only once.
    FollowsOnce,
    /// Children of a completion count as handed over once they are sent.
    ClosesEarly,
    /// Tasks are forgotten whatever completions bring.
    ForgetsUnasked,
    /// The claim of a dead task is dropped whether its letter is written or not.
    LettersForgotten,
    /// A claim of a task with a key is prolonged though it has been another one's turn.
    TurnRetaken,
    /// One replica's word is enough for a task that others wait for to count as forgotten.
    OneForgets,
    /// A leader grants tasks with keys though it does not know all tasks that are held, and does not ask for them.
    KeysUnknown,
    /// Each time that a letter is written it has another id, whatever is there already.
    LettersMinted,
    /// The id of a schedule's task is another one each time that it is enqueued.
    ScheduleIdDrawn,
    /// What a schedule has fired is written down before a majority has it.
    ScheduleMarkedEarly,
    /// What nodes say of the completions that they know counts, though these have moved since.
    MovesUnheeded,
    /// A replica acknowledges operations of an epoch below its promise.
    AcksAfterPromise,
    /// While joint, a majority of the next members is enough.
    JointNewSideOnly,
    /// Half of the members is a majority.
    HalfCounts,
    /// The next members rule alone before the joint cohort is committed.
    StableEarly,
    /// The next members rule alone at once.
    NoJoint,
    /// A candidate has seen the tables of a majority; others may vote for it, whatever their tables are.
    StateFromOthers,
    /// A leader answers from the table that it found before a majority has it.
    AnswersInherited,
    /// A candidate that takes over a newer table keeps claims of its own beside those.
    UnionOfClaims,
    /// A leader changes the cohort by one member, without a joint one, before its installation is committed.
    SwitchesEarly,
    /// A leader takes a change back before its installation is committed.
    RevertsEarly,
    /// A replica that lost a part of its table counts again once it has a leader's installation.
    RegainsByInstall,
    /// A replica that has heard of a cohort without it does not ask whether it is let go of.
    OutsideUnasked,
    /// A task that is to be unique is enqueued without asking whether there is one with its key.
    UniqueUnasked,
    /// It is written before its leader has it in a table that a majority has.
    UniqueUnreserved,
    /// One that a single replica takes for open is there, whoever knows that it has ended.
    UniqueEnded,
    /// A transaction is judged by what the leader knows, and nobody else is asked.
    TransactionUnasked,
    /// Tasks that it changes can be claimed, prolonged and completed meanwhile.
    TransactionUnlocked,
    /// A transaction that was refused is judged anew when it is asked for again.
    RefusalForgotten,
    /// What a transaction is about that is decided can be forgotten before it is made.
    DecidedForgotten,
    /// The end of a group's member counts for the next one as well.
    MembersMiscounted,
    /// A group does not wait for the groups that its members bring.
    JoinsUnheard,
    /// A session has ended once its leader is not heard from.
    SessionsCutShort,
    /// Tasks of a queue with ageing are claimed by priority alone.
    AgeIgnored,
    /// A restart forgets how old leases are, and nobody is told.
    AgesForgotten,
    /// A start takes leases for as old as the last word before them of how long its node had run.
    AgesFromBefore,
    /// The table of a new leader makes all leases young.
    AgesReplaced,
    /// A permit is good for any number of claims.
    PermitsReused,
    /// A leader gives permits at once, and from a full bucket, whatever those before it have given.
    FullBucket,
    /// A leader begins with an empty bucket, whatever time has earned before it led.
    LevelForgotten,
    /// A snapshot is begun only where there is room for as much as the whole log takes. The log does this.
    WantsWholeRoom,
    /// The level of a bucket is written only where somebody asks for permits. A play catches it (`sim/src/rates.rs`), and no seed: what is
    /// lost is what nobody has asked for, and no level that is written is wrong.
    LevelsUnkept,
    /// A rate that is removed and set again begins with what has come in before.
    BurstAgain,
    /// The leader of a partition grants as many claims as the whole queue may have, and asks nobody.
    QuotaUnasked,
    /// A quota is lowered though its leader has not said that it keeps to that.
    QuotaUnconfirmed,
    /// Who has nothing to give of a quota does not say so again, whatever its home believes.
    QuotaLeaks,
    /// A leader lets twice as many tasks of a key be held as may be.
    KeysUncounted,
    /// Where keys take turns, it is not noted who was served.
    ServedIgnored,
    /// What a client does not confirm is not given back.
    UnconfirmedKept,
    /// What a client says of a claim that it has left is passed on to no other node.
    LeaveUnheeded,
    /// A claim that is over counts as an attempt, whether or not its client has confirmed it.
    LapsesUnasked,
    /// A watch goes on as if nothing were missing where a node has not told all.
    WatchGapUnheeded,
    /// A full queue takes tasks all the same.
    RoomIgnored,
    /// Tasks of a paused queue are granted.
    PausedGrants,
    /// What is to wait where what it waits for failed fails as well.
    WaitIgnored,
    /// Leaders tell nobody that their heads have changed.
    HeadsUntold,
    /// A task that is purged is forgotten at once, at each replica for itself.
    PurgesEarly,
    /// A task is purged whether it has ended or not.
    PurgesOpen,
    /// A node that lends no ids refuses the session, and with it all that needs none.
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
    /// Takes each number by its name in the [`table`]; what is no number is as by default.
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

    /// Checks every bound of the [`table`].
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

    /// A length on a clock that may run fast by the allowed drift: at least `ms` of true time.
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
macro_rules! mutant {
    ($config:expr, $name:ident) => {{
        #[cfg(feature = "mutants")]
        {
            $config.has($crate::config::Mutant::$name)
        }
        #[cfg(not(feature = "mutants"))]
        {
            let _ = &$config;
            false
        }
    }};
}
pub(crate) use mutant;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_within_bounds_and_others_are_named() {
        assert_eq!(Config::default().validate(), Ok(()));
        let wrong = Config { election_timeout_ms: 60, ..Config::default() };
        assert_eq!(wrong.validate().unwrap_err().name, "election_timeout_ms");
    }

    /// Goal: no two fields are mixed up. Method: each number is another one.
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
