//! Repair of a damaged log so that a node starts on it, as far as that works without dropping or inventing data.
//!
//! A start mends what a crash leaves, and continues after lost records and lost segments, which it fetches from other replicas. A
//! repair recovers data that a start would give up, and makes changes that need an operator's consent: it gives files the names that
//! their headers have, removes files of other nodes, and reconstructs headers and heads from the remaining data. If a promise that
//! nothing replaces is lost, or the node's identity is, no repair helps, and none is made.
//!
//! Everything is tried on an `Overlay` first, including a node that starts on it; only then are files changed, and every file that
//! changes is backed up. A log that starts and cannot be improved is left as it is. A second repair finds nothing to do.

use super::disk::{Disk, DiskError};
use super::examine::{Loss, examine, read_region};
use super::reader::{Next, READ_BYTES, Reader};
use super::recovery::{self, OpenError, header_error, mend_heads};
use super::segment::{self, Header, HeaderFault};
use super::slot::{SLOT_BYTES, Slot};
use super::snapshot;
use norn_model::record::Record;
use norn_wire::{ClusterId, NodeId};
use std::collections::BTreeMap;

mod header;
mod overlay;

use header::{Known, rebuild};
pub use overlay::Changes;
use overlay::MOVING_SUFFIX;
pub use overlay::Overlay;

/// One change that a repair makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The file.
    pub file: String,
    /// Description of the change.
    pub known: String,
}

/// Why a log is not repaired. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RepairError {
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The remaining data is not enough for a node, or is ambiguous.
    #[error("{file}: {known}")]
    Refused {
        /// The file, or several.
        file: String,
        /// The reason.
        known: String,
    },
    /// A node would refuse to start even on the repaired log.
    #[error("no repair makes this log one that starts: {0}")]
    Start(String),
}

/// Records that stay lost whichever way the log is repaired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// The file.
    pub file: String,
    /// Offset at which the damage begins.
    pub offset: u64,
    /// The lost records.
    pub loss: Loss,
}

/// The plan of a repair.
#[derive(Debug)]
pub struct Plan {
    /// Changes, in order.
    pub steps: Vec<Step>,
    /// Losses that a start will report, and other replicas restore.
    pub losses: Vec<Lost>,
    /// Changes to the disk.
    pub changes: Changes,
    /// Why no more of the log is recovered, though the node starts on it.
    pub left: Option<RepairError>,
}

/// A trial start on an overlay.
pub struct Tried<'a, D> {
    /// The overlay, with the repairs that the start made.
    pub disk: Overlay<'a, D>,
    /// Those repairs.
    pub steps: Vec<Step>,
    /// Losses that the start could not repair.
    pub losses: Vec<Lost>,
}

/// Plans a repair. `start` must try to start a node on the given overlay; an error from it refuses the repair.
pub fn plan<'a, D: Disk>(
    disk: &'a D,
    start: impl Fn(Overlay<'a, D>) -> Result<Tried<'a, D>, String>,
) -> Result<Plan, RepairError> {
    let reason = match plan_all(disk, &start) {
        Ok(plan) => return Ok(plan),
        Err(RepairError::Disk(error)) => return Err(error.into()),
        Err(reason) => reason,
    };
    match start(Overlay::new(disk)?) {
        Ok(tried) => Ok(plan_of(tried, Vec::new(), Some(reason))),
        Err(_) => Err(reason),
    }
}

/// The plan from the steps before the trial start and those of the start itself.
fn plan_of<D: Disk>(tried: Tried<'_, D>, mut steps: Vec<Step>, left: Option<RepairError>) -> Plan {
    let Tried { disk, steps: mended, losses } = tried;
    steps.extend(mended);
    let changes = disk.into_changes();
    let untold = changes.touched.iter().filter(|file| steps.iter().all(|step| step.file != **file));
    let headers = untold.map(|file| Step { file: file.clone(), known: "its header is written anew".into() });
    steps.extend(headers.collect::<Vec<Step>>());
    Plan { steps, losses, changes, left }
}

/// A plan that recovers as much as possible.
fn plan_all<'a, D: Disk>(
    disk: &'a D,
    start: &impl Fn(Overlay<'a, D>) -> Result<Tried<'a, D>, String>,
) -> Result<Plan, RepairError> {
    let mut repair = Repair { disk: Overlay::new(disk)?, steps: Vec::new() };
    repair.arrange()?;
    let Repair { disk, steps } = repair;
    Ok(plan_of(start(disk).map_err(RepairError::Start)?, steps, None))
}

/// Backs up every file that a repair changes, durably.
pub fn keep<D: Disk>(changes: &Changes, disk: &D, aside: &mut impl Disk) -> Result<(), DiskError> {
    for file in &changes.touched {
        let length = disk.length(file)?;
        aside.write(file, 0, &[])?;
        let mut offset = 0;
        while offset < length {
            let bytes = disk.read(file, offset, READ_BYTES.min((length - offset) as usize))?;
            if bytes.is_empty() {
                let cause = format!("it ends at byte {offset} of {length}").into();
                return Err(DiskError { operation: "read", file: file.clone(), cause, full: false, lost: true });
            }
            aside.write(file, offset, &bytes)?;
            offset += bytes.len() as u64;
        }
        aside.sync(file)?;
    }
    aside.sync_directory()
}

/// A file and its header.
struct Found {
    file: String,
    header: Result<Header, HeaderFault>,
}

struct Repair<'a, D> {
    disk: Overlay<'a, D>,
    steps: Vec<Step>,
}

fn refused(file: &str, known: impl Into<String>) -> RepairError {
    RepairError::Refused { file: file.into(), known: known.into() }
}

fn read_header(disk: &impl Disk, file: &str, of_snapshot: bool) -> Result<Result<Header, HeaderFault>, DiskError> {
    let bytes = disk.read(file, 0, segment::HEADER_BYTES)?;
    Ok(if of_snapshot { Header::decode_snapshot(&bytes) } else { Header::decode(&bytes) })
}

/// The most frequent value; the least of several that are equally frequent.
fn most<T: Ord + Copy>(said: impl Iterator<Item = T>) -> Option<T> {
    let mut counts: BTreeMap<T, usize> = BTreeMap::new();
    said.for_each(|one| *counts.entry(one).or_default() += 1);
    let highest = counts.values().max().copied()?;
    counts.into_iter().find(|(_, count)| *count == highest).map(|(one, _)| one)
}

impl<D: Disk> Repair<'_, D> {
    fn step(&mut self, file: &str, known: impl Into<String>) {
        self.steps.push(Step { file: file.into(), known: known.into() });
    }

    /// Repairs files, names and headers, and then the heads.
    fn arrange(&mut self) -> Result<(), RepairError> {
        let files = self.disk.list()?;
        let newest = files.iter().filter_map(|file| snapshot::number(file)).max();
        let first = newest.unwrap_or(1);
        let mut segments = self.name_segments(&files, first)?;
        if let Some(number) = newest {
            self.mend_snapshot(number, segments.get(&number))?;
        }
        let Some(last) = segments.keys().next_back().copied() else {
            return Err(refused(&segment::name(first), "there is no log"));
        };
        self.walk(first, last, newest, &mut segments)?;
        for number in segments.into_keys().filter(|number| *number < last) {
            self.mend_slots(number)?;
        }
        Ok(())
    }

    /// Gives every segment the name that its header has; removes files that are not of this log.
    fn name_segments(
        &mut self,
        files: &[String],
        first: u64,
    ) -> Result<BTreeMap<u64, Result<Header, HeaderFault>>, RepairError> {
        let is_segment = |file: &&String| segment::is_of_log(file.strip_suffix(MOVING_SUFFIX).unwrap_or(file));
        let mut found = Vec::new();
        for file in files.iter().filter(is_segment) {
            let header = read_header(&self.disk, file, false)?;
            if let Err(fault @ (HeaderFault::Format(_) | HeaderFault::Records(_))) = header {
                return Err(RepairError::Start(header_error(file, fault).to_string()));
            }
            found.push(Found { file: file.clone(), header });
        }
        let whole = || found.iter().filter_map(|found| found.header.ok());
        let node = most(whole().map(|header| header.node));
        let cluster = most(whole().map(|header| header.cluster).filter(|cluster| *cluster != ClusterId::default()));
        let is_ours = |header: &Header| {
            Some(header.node) == node && (header.cluster == ClusterId::default() || Some(header.cluster) == cluster)
        };
        let mut places: BTreeMap<u64, Vec<Found>> = BTreeMap::new();
        for found in found {
            let by_name = segment::number(&found.file);
            match found.header {
                Ok(header) if is_ours(&header) && header.segment < first => {}
                Ok(header) if is_ours(&header) => places.entry(header.segment).or_default().push(found),
                Ok(_) => self.take_away(&found.file, "it is of another node or cluster")?,
                Err(_) if by_name.is_some_and(|number| number < first) => {}
                Err(_) => match by_name {
                    Some(number) => places.entry(number).or_default().push(found),
                    None => self.take_away_empty(&found.file)?,
                },
            }
        }
        let mut segments = BTreeMap::new();
        let mut moves = Vec::new();
        for (number, mut claims) in places {
            // A file with an intact header takes precedence over one that only has the name.
            claims.sort_by_key(|found| (found.header.is_err(), segment::number(&found.file) != Some(number)));
            let chosen = claims.remove(0);
            for other in claims {
                self.drop_duplicate(&chosen.file, &other)?;
            }
            segments.insert(number, chosen.header);
            if segment::number(&chosen.file) != Some(number) {
                moves.push((chosen.file, segment::name(number)));
            }
        }
        self.rename_all(&moves)?;
        Ok(segments)
    }

    /// Renames all files at once, as one may take the name of another.
    fn rename_all(&mut self, moves: &[(String, String)]) -> Result<(), RepairError> {
        for (from, to) in moves {
            self.step(from, format!("is renamed to {to}, as its header says"));
            self.disk.rename(from, &format!("{to}.renamed"))?;
        }
        for (_, to) in moves {
            self.disk.rename(&format!("{to}.renamed"), to)?;
        }
        Ok(())
    }

    fn take_away(&mut self, file: &str, why: &str) -> Result<(), RepairError> {
        self.step(file, format!("is taken away: {why}"));
        Ok(self.disk.remove(file)?)
    }

    /// Removes a file of unknown position in the log, which is allowed only if it holds no record.
    fn take_away_empty(&mut self, file: &str) -> Result<(), RepairError> {
        if self.holds_records(file)? {
            return Err(refused(file, "it holds records, and nothing says where they belong"));
        }
        self.take_away(file, "it holds no record, and no segment of the log has such a name")
    }

    /// Removes a second file for the same segment, if it is a copy or holds no record.
    fn drop_duplicate(&mut self, chosen: &str, other: &Found) -> Result<(), RepairError> {
        if other.header.is_err() {
            if self.holds_records(&other.file)? {
                return Err(refused(&other.file, format!("it holds records, and {chosen} is that segment")));
            }
            return self.take_away(&other.file, &format!("it holds no record, and {chosen} is that segment"));
        }
        if self.contents_differ(chosen, &other.file)? {
            return Err(refused(&other.file, format!("{chosen} says to be the same segment, and differs")));
        }
        self.take_away(&other.file, &format!("it is a copy of {chosen}"))
    }

    fn contents_differ(&self, one: &str, other: &str) -> Result<bool, DiskError> {
        let length = self.disk.length(one)?;
        if self.disk.length(other)? != length {
            return Ok(true);
        }
        for offset in (0..length).step_by(READ_BYTES) {
            if self.disk.read(one, offset, READ_BYTES)? != self.disk.read(other, offset, READ_BYTES)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn holds_records(&self, file: &str) -> Result<bool, DiskError> {
        let mut reader = Reader::new(&self.disk, file, 0, self.disk.length(file)?);
        loop {
            match reader.next()? {
                Next::End => return Ok(false),
                Next::Frame(_) => return Ok(true),
                Next::Damage(_) => {}
            }
        }
    }

    /// Repairs the header of a snapshot from that of the segment after it, which has the same fields.
    fn mend_snapshot(&mut self, number: u64, segment: Option<&Result<Header, HeaderFault>>) -> Result<(), RepairError> {
        let file = snapshot::name(number);
        match (read_header(&self.disk, &file, true)?, segment) {
            (Ok(header), _) if header.segment == number => Ok(()),
            (Ok(header), _) => Err(refused(&file, format!("it is the snapshot before segment {}", header.segment))),
            (Err(HeaderFault::Broken(_)), Some(Ok(segment))) => {
                self.disk.write(&file, 0, &Header { slots: 0, ..*segment }.encode())?;
                self.step(&file, "its header is written anew from that of the segment behind it");
                Ok(())
            }
            (Err(fault), _) => Err(RepairError::Start(header_error(&file, fault).to_string())),
        }
    }

    /// Goes through all segments in order, and reconstructs missing headers as far as possible.
    fn walk(
        &mut self,
        first: u64,
        last: u64,
        newest: Option<u64>,
        segments: &mut BTreeMap<u64, Result<Header, HeaderFault>>,
    ) -> Result<(), RepairError> {
        let mut known = Known {
            cluster: ClusterId::default(),
            node: self.node(newest, segments)?,
            segment: first,
            next_ordinal: 1,
        };
        if let Some(number) = newest
            && let Ok(header) = read_header(&self.disk, &snapshot::name(number), true)?
        {
            (known.cluster, known.next_ordinal) = (header.cluster, header.first_ordinal);
        }
        // Missing segments in between are lost. Names alone do not bound how many files that may be.
        for number in segments.keys().copied().collect::<Vec<u64>>() {
            known.segment = number;
            let file = segment::name(number);
            let header = match segments[&number] {
                Ok(header) => Some(header),
                Err(_) if number == last && self.is_begun(&file)? => return Ok(()),
                Err(_) => match rebuild(&self.disk, &file, known)? {
                    Some(header) => {
                        self.disk.write(&file, 0, &header.encode())?;
                        self.step(&file, "its header is written anew from its records and their heads");
                        Some(header)
                    }
                    None if number == last => {
                        return Err(refused(&file, "it is unknown what is lost with it: restore it from a copy"));
                    }
                    None => None,
                },
            };
            // If a segment is unusable, the next header shows how many records are lost with it.
            if let Some(header) = header {
                segments.insert(number, Ok(header));
                let (end, cluster) = self.end_of(&file, &header)?;
                known.next_ordinal = end;
                known.cluster = if header.cluster == ClusterId::default() { cluster } else { header.cluster };
            }
            if let Some((_, Ok(after))) = segments.range(number + 1..).next() {
                known.next_ordinal = after.first_ordinal;
                if known.cluster == ClusterId::default() {
                    known.cluster = after.cluster;
                }
            }
        }
        Ok(())
    }

    /// The node that wrote the log, from a snapshot or any segment.
    fn node(
        &self,
        newest: Option<u64>,
        segments: &BTreeMap<u64, Result<Header, HeaderFault>>,
    ) -> Result<NodeId, RepairError> {
        if let Some(header) = segments.values().find_map(|header| header.ok()) {
            return Ok(header.node);
        }
        let file = segment::name(1);
        let identity = match newest {
            Some(number) => snapshot::read_identity(&self.disk, number),
            None if !segments.contains_key(&1) => {
                return Err(refused(&file, "it is missing, and nothing says whose log this is"));
            }
            None => {
                recovery::find_identity(&self.disk, &file, HeaderFault::Broken("no header of any segment is whole"))
            }
        };
        identity.map(|identity| identity.node).map_err(|error: OpenError| RepairError::Start(error.to_string()))
    }

    /// Whether a last segment is no longer than its header. A crash may leave such a segment, and a start removes it.
    fn is_begun(&self, file: &str) -> Result<bool, DiskError> {
        Ok(self.disk.length(file)? <= segment::HEADER_BYTES as u64)
    }

    /// The ordinal after the last record of which a segment has a trace, and the first cluster that it names.
    fn end_of(&self, file: &str, header: &Header) -> Result<(u64, ClusterId), RepairError> {
        let findings = examine(&self.disk, file, header)?;
        let mut cluster = ClusterId::default();
        if header.cluster == ClusterId::default() {
            let mut reader = Reader::new(&self.disk, file, header.records_offset(), self.disk.length(file)?);
            while cluster == ClusterId::default() {
                match reader.next()? {
                    Next::End => break,
                    Next::Damage(_) => {}
                    Next::Frame(frame) => {
                        if let Ok(Record::Genesis(genesis)) = Record::decode(frame.body) {
                            cluster = genesis.cluster;
                        }
                    }
                }
            }
        }
        Ok((findings.highest() + 1, cluster))
    }

    /// Rewrites the heads of a segment where they disagree with its records. A start does that for the last segment.
    fn mend_slots(&mut self, number: u64) -> Result<(), RepairError> {
        let file = segment::name(number);
        let Ok(header) = read_header(&self.disk, &file, false)? else { return Ok(()) };
        let mut heads: Vec<Option<Slot>> = vec![None; header.slots as usize];
        let mut reader = Reader::new(&self.disk, &file, header.records_offset(), self.disk.length(&file)?);
        loop {
            match reader.next()? {
                Next::End => break,
                Next::Damage(_) => {}
                Next::Frame(frame) => {
                    let Ok(record) = Record::decode(frame.body) else { continue };
                    let ordinal = frame.head.ordinal;
                    if header.has_slot(ordinal) {
                        let slot = &mut heads[(ordinal - header.first_ordinal) as usize];
                        *slot = slot.or(Slot::of(&frame.head, frame.offset, frame.bytes, &record));
                    }
                }
            }
        }
        // Heads of lost records stay: they name the owners.
        let found = read_region(&self.disk, &file, &header)?.len() / SLOT_BYTES;
        let end = heads.iter().rposition(Option::is_some).map_or(0, |place| place + 1).max(found);
        let mended = mend_heads(&mut self.disk, &file, &header, &heads[..end])?;
        if mended > 0 {
            self.step(&file, format!("{mended} heads are written anew from their records"));
        }
        Ok(())
    }
}
