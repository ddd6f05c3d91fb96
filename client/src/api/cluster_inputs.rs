//! Changes of a cluster, as operators ask for them.
//!
//! Members are named by their names or by the beginnings of their ids, as at the command line. So a change is converted with the cluster
//! as it is ([`ClusterView`]), and one that brings a new node also with what that node says of itself ([`Identity`]).

use super::InputError;
use super::fields::{large_setting, moves, object_only, partition, replicas, weight, weight_if_any};
use crate::client::cluster::{find_member, look_up_member, no_such_member};
use norn_wire::address::parse_address;
use norn_wire::limits::NODES_OF_PARTITION_MAX;
use norn_wire::membership::{Candidate, ClusterChange, ClusterView, Settings};
use norn_wire::response::Identity;
use norn_wire::{NodeId, PartitionId, Request};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Weight of a new member that names none.
const WEIGHT_DEFAULT: u32 = 1;

/// A change of the cluster. Settings of queues are changed by a `QueuePolicyInput`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct ClusterChangeInput {
    /// What to change.
    pub change: ChangeKindInput,
    /// Only report what the change would do.
    #[serde(default)]
    pub dry_run: bool,
}

object_only!(ClusterChangeInput, "an object with `change`");

/// What to change: an object with one field, whose name is the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", remote = "Self")]
pub enum ChangeKindInput {
    /// Add a running node that waits for a cluster, as a member.
    Add(NewcomerInput),
    /// Move everything off a member, so that it can be removed.
    Drain(MemberInput),
    /// Cancel the drain of a member, and give it its share again.
    Undrain(MemberInput),
    /// Remove a member that was drained, or that is dead.
    Remove(MemberInput),
    /// Put a new node in the place of a member, which may be dead.
    Replace(ReplacementInput),
    /// Move one partition to other nodes.
    Move(MoveInput),
    /// Give every member its share, with as few moves as possible.
    Rebalance(RebalanceInput),
    /// Set the number of replicas of each partition.
    Replicas(ReplicasInput),
    /// Set the weight of a member.
    Weight(WeightInput),
    /// Set the failure domain of a member.
    Zone(ZoneInput),
    /// Set the address of a member, after it was moved there.
    Address(AddressInput),
    /// Change settings of the cluster.
    Settings(SettingsInput),
}

impl Serialize for ChangeKindInput {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ChangeKindInput::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for ChangeKindInput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ChangeVisitor)
    }
}

struct ChangeVisitor;

impl<'de> Visitor<'de> for ChangeVisitor {
    type Value = ChangeKindInput;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a change as an object with one field, for example {\"drain\": {\"node\": \"n3\"}}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ChangeKindInput, A::Error> {
        let change = ChangeKindInput::deserialize(MapAccessDeserializer::new(&mut map))?;
        match map.next_key::<String>()? {
            Some(other) => Err(A::Error::custom(format!("one change is made at a time; leave {other:?} out"))),
            None => Ok(change),
        }
    }
}

/// A node to add as a member.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct NewcomerInput {
    /// Address where the node listens: `HOST:PORT`.
    pub address: String,
    /// Share of the replicas, relative to other members; 1 if left out.
    #[serde(default, deserialize_with = "weight_if_any", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 1_000_000))]
    pub weight: Option<u32>,
    /// Failure domain; the one that the node was started with if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

object_only!(NewcomerInput, "an object with `address`");

/// A member.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct MemberInput {
    /// Name of the member, or the beginning of its id.
    pub node: String,
}

object_only!(MemberInput, "an object with `node`");

/// A node that takes the place of a member.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct ReplacementInput {
    /// Name of the member, or the beginning of its id.
    pub node: String,
    /// Address where the new node listens: `HOST:PORT`.
    pub address: String,
    /// Share of the replicas, relative to other members; that of the member it replaces if left out.
    #[serde(default, deserialize_with = "weight_if_any", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 1_000_000))]
    pub weight: Option<u32>,
    /// Failure domain; the one that the node was started with if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

object_only!(ReplacementInput, "an object with `node` and `address`");

/// A partition and its next holders.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct MoveInput {
    /// Number of the partition.
    #[serde(deserialize_with = "partition")]
    #[cfg_attr(feature = "schema", schema(minimum = 0, maximum = 4_095))]
    pub partition: u16,
    /// Names, or beginnings of the ids, of all members to hold it, the preferred leader first.
    pub nodes: Vec<String>,
}

object_only!(MoveInput, "an object with `partition` and `nodes`");

/// A new layout, without further wishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct RebalanceInput {}

object_only!(RebalanceInput, "an empty object");

/// Number of replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct ReplicasInput {
    /// Replicas of each partition, 1 to 7.
    #[serde(deserialize_with = "replicas")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 7))]
    pub replicas: u32,
}

object_only!(ReplicasInput, "an object with `replicas`");

/// Weight of a member.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct WeightInput {
    /// Name of the member, or the beginning of its id.
    pub node: String,
    /// Share of the replicas, relative to other members; above 0.
    #[serde(deserialize_with = "weight")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 1_000_000))]
    pub weight: u32,
}

object_only!(WeightInput, "an object with `node` and `weight`");

/// Failure domain of a member.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct ZoneInput {
    /// Name of the member, or the beginning of its id.
    pub node: String,
    /// New zone.
    pub zone: String,
}

object_only!(ZoneInput, "an object with `node` and `zone`");

/// Address of a member.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct AddressInput {
    /// Name of the member, or the beginning of its id.
    pub node: String,
    /// New address: `HOST:PORT`. It is not tried.
    pub address: String,
}

object_only!(AddressInput, "an object with `node` and `address`");

/// Settings of the cluster to change, named as in `ClusterSettings`. What is left out stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct SettingsInput {
    /// Milliseconds of silence after which the cluster declares a member gone by itself; `null`: never.
    #[serde(default, deserialize_with = "large_setting", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>, minimum = 0, maximum = 9_223_372_036_854_775_807_i64))]
    pub heal_after_ms: Option<Option<u64>>,
    /// Partitions that move at once in the whole cluster.
    #[serde(default, deserialize_with = "moves", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 1_024))]
    pub moves_at_once: Option<u32>,
    /// Partitions that come to or leave one member at once.
    #[serde(default, deserialize_with = "moves", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 1_024))]
    pub moves_at_once_each: Option<u32>,
}

object_only!(SettingsInput, "an object with settings of the cluster");

/// A change to request of the metadata group, with what its [`ChangeReport`](super::ChangeReport) says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedChange {
    /// The verb of the change.
    pub verb: &'static str,
    /// Member in question, if there is one.
    pub node: Option<NodeId>,
    /// The change. Absent for the removal of a node that is no member: the cluster forgets a removed member once others hold its
    /// replicas, so removing it again is a success.
    pub change: Option<ClusterChange>,
    /// Only report what it would do.
    pub dry_run: bool,
}

impl PlannedChange {
    /// Returns the request, if anything is to be changed.
    #[must_use]
    pub fn request(&self) -> Option<Request> {
        let change = Box::new(self.change.clone()?);
        Some(Request::Change { change, dry_run: self.dry_run })
    }
}

impl ClusterChangeInput {
    /// Address of the node that the change brings into the cluster, if it does. The node there is asked for its identity first, and is
    /// handed the membership afterwards.
    #[must_use]
    pub fn newcomer(&self) -> Option<&str> {
        match &self.change {
            ChangeKindInput::Add(NewcomerInput { address, .. })
            | ChangeKindInput::Replace(ReplacementInput { address, .. }) => Some(address),
            _ => None,
        }
    }

    /// Converts it, in the cluster as it is. `newcomer` is what the node at [`newcomer`](Self::newcomer) says of itself, if the change
    /// brings one.
    pub fn plan(self, view: &ClusterView, newcomer: Option<&Identity>) -> Result<PlannedChange, InputError> {
        let dry_run = self.dry_run;
        let about = |verb, node: NodeId, change| (verb, Some(node), Some(change));
        let found = |text: &str| Ok::<_, InputError>(find_member(view, text)?.node);
        let (verb, node, change) = match self.change {
            ChangeKindInput::Add(input) => addition(view, newcomer, input)?,
            ChangeKindInput::Replace(input) => replacement(view, newcomer, input)?,
            ChangeKindInput::Drain(input) => {
                let node = found(&input.node)?;
                about("drain", node, ClusterChange::Drain { node })
            }
            ChangeKindInput::Undrain(input) => {
                let node = found(&input.node)?;
                about("undrain", node, ClusterChange::Undrain { node })
            }
            ChangeKindInput::Remove(input) => match look_up_member(view, &input.node)?.map(|member| member.node) {
                Some(node) => about("remove", node, ClusterChange::Remove { node }),
                // A rehearsal finds a mistaken name.
                None if dry_run => return Err(no_such_member(view, &input.node).into()),
                None => ("remove", None, None),
            },
            ChangeKindInput::Move(input) => ("move", None, Some(input.change(view)?)),
            ChangeKindInput::Rebalance(RebalanceInput {}) => ("rebalance", None, Some(ClusterChange::Rebalance)),
            ChangeKindInput::Replicas(ReplicasInput { replicas }) => {
                ("replicas", None, Some(ClusterChange::Replicas { replicas }))
            }
            ChangeKindInput::Weight(WeightInput { node, weight }) => {
                let node = found(&node)?;
                about("weight", node, ClusterChange::Weight { node, weight })
            }
            ChangeKindInput::Zone(ZoneInput { node, zone }) => {
                let node = found(&node)?;
                about("zone", node, ClusterChange::Zone { node, zone })
            }
            ChangeKindInput::Address(AddressInput { node, address }) => {
                check_address(&address)?;
                let node = found(&node)?;
                about("address", node, ClusterChange::Address { node, address })
            }
            ChangeKindInput::Settings(input) => {
                let settings = input.on(view.settings)?;
                (input.verb(), None, Some(ClusterChange::Settings { settings }))
            }
        };
        Ok(PlannedChange { verb, node, change, dry_run })
    }
}

/// Verb, member and change.
type Parts = (&'static str, Option<NodeId>, Option<ClusterChange>);

fn addition(view: &ClusterView, newcomer: Option<&Identity>, input: NewcomerInput) -> Result<Parts, InputError> {
    let NewcomerInput { address, weight, zone } = input;
    let with = candidate(view, newcomer, &address, zone, weight.unwrap_or(WEIGHT_DEFAULT))?;
    Ok(("add", Some(with.node), Some(ClusterChange::Add { with })))
}

fn replacement(view: &ClusterView, newcomer: Option<&Identity>, input: ReplacementInput) -> Result<Parts, InputError> {
    let ReplacementInput { node, address, weight, zone } = input;
    let old = find_member(view, &node)?;
    // The new node may have the old one's name; once it is a member, the name means the new node.
    if newcomer.is_some_and(|newcomer| newcomer.node == old.node) {
        return addition(view, newcomer, NewcomerInput { address, weight, zone });
    }
    let with = candidate(view, newcomer, &address, zone, weight.unwrap_or(old.weight))?;
    Ok(("replace", Some(with.node), Some(ClusterChange::Replace { node: old.node, with })))
}

/// Returns the new member. Refuses a node of another cluster.
fn candidate(
    view: &ClusterView,
    newcomer: Option<&Identity>,
    address: &str,
    zone: Option<String>,
    weight: u32,
) -> Result<Candidate, InputError> {
    check_address(address)?;
    let Some(newcomer) = newcomer else {
        return Err(InputError(format!("the node at {address} was not asked who it is; start it, and ask again")));
    };
    let Identity { node, incarnation, name, address: advertised, zone: own_zone, genesis, serving: _ } =
        newcomer.clone();
    if let Some(genesis) = genesis.as_ref().filter(|genesis| genesis.cluster != view.cluster) {
        let (name, theirs) = (&genesis.name, genesis.cluster);
        return Err(InputError(format!(
            "{address} belongs to another cluster, {name:?} ({theirs}): start it with an empty data directory to make it join this one"
        )));
    }
    Ok(Candidate {
        cluster: genesis.map(|genesis| genesis.cluster),
        node,
        incarnation,
        name,
        address: advertised,
        zone: zone.unwrap_or(own_zone),
        weight,
    })
}

impl MoveInput {
    fn change(&self, view: &ClusterView) -> Result<ClusterChange, InputError> {
        let wrong = |message: String| Err(InputError(message));
        let mut nodes: Vec<NodeId> = Vec::new();
        for text in &self.nodes {
            let node = find_member(view, text)?.node;
            if nodes.contains(&node) {
                return wrong("a node is named twice; each holds a partition once".to_owned());
            }
            nodes.push(node);
        }
        let count = nodes.len();
        match count {
            0 => wrong("say which nodes are to hold the partition".to_owned()),
            1..=NODES_OF_PARTITION_MAX => Ok(ClusterChange::Arrange { partition: PartitionId(self.partition), nodes }),
            _ => wrong(format!("{count} nodes are too many: at most {NODES_OF_PARTITION_MAX} hold a partition")),
        }
    }
}

impl SettingsInput {
    /// Returns the settings after the change.
    fn on(self, settings: Settings) -> Result<Settings, InputError> {
        if self == SettingsInput::default() {
            return Err(InputError("no setting is named: say which to change".to_owned()));
        }
        Ok(Settings {
            heal_after_ms: self.heal_after_ms.unwrap_or(settings.heal_after_ms),
            moves_at_once: self.moves_at_once.unwrap_or(settings.moves_at_once),
            moves_at_once_each: self.moves_at_once_each.unwrap_or(settings.moves_at_once_each),
        })
    }

    /// Returns the verb that changes these settings, or `settings` for several.
    fn verb(self) -> &'static str {
        match (self.heal_after_ms, self.moves_at_once, self.moves_at_once_each) {
            (Some(_), None, None) => "heal-after",
            (None, Some(_), None) => "moves",
            (None, None, Some(_)) => "moves-each",
            _ => "settings",
        }
    }
}

fn check_address(text: &str) -> Result<(), InputError> {
    match parse_address(text) {
        Some(_) => Ok(()),
        None => Err(InputError(
            "an address is HOST:PORT, an IPv6 one [HOST]:PORT, for example 127.0.0.1:7400 or [::1]:7400".to_owned(),
        )),
    }
}
