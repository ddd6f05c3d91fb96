//! Verification of a log at rest, however damaged: nothing is changed, and nothing is refused.
//!
//! A start stops at the first fault; this continues to the end and reports all of them. Memory is bounded by the largest record and
//! the slots of one segment.

use super::disk::{Disk, DiskError};
use super::examine::{Findings, Loss, examine_each};
use super::frame::synced_before;
use super::reader::{Next, Reader};
use super::recovery::{OpenError, Position, describe, find_header, find_identity, header_fault};
use super::segment::{self, HEADER_BYTES, Header, HeaderFault};
use super::slot::Owner;
use super::snapshot;
use norn_model::record::{Kind, Record};
use norn_wire::ClusterId;

/// Most records of one segment that this version does not understand and that are reported individually.
const UNKNOWN_MAX: usize = 100;

/// An item of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A whole record.
    Record {
        /// Its position in the log.
        ordinal: u64,
        /// Owner and kind; `None` if this version does not understand it.
        of: Option<(Owner, Kind)>,
        /// The decoded record; `None` if this version does not understand it.
        record: Option<Record>,
        /// Bytes in the file.
        bytes: u64,
        /// Bytes of the body, before stuffing.
        body_bytes: u64,
        /// Highest ordinal up to which all was durable when it was written.
        synced: u64,
    },
    /// Bytes up to `end` that are not part of a record.
    Damage {
        /// Where they end.
        end: u64,
        /// The fault.
        known: String,
    },
}

/// The log's files: snapshots, and then segments.
fn files<D: Disk>(disk: &D) -> Result<Vec<String>, DiskError> {
    let files = disk.list()?;
    let (snapshots, rest): (Vec<String>, Vec<String>) =
        files.into_iter().partition(|file| snapshot::number(file).is_some());
    Ok(snapshots.into_iter().chain(rest.into_iter().filter(|file| segment::is_of_log(file))).collect())
}

/// Visits everything in all snapshots and segments, in order of files and offsets. A file with a damaged header is searched for
/// records all the same. Ordinals within a snapshot are its own.
pub fn inspect<D: Disk, E: From<DiskError>>(
    disk: &D,
    mut visit: impl FnMut(&str, u64, Entry) -> Result<(), E>,
) -> Result<(), E> {
    for file in &files(disk)? {
        let length = disk.length(file)?;
        let mut start = HEADER_BYTES as u64;
        match read_header(disk, file)? {
            Ok(header) => start = header.records_offset(),
            Err(fault) => {
                let end = start.min(length);
                visit(file, 0, Entry::Damage { end, known: header_fault(fault) })?;
            }
        }
        let mut reader = Reader::new(disk, file, start, length);
        let mut expected = None;
        loop {
            let (offset, entry) = match reader.next()? {
                Next::End => break,
                Next::Damage(damage) => {
                    let known = describe(damage.fault, expected);
                    (damage.offset, Entry::Damage { end: damage.end, known })
                }
                Next::Frame(frame) => {
                    let record = Record::decode(frame.body).ok();
                    let of = record.as_ref().map(|record| (Owner::of(record), record.kind()));
                    let (ordinal, bytes, body_bytes) = (frame.head.ordinal, frame.bytes, frame.body.len() as u64);
                    expected = ordinal.checked_add(1);
                    let synced = synced_before(ordinal, frame.head.unsynced);
                    (frame.offset, Entry::Record { ordinal, of, record, bytes, body_bytes, synced })
                }
            };
            visit(file, offset, entry)?;
        }
    }
    Ok(())
}

/// The head of a file of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The file.
    pub file: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// The header, or its fault.
    pub header: Result<Header, String>,
}

/// Reads the header of each snapshot and segment, and no record: a few hundred bytes a file. A file that is removed meanwhile, as a
/// running node does with obsolete ones, is left out.
pub fn heads<D: Disk>(disk: &D) -> Result<Vec<Head>, DiskError> {
    let mut heads = Vec::new();
    for file in files(disk)? {
        let read = disk.length(&file).and_then(|bytes| Ok((bytes, read_header(disk, &file)?)));
        match read {
            Ok((bytes, header)) => heads.push(Head { file, bytes, header: header.map_err(header_fault) }),
            Err(_) if !disk.list()?.contains(&file) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(heads)
}

/// A fault of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The segment.
    pub file: String,
    /// Offset where it begins.
    pub offset: u64,
    /// Description of the fault.
    pub known: String,
    /// The records lost by it.
    pub loss: Loss,
}

/// The outcome of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verified {
    /// Whole records.
    pub records: u64,
    /// Snapshots in use: one or none.
    pub snapshots: u64,
    /// Segments.
    pub segments: u64,
    /// Faults.
    pub problems: u64,
}

/// Checks every record and every head of a log, and reports faults in order of files and offsets.
pub fn verify<D: Disk>(disk: &D, tell: impl FnMut(Problem)) -> Result<Verified, DiskError> {
    let mut files = files(disk)?;
    let newest = files.iter().filter_map(|file| snapshot::number(file)).max();
    let first = newest.unwrap_or(1);
    // Files that a snapshot replaces are no longer in use.
    files.retain(|file| segment::number(file).or(snapshot::number(file)).is_none_or(|number| number >= first));
    let verified = Verified::default();
    let next_ordinal = newest.is_none().then_some(1);
    let mut verifier =
        Verifier { disk, tell, verified, expected: first, before: None, next_ordinal, gap: false, covered: 0 };
    if newest.is_some() {
        verifier.check_snapshot(&files.remove(0))?;
    }
    for (place, file) in files.iter().enumerate() {
        verifier.check_file(file, files.get(place + 1))?;
    }
    if newest.is_some() && files.is_empty() {
        let known = format!("{} should be here: the log goes on in it", segment::name(first));
        verifier.problem(&segment::name(first), 0, known, Loss::untold());
    }
    if let (Some(next), Some(last)) = (verifier.next_ordinal, files.last())
        && next <= verifier.covered
    {
        let covered = verifier.covered;
        let known = format!("the log ends before record {next}, and the snapshot knows of record {covered}");
        verifier.problem(last, disk.length(last)?, known, Loss::untold());
    }
    Ok(verifier.verified)
}

struct Verifier<'a, D, T> {
    disk: &'a D,
    tell: T,
    verified: Verified,
    /// Number of the next segment.
    expected: u64,
    /// The last intact header.
    before: Option<Header>,
    /// Ordinal after the last segment, as far as known.
    next_ordinal: Option<u64>,
    /// Segments before this one are missing or unusable: the next header shows which records are lost with them.
    gap: bool,
    /// Highest ordinal that the snapshot may reflect.
    covered: u64,
}

impl<D: Disk, T: FnMut(Problem)> Verifier<'_, D, T> {
    fn problem(&mut self, file: &str, offset: u64, known: String, loss: Loss) {
        self.verified.problems += 1;
        (self.tell)(Problem { file: file.into(), offset, known, loss });
    }

    fn check_file(&mut self, file: &str, after: Option<&String>) -> Result<(), DiskError> {
        self.verified.segments += 1;
        if segment::number(file) != Some(self.expected) {
            let known = format!("{} should be here", segment::name(self.expected));
            self.problem(file, 0, known, Loss::default());
            self.gap = true;
        }
        self.expected = segment::number(file).unwrap_or(self.expected) + 1;
        let header = match read_header(self.disk, file)? {
            Ok(header) => header,
            Err(fault) => match self.find_header(file, fault)? {
                Some(header) => header,
                None => return self.check_without_header(file, fault, after.is_none()),
            },
        };
        if after.is_some() && self.is_misplaced(file, &header) {
            let known = format!("the header is that of segment {}: the file was copied or renamed", header.segment);
            self.problem(file, 0, known, Loss::default());
            self.gap = true;
            return Ok(());
        }
        self.check_header(file, &header);
        let gap = std::mem::take(&mut self.gap);
        match self.next_ordinal {
            Some(next) if next == header.first_ordinal => {}
            Some(next) if gap && next < header.first_ordinal => {
                let loss = Loss::of_ranges(&[next..=header.first_ordinal - 1]);
                self.problem(file, 0, "the records before it are missing".into(), loss);
            }
            Some(next) => {
                let known =
                    format!("the segment begins with record {}, and it should with {next}", header.first_ordinal);
                self.problem(file, 0, known, Loss::untold());
            }
            None => {}
        }
        let mut unknown = Vec::new();
        let findings = examine_each(self.disk, file, &header, |frame| {
            if let Err(error) = Record::decode(frame.body)
                && unknown.len() < UNKNOWN_MAX
            {
                unknown.push((frame.offset, frame.head.ordinal, error));
            }
        })?;
        for (offset, ordinal, error) in unknown {
            let known = format!("record {ordinal} is whole, but this program does not understand it ({error})");
            self.problem(file, offset, known, Loss::default());
        }
        let last = match after {
            None => findings.synced,
            // All records of a segment were durable before the next one was begun.
            Some(after) => match read_header(self.disk, after)? {
                Ok(after) if after.segment == header.segment + 1 => after.first_ordinal.saturating_sub(1),
                _ => findings.highest(),
            },
        };
        self.check_findings(file, &header, &findings, last);
        self.before = Some(header);
        self.next_ordinal = Some(findings.end(last));
        Ok(())
    }

    /// Reconstructs a damaged header, if a start can do so too.
    fn find_header(&mut self, file: &str, fault: HeaderFault) -> Result<Option<Header>, DiskError> {
        let Some(number) = segment::number(file) else { return Ok(None) };
        let found = match (self.next_ordinal, self.before) {
            (Some(next_ordinal), Some(Header { cluster, node, .. })) => {
                let position = Position { next_ordinal, cluster, ..Position::default() };
                find_header(self.disk, number, node, &position, fault)
            }
            (_, None) if number == 1 => find_identity(self.disk, file, fault)
                .and_then(|identity| find_header(self.disk, 1, identity.node, &Position::default(), fault)),
            _ => return Ok(None),
        };
        match found {
            Err(OpenError::Disk(error)) => Err(error),
            Err(_) => Ok(None),
            Ok(header) => {
                let known =
                    format!("{}; all that it said stands elsewhere, and a start writes it anew", header_fault(fault));
                self.problem(file, 0, known, Loss::default());
                Ok(Some(header))
            }
        }
    }

    /// Reports a segment with a damaged header. At the end of the log a crash may have left it.
    fn check_without_header(&mut self, file: &str, fault: HeaderFault, last: bool) -> Result<(), DiskError> {
        let begun = last && matches!(fault, HeaderFault::Broken(_)) && self.disk.length(file)? <= HEADER_BYTES as u64;
        let known = header_fault(fault);
        if begun && self.verified.segments + self.verified.snapshots == 1 {
            let known =
                format!("{known}: a first start that was cut short leaves such, and the next one draws another node");
            self.problem(file, 0, known, Loss::untold());
        } else if begun {
            let known =
                format!("{known}: a crash leaves such, and a start removes it; records that were in it would be lost");
            self.problem(file, 0, known, Loss::default());
        } else {
            self.gap = true;
            // The next header shows which records are lost with it.
            self.problem(file, 0, known, if last { Loss::untold() } else { Loss::default() });
        }
        Ok(())
    }

    fn check_snapshot(&mut self, file: &str) -> Result<(), DiskError> {
        self.verified.snapshots += 1;
        match read_header(self.disk, file)? {
            Ok(header) => {
                self.check_header(file, &header);
                self.before = Some(header);
                self.next_ordinal = Some(header.first_ordinal);
            }
            Err(fault) => self.problem(file, 0, header_fault(fault), Loss::untold()),
        }
        let length = self.disk.length(file)?;
        let mut reader = Reader::new(self.disk, file, HEADER_BYTES as u64, length);
        let mut next_ordinal = 1;
        let (mut missing, mut damage, mut end) = (Vec::new(), None, None);
        loop {
            match reader.next()? {
                Next::End => break,
                Next::Damage(found) => {
                    damage.get_or_insert(found.offset);
                    let known = format!("{}, up to byte {}", describe(found.fault, None), found.end);
                    self.problem(file, found.offset, known, Loss::default());
                }
                Next::Frame(frame) => {
                    let (offset, ordinal) = (frame.offset, frame.head.ordinal);
                    let record = Record::decode(frame.body);
                    if end.is_some() && ordinal.checked_add(1) == Some(next_ordinal) {
                        continue;
                    }
                    if ordinal > next_ordinal && damage.is_some() && end.is_none() {
                        missing.push(next_ordinal..=ordinal - 1);
                    } else if ordinal != next_ordinal {
                        let known = format!("record {ordinal} is where {next_ordinal} should be");
                        self.problem(file, offset, known, Loss::untold());
                    }
                    next_ordinal = ordinal.saturating_add(1);
                    match record {
                        Ok(Record::End { covered, places, hints }) => end = Some((covered, places, hints)),
                        Ok(_) => self.verified.records += 1,
                        Err(error) => {
                            let known =
                                format!("record {ordinal} is whole, but this program does not understand it ({error})");
                            self.problem(file, offset, known, Loss::untold());
                        }
                    }
                }
            }
        }
        let Some((covered, places, hints)) = end else {
            self.problem(file, length, "the snapshot does not say that it ends here".into(), Loss::untold());
            return Ok(());
        };
        self.covered = covered;
        if !missing.is_empty() {
            let loss = snapshot::lost(&missing, &places, hints);
            self.problem(file, damage.unwrap_or(length), "records of the snapshot are missing".into(), loss);
        }
        Ok(())
    }

    /// Whether a file is a segment of this log under a wrong name, so that a start cannot use it.
    fn is_misplaced(&self, file: &str, header: &Header) -> bool {
        segment::number(file) != Some(header.segment) && self.before.is_none_or(|before| before.node == header.node)
    }

    fn check_header(&mut self, file: &str, header: &Header) {
        if segment::number(file).or(snapshot::number(file)) != Some(header.segment) {
            let known = format!("the header is that of segment {}: the file was copied or renamed", header.segment);
            self.problem(file, 0, known, Loss::untold());
        }
        if let Some(before) = self.before
            && before.node != header.node
        {
            let known = format!("it was written by node {}, and those before by {}", header.node, before.node);
            self.problem(file, 0, known, Loss::untold());
        }
        if let Some(before) = self.before
            && before.cluster != ClusterId::default()
            && before.cluster != header.cluster
        {
            let known = format!("it is of cluster {}, and the log before it of {}", header.cluster, before.cluster);
            self.problem(file, 0, known, Loss::untold());
        }
    }

    fn check_findings(&mut self, file: &str, header: &Header, findings: &Findings, last: u64) {
        self.verified.records += findings.whole();
        for found in &findings.faults {
            self.problem(file, found.offset, found.known(), Loss::default());
        }
        let loss = findings.lost(last);
        if !loss.is_empty() {
            let offset = findings.faults.first().map_or(header.records_offset(), |found| found.offset);
            self.problem(file, offset, "records that were durable are missing".into(), loss);
        }
        let torn = findings.lost(findings.highest()).count() - findings.lost(last.min(findings.highest())).count();
        if torn > 0 {
            let known = format!(
                "the heads of {torn} records at the end are without their records: a crash leaves such, and a start cuts them"
            );
            self.problem(file, header.records_offset(), known, Loss::default());
        }
        let heads = findings.heads_lost();
        if heads > 0 {
            let known = format!("{heads} whole records have no second copy of their head");
            self.problem(file, HEADER_BYTES as u64, known, Loss::default());
        }
    }
}

fn read_header<D: Disk>(disk: &D, file: &str) -> Result<Result<Header, HeaderFault>, DiskError> {
    let bytes = disk.read(file, 0, HEADER_BYTES)?;
    let of_snapshot = snapshot::number(file).is_some();
    Ok(if of_snapshot { Header::decode_snapshot(&bytes) } else { Header::decode(&bytes) })
}
