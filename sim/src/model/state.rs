//! Parts of the consensus state's model: replicas, messages between them, actions, and bounds.

use super::Flaw;
use super::cohort::Cohort;
use norn_model::viewstamp::{ReplicaId, Viewstamp};
use norn_wire::NodeId;
use std::collections::{BTreeMap, BTreeSet};

/// A replica: its place, and its incarnation.
pub type Id = (u8, u8);
/// Viewstamp in a few bytes.
pub type Stamp = (u8, u8);

/// A replica as the protocol names it. Each incarnation is another node, as a wiped machine is.
pub fn real(id: Id) -> ReplicaId {
    ReplicaId { node: NodeId(u128::from(id.0) << 8 | u128::from(id.1)), incarnation: u64::from(id.1) }
}

/// A viewstamp as the protocol has it.
pub fn viewstamp(stamp: Stamp) -> Viewstamp {
    Viewstamp { epoch: u64::from(stamp.0), length: u64::from(stamp.1) }
}

/// An operation in a table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// A change of claims, by the leader of an epoch.
    Claims(u8, u8),
    /// Joint: from here on majorities of both the cohort and this one are needed.
    Joint(Vec<Id>),
    /// The new cohort counts alone.
    Stable,
    /// Another cohort at once, which no leader may write.
    Switch(Vec<Id>),
    /// The old cohort counts alone.
    Revert,
}

/// Content of a table.
pub type ClaimTable = Vec<Op>;

/// A message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    /// A candidate asks for a vote.
    Vote { epoch: u8, candidate: Id, stamp: Stamp },
    /// A voter grants it.
    Voted { epoch: u8, candidate: Id, voter: Id },
    /// A leader's whole table: an installation or a snapshot.
    Whole { stamp: Stamp, table: ClaimTable },
    /// An operation.
    Next { stamp: Stamp, op: Op },
    /// All up to `stamp` is on the replica's disk.
    Ack { stamp: Stamp, replica: Id },
    /// Answer to a replica that lost something: the leader stands at `stamp`.
    Target { replica: Id, stamp: Stamp },
}

/// Role of a replica.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Role {
    Follower,
    Candidate { votes: BTreeSet<Id> },
    Leader { base: u8, acks: BTreeMap<Id, u8>, established: bool, committed: u8 },
}

/// One replica.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Replica {
    pub id: Id,
    pub promised: u8,
    pub voted_for: Option<Id>,
    /// Promise and vote that a crash leaves.
    pub durable: (u8, Option<Id>),
    pub stamp: Stamp,
    pub table: ClaimTable,
    /// The replica lost its table, and must reach this viewstamp, once it knows that.
    pub recovering: Option<Option<Stamp>>,
    pub role: Role,
}

impl Replica {
    /// A replica with nothing on its disk.
    pub fn new(id: Id) -> Replica {
        Replica {
            id,
            promised: 0,
            voted_for: None,
            durable: (0, None),
            stamp: (0, 0),
            table: Vec::new(),
            recovering: None,
            role: Role::Follower,
        }
    }
}

/// State of a world.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub replicas: Vec<Replica>,
    pub sent: BTreeSet<Message>,
    /// Tables of `sent` that a candidate that is behind may fetch.
    pub shown: BTreeSet<(Stamp, ClaimTable)>,
    /// Longest table that was ever committed, and its epoch.
    pub committed: (u8, ClaimTable),
    /// Winner of each epoch, with its table.
    pub leaders: BTreeMap<u8, (Id, ClaimTable)>,
    pub crashes: u8,
    pub losses: u8,
    pub changes: u8,
    pub violation: Option<&'static str>,
}

/// An action that may happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Campaign(u8),
    Deliver(u8, Message),
    Fetch(u8, (Stamp, ClaimTable)),
    Append(u8),
    SendWhole(u8),
    Joint(u8, u8),
    Switch(u8, u8),
    Stable(u8),
    Revert(u8),
    Crash(u8),
    LoseTable(u8),
    Wipe(u8),
    AnswerRejoin(u8, u8),
}

/// A step of how a world begins.
#[derive(Debug, Clone)]
pub enum Step {
    /// A replica does something.
    Do(Action),
    /// It gets all messages so far that concern it.
    Hear(u8),
}

/// Bounds of what is explored, and the flaw in it.
#[derive(Debug, Clone, Default)]
pub struct Bounds {
    /// Replicas; the first `cohort` of them are the first cohort.
    pub replicas: u8,
    pub cohort: u8,
    pub epochs: u8,
    /// Operations about claims that each leader appends.
    pub appends: u8,
    /// Cohorts that may be changed to, by place.
    pub targets: Vec<Vec<u8>>,
    pub changes: u8,
    pub crashes: u8,
    /// Losses of a table, or, with `wipes`, of everything.
    pub losses: u8,
    pub wipes: bool,
    pub fetch: bool,
    /// Beginning: replica 0 leads epoch 1, which the first cohort has installed; then these steps.
    pub begin: Option<Vec<Step>>,
    /// Replicas that campaign; all if empty.
    pub candidates: Vec<u8>,
    pub flaw: Option<Flaw>,
}

impl Bounds {
    /// Whether the world has this flaw.
    pub fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// The first cohort.
    pub fn genesis(&self) -> Vec<Id> {
        (0..self.cohort).map(|place| (place, 0)).collect()
    }

    /// The cohort by a table.
    pub fn cohort_of(&self, table: &[Op]) -> Cohort {
        Cohort::of(&self.genesis(), table, self.flaw)
    }
}

/// Whether a message is for a replica.
pub fn concerns(message: &Message, replica: &Replica) -> bool {
    match message {
        Message::Vote { candidate, .. } => *candidate != replica.id,
        Message::Voted { candidate, .. } => *candidate == replica.id,
        Message::Whole { .. } | Message::Next { .. } => true,
        Message::Ack { .. } => matches!(replica.role, Role::Leader { .. }),
        Message::Target { replica: target, .. } => *target == replica.id,
    }
}
