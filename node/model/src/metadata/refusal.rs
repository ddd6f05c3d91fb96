//! Reasons why an operator's request is refused, and what can be done about them.

use crate::limits::{MEMBERS_MAX, NODES_MAX, POLICIES_MAX, REPLICAS_MAX, WEIGHT_MAX};
use norn_wire::{ClusterId, NodeId, PartitionId, SESSIONS_QUEUE};

/// All reasons against a request. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(pub Vec<Reason>);

impl Refusal {
    /// One reason a line, for people, with members by name.
    pub fn text(&self, name: impl Fn(u16) -> Option<String>) -> String {
        let named = |reason: &Reason| {
            let text = reason.to_string();
            match reason.number().and_then(|number| Some((number, name(number)?))) {
                Some((number, name)) => text.replace(&format!("member {number}"), &name),
                None => text,
            }
        };
        self.0.iter().map(named).collect::<Vec<_>>().join("\n")
    }
}

/// One reason against a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum Reason {
    /// The node has data of another cluster.
    #[error(
        "the node belongs to another cluster, {theirs}: start it with an empty data directory to make it join this one"
    )]
    OtherCluster { theirs: ClusterId },
    /// Another member has this name.
    #[error(
        "member {number} is called {name}: give the node a certificate with another name, or replace member {number}"
    )]
    NameTaken { name: String, number: u16 },
    /// Another member has this address.
    #[error("member {number} is at {address}: advertise another address, or replace member {number}")]
    AddressTaken { address: String, number: u16 },
    /// Two nodes run with one identity.
    #[error(
        "the node has the identity of member {number}, which is alive at {address}: its data directory is a copy; \
         start the node with an empty one"
    )]
    Cloned { number: u16, address: String },
    /// A member came back at another address.
    #[error("the node is member {number}, known at {address}: set the member's address to the new one")]
    Moved { number: u16, address: String },
    /// A member's identity with another incarnation or name.
    #[error(
        "the node has the identity of member {number}, {name}, but is another node: start it with an empty data directory"
    )]
    IdentityTaken { number: u16, name: String },
    /// A member that is gone does not come back.
    #[error("node {node} was a member and is gone: start it with an empty data directory to make it join anew")]
    WasMember { node: NodeId },
    /// No member has this number.
    #[error("there is no member {number}")]
    Unknown { number: u16 },
    /// The member is gone, so it is too late for this.
    #[error("member {number}, {name}, is gone: add the node anew, with an empty data directory")]
    Gone { number: u16, name: String },
    /// The name is empty or has control characters.
    #[error("{name:?} is no name: it is empty, or has control characters")]
    Name { name: String },
    /// The zone has control characters.
    #[error("{zone:?} is no zone: it has control characters")]
    Zone { zone: String },
    /// Not `HOST:PORT`.
    #[error("the address of a member is HOST:PORT, and {address:?} is not: {wrong}")]
    Address { address: String, wrong: &'static str },
    /// A text above its bound.
    #[error("the {what} has {bytes} bytes, at most {most} are possible")]
    TooLong { what: &'static str, bytes: usize, most: usize },
    /// A weight out of bounds.
    #[error("a weight is 1 to {WEIGHT_MAX}, not {weight}: drain a member that shall hold nothing")]
    Weight { weight: u32 },
    /// A setting out of bounds.
    #[error("{what} is {low} to {high}, not {value}")]
    Setting { what: &'static str, value: u64, low: u64, high: u64 },
    /// A duration out of bounds.
    #[error("{what} is {} to {}, not {}", duration(*low_ms), duration(*high_ms), duration(*value_ms))]
    Duration { what: &'static str, value_ms: u64, low_ms: u64, high_ms: u64 },
    /// Too many queues with policies.
    #[error("something is set for {POLICIES_MAX} queues already: set back what is not needed any more")]
    Policies,
    /// A queue's dead letters would go to itself.
    #[error("a queue cannot be its own dead-letter queue: name another one")]
    OwnLetters,
    /// A queue's dead letters would be taken for sessions.
    #[error("queue {SESSIONS_QUEUE} is for sessions, and takes no dead letters: name another one")]
    SessionLetters,
    /// Sessions end for good.
    #[error("queue {SESSIONS_QUEUE} is for sessions, which end for good: it has no dead-letter queue")]
    LettersOfSessions,
    /// No room for more members.
    #[error(
        "there are {present} members, and {gone} that are gone and not forgotten: {NODES_MAX} members are possible, \
         {MEMBERS_MAX} with those; remove some, or wait until the gone ones are healed"
    )]
    Full { present: usize, gone: usize },
    /// Every number has been given.
    #[error("all 65535 numbers of members were given: found a new cluster")]
    NumbersUsedUp,
    /// Too few other members can take what the member holds.
    #[error(
        "without member {number}, {left} members can hold replicas, and {replicas} replicas are wanted of each partition: \
         add or replace a member, or want fewer replicas"
    )]
    TooFew { number: u16, left: usize, replicas: u32 },
    /// A live member is drained before it is removed.
    #[error("member {number} is alive and holds {partitions} partitions: drain it and wait until it holds none")]
    StillHolds { number: u16, partitions: usize },
    /// Not all cohorts are known, so the member may be in some.
    #[error(
        "the cohorts of {partitions} partitions are not known, and member {number} may be in them: try again later"
    )]
    MayHold { number: u16, partitions: usize },
    /// A live member is drained before it is removed.
    #[error("member {number} is alive and not leaving: drain it first")]
    Alive { number: u16 },
    /// The metadata group moves away from a leaving member by itself.
    #[error("member {number} still votes in the root: wait until another does")]
    Votes { number: u16 },
    /// Without the member the metadata group could not be changed any more.
    #[error("member {number} is the only voter of the root that is alive: bring others back, or add one, first")]
    LastVoter { number: u16 },
    /// Too many members would be lost at once.
    #[error(
        "{gone} members are gone and not healed; with member {number} that is a majority of the {members} there were: \
         bring one back, or wait until the partitions are healed"
    )]
    Majority { number: u16, gone: usize, members: usize },
    /// A number of replicas out of bounds.
    #[error("1 to {REPLICAS_MAX} replicas are possible, not {replicas}")]
    Replicas { replicas: u32 },
    /// No such partition.
    #[error("there is no partition {partition}: there are 0 to {}", partitions - 1)]
    NoPartition { partition: PartitionId, partitions: u32 },
    /// A leaving member takes nothing.
    #[error("member {number} is leaving and takes no replicas: undrain it first")]
    Leaves { number: u16 },
    /// More replicas than members.
    #[error("{replicas} replicas need as many members that can hold them, and there are {members}: add members first")]
    MoreThanMembers { replicas: u32, members: usize },
}

impl Reason {
    /// The number of the member that its text names by number alone.
    fn number(&self) -> Option<u16> {
        match self {
            Reason::AddressTaken { number, .. }
            | Reason::Cloned { number, .. }
            | Reason::Moved { number, .. }
            | Reason::TooFew { number, .. }
            | Reason::StillHolds { number, .. }
            | Reason::MayHold { number, .. }
            | Reason::Alive { number }
            | Reason::Votes { number }
            | Reason::LastVoter { number }
            | Reason::Majority { number, .. }
            | Reason::Leaves { number } => Some(*number),
            Reason::OtherCluster { .. }
            | Reason::NameTaken { .. }
            | Reason::IdentityTaken { .. }
            | Reason::WasMember { .. }
            | Reason::Unknown { .. }
            | Reason::Gone { .. }
            | Reason::Name { .. }
            | Reason::Zone { .. }
            | Reason::Address { .. }
            | Reason::TooLong { .. }
            | Reason::Weight { .. }
            | Reason::Setting { .. }
            | Reason::Duration { .. }
            | Reason::Policies
            | Reason::OwnLetters
            | Reason::SessionLetters
            | Reason::LettersOfSessions
            | Reason::Full { .. }
            | Reason::NumbersUsedUp
            | Reason::Replicas { .. }
            | Reason::NoPartition { .. }
            | Reason::MoreThanMembers { .. } => None,
        }
    }
}

/// The duration in the longest unit that is exact.
fn duration(ms: u64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let unit = units.into_iter().find(|(length_ms, _)| ms > 0 && ms.is_multiple_of(*length_ms));
    unit.map_or_else(|| format!("{ms}ms"), |(length_ms, unit)| format!("{}{unit}", ms / length_ms))
}
