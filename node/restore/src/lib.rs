//! Restores a node from the records and losses of its log; the same for every host.

use norn_engine::{Founding, Node};
use norn_model::config::Config;
use norn_model::record::Kind;
use norn_storage::disk::Disk;
use norn_storage::repair::{self, Lost, Overlay, Plan, RepairError, Step, Tried};
use norn_storage::{Identity, Log, LogConfig, Loss, Owner, Replay, Replayed, segment_name};
use norn_wire::{NodeId, PartitionId};
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_64;

mod compact;

pub use compact::stopped::{LogSize, NotCompacted, Shrunk, compact_stopped};
pub use compact::{Compacted, Hindrance, PART_BYTES, When, compact};

const GENESIS: Kind = Kind(b'G');

/// Most losses kept until the node's partitions are known.
const DEFERRED_MAX: usize = 1_000;

/// Feeds the replay of a log to a node.
///
/// Facts and tables come back from other replicas, so a node starts without them (`norn_model::data_loss`). A vote does not: a
/// replica that forgot a vote could vote twice. Nor do the high-water marks of lent ids, or the count of starts. But each of these is
/// superseded by the next record of its kind, and each segment of the log begins with all of them; so their loss is only a doubt
/// until such a record turns up.
#[derive(Debug)]
pub struct Restorer<'a> {
    node: &'a mut Node,
    /// Promises that may have been made and are unknown.
    doubts: BTreeMap<(Owner, Kind), Doubt>,
    /// Losses before the record that lists the partitions.
    deferred: Vec<Deferred>,
}

/// A place of the log where an unknown promise may have been.
#[derive(Debug, Clone)]
struct Doubt {
    /// File and offset.
    place: String,
    ordinal: u64,
    /// Digest of all records lost there.
    loss: u64,
    /// Whether a head is left that names the record; otherwise the record may have been of any kind.
    named: bool,
}

#[derive(Debug)]
struct Deferred {
    doubt: Doubt,
    /// Lost records of known replicas.
    owners: Vec<(Owner, Kind)>,
    /// Whether other records of any replica are lost.
    unknown: bool,
}

/// Identifies a loss, the same in every start. A loss that has grown since, at either end, is a different one.
fn digest(loss: &Loss) -> u64 {
    let ordinals = loss.ranges.iter().flat_map(|(from, to)| [from.to_be_bytes(), to.to_be_bytes()]);
    xxh3_64(&ordinals.collect::<Vec<_>>().concat())
}

impl<'a> Restorer<'a> {
    /// For a node without any records of its log.
    pub fn new(node: &'a mut Node) -> Restorer<'a> {
        Restorer { node, doubts: BTreeMap::new(), deferred: Vec::new() }
    }

    /// Takes in a record or a loss. An error means that the node cannot start with this loss or record.
    pub fn take(&mut self, replay: Replay) -> Result<(), String> {
        match replay {
            Replay::Record { record, covered, place, .. } => {
                let kind = record.kind();
                self.doubts.remove(&(Owner::of(&record), kind));
                self.node.recover(record, covered, place)?;
                let deferred = if kind == GENESIS { std::mem::take(&mut self.deferred) } else { Vec::new() };
                deferred.iter().try_for_each(|lost| self.lose_deferred(lost))
            }
            Replay::Promised { before } => {
                self.doubts.retain(|_, doubt| doubt.ordinal >= before);
                Ok(())
            }
            Replay::Lost { file, offset, loss } => self.lose(&format!("{file} at byte {offset}"), &loss),
        }
    }

    fn lose(&mut self, place: &str, loss: &Loss) -> Result<(), String> {
        let Some((ordinal, _)) = loss.ranges.first().copied() else {
            return Err("it is unknown what is lost".into());
        };
        let doubt = Doubt { place: place.into(), ordinal, loss: digest(loss), named: true };
        let (own, of_replicas): (Vec<_>, Vec<_>) = loss.owners.keys().partition(|(owner, _)| *owner == Owner::Node);
        for (owner, kind) in own {
            self.lose_one(owner, kind, &doubt)?;
        }
        let lost = Deferred { doubt, owners: of_replicas, unknown: loss.unknown > 0 };
        if lost.owners.is_empty() && !lost.unknown {
            return Ok(());
        }
        if self.node.genesis().is_some() {
            return self.lose_deferred(&lost);
        }
        if self.deferred.len() >= DEFERRED_MAX {
            return Err("it is unknown whose the lost records were: there are too many".into());
        }
        self.deferred.push(lost);
        Ok(())
    }

    /// Handles lost records of replicas, or of unknown kind, once the partitions are known.
    fn lose_deferred(&mut self, lost: &Deferred) -> Result<(), String> {
        for (owner, kind) in &lost.owners {
            self.lose_one(*owner, *kind, &lost.doubt)?;
        }
        if !lost.unknown {
            return Ok(());
        }
        // The lost record may be any that a log can have.
        self.node.lose_hints();
        self.lose_any(Owner::Node, &lost.doubt)?;
        self.node.lose_anywhere(lost.doubt.loss);
        let partitions: Vec<PartitionId> = self.node.inspect().iter().map(|view| view.partition).collect();
        partitions.into_iter().try_for_each(|partition| self.lose_any(Owner::Partition(partition), &lost.doubt))
    }

    /// Handles a lost record of this owner whose kind is unknown.
    fn lose_any(&mut self, owner: Owner, doubt: &Doubt) -> Result<(), String> {
        let doubt = Doubt { named: false, ..doubt.clone() };
        let kinds = if owner == Owner::Node { [b'B', b'M'] } else { [b'V', b'T'] };
        kinds.into_iter().try_for_each(|kind| self.lose_one(owner, Kind(kind), &doubt))
    }

    fn lose_one(&mut self, owner: Owner, kind: Kind, doubt: &Doubt) -> Result<(), String> {
        match (owner, kind.data_loss(), kind.0) {
            (Owner::Partition(partition), Some(data_loss), _) => self.node.lose(partition, doubt.loss, data_loss),
            (Owner::Partition(_), None, b'V') | (Owner::Node, None, b'B' | b'M') => {
                self.doubts.insert((owner, kind), doubt.clone());
                Ok(())
            }
            // The identity was read before any other record; neither it nor the cluster ever changes.
            (Owner::Node, None, b'I') => Ok(()),
            (Owner::Node, None, b'G') => {
                if self.node.genesis().is_none() {
                    self.doubts.insert((owner, kind), doubt.clone());
                }
                Ok(())
            }
            (Owner::Node, None, b'H' | b'Y' | b'D') => {
                self.node.lose_hints();
                Ok(())
            }
            // These records are lower bounds, and the next one of their kind dates the records before it.
            (Owner::Node, None, b'C' | b'A') => Ok(()),
            // Other nodes send it again.
            (Owner::Node, None, b'N') => Ok(()),
            (Owner::Node, None, b'U') => {
                self.node.lose_unanswered();
                Ok(())
            }
            (Owner::Node, None, _) if !kind.is_known() && self.node.genesis().is_none() => {
                Err(format!("an unknown record of {owner} is lost, and none says which cluster it is of"))
            }
            (_, None, _) if !kind.is_known() => self.lose_any(owner, doubt),
            _ => Err(format!("no node goes on without the {kind} of {owner}")),
        }
    }

    /// Ends the replay. An error means that the node must not start with what is left.
    pub fn finish(self) -> Result<(), String> {
        if let Some(Deferred { doubt: Doubt { place, .. }, .. }) = self.deferred.first() {
            return Err(format!(
                "{place}: it is unknown whose the lost records were, as none says which cluster it is of"
            ));
        }
        if let Some(((owner, kind), Doubt { place, ordinal, named, .. })) = self.doubts.first_key_value() {
            let lost = if *named {
                "the log lost"
            } else {
                "the log lost a record of which no head is left; it may have been"
            };
            let more = match self.doubts.len() - 1 {
                0 => String::new(),
                more => format!(" (nor do they {more} other promises)"),
            };
            return Err(format!(
                "{place}: around record {ordinal} {lost} a {kind} of {owner}, which nothing behind it replaces{more}: whoever \
                 went on without it could contradict what was promised"
            ));
        }
        match self.node.lost_for_good().first() {
            None => Ok(()),
            Some((partition, data_loss)) => {
                let what = if data_loss.table { "claims, and perhaps facts about tasks," } else { "facts about tasks" };
                Err(format!("{what} of {} are lost that no other replica has", Owner::Partition(*partition)))
            }
        }
    }
}

/// Plans a repair of the log of a stopped node, after which the node starts.
pub fn plan_repair<D: Disk>(disk: &D) -> Result<Plan, RepairError> {
    repair::plan(disk, try_start)
}

/// Starts a node on a disk, up to the point where it would serve.
fn try_start<D: Disk>(disk: Overlay<'_, D>) -> Result<Tried<'_, D>, String> {
    let files = disk.list().map_err(|error| error.to_string())?;
    let mut losses = Vec::new();
    let config = LogConfig { compact_bytes: u64::MAX, ..LogConfig::DEFAULT };
    let (_, mut log, replayed) = restore(disk, config, |replay| {
        if let Replay::Lost { file, offset, loss } = replay {
            losses.push(Lost { file: file.clone(), offset: *offset, loss: loss.clone() });
        }
    })?;
    let Replayed { cut_bytes, heads_mended, .. } = replayed;
    log.mend().map_err(|error| error.to_string())?;
    let mut steps = Vec::new();
    let last = segment_name(log.stats().segment);
    let mut step = |known| steps.push(Step { file: last.clone(), known });
    if !files.contains(&last) {
        step("is begun behind lost records, so that it stays known that they were durable".to_owned());
    }
    if cut_bytes > 0 {
        step(format!("{cut_bytes} bytes at the end, which a crash tore, are cut"));
    }
    if heads_mended > 0 {
        step(format!("{heads_mended} heads are written anew from their records"));
    }
    Ok(Tried { disk: log.into_disk(), steps, losses })
}

/// Restores the node of a directory that no node runs on, and changes nothing there. `see` sees all of the log. An error says why a
/// start would be refused.
fn restore<D: Disk>(
    disk: D,
    config: LogConfig,
    mut see: impl FnMut(&Replay),
) -> Result<(Node, Log<D>, Replayed), String> {
    let mut drawn = false;
    let draw = || {
        drawn = true;
        Identity { node: NodeId(0), incarnation: 0 }
    };
    let mut log = Log::open(disk, config, draw).map_err(|error| error.to_string())?;
    if drawn {
        return Err("a first start was cut short, and the next one begins the log again".into());
    }
    let Identity { node, incarnation } = log.identity();
    let founding = Founding {
        config: Config::default(),
        node,
        incarnation,
        name: String::new(),
        address: String::new(),
        zone: String::new(),
    };
    let mut node = Node::new(founding, 0);
    let mut restorer = Restorer::new(&mut node);
    let replayed = log.read(|replay| {
        see(&replay);
        restorer.take(replay)
    });
    let replayed = replayed.map_err(|error| error.to_string())?;
    restorer.finish()?;
    Ok((node, log, replayed))
}

#[cfg(test)]
mod repairs;
#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod verifies;
