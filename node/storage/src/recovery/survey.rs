//! Survey: which files of a directory belong to the log.

use super::super::disk::{Disk, DiskError};
use super::super::{segment, snapshot};
use super::{OpenError, read_header};

/// Result of listing the log's files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Survey {
    /// Whether there is a snapshot, which replaces all segments before `first`.
    pub snapshot: bool,
    /// Number of the first segment in use, whether the file exists or not.
    pub first: u64,
    /// Number of the last segment; less than `first` if there is none.
    pub last: u64,
    /// Existing segments, in order. After a gap, at least one header confirms its file's name.
    pub segments: Vec<u64>,
    /// Files that are obsolete, or were never finished; the oldest comes last.
    pub obsolete: Vec<String>,
}

impl Survey {
    /// Number of the newest snapshot, if there is one.
    pub fn snapshot(&self) -> Option<u64> {
        self.snapshot.then_some(self.first)
    }

    /// Whether the log never got beyond its first segment.
    pub fn alone(&self) -> bool {
        !self.snapshot && self.segments == [1]
    }
}

/// Whether a segment's header has the number in its name.
fn is_called_right<D: Disk>(disk: &D, number: u64) -> Result<bool, DiskError> {
    Ok(read_header(disk, &segment::name(number))?.is_ok_and(|header| header.segment == number))
}

/// Checks the names of all segments and snapshots.
pub fn survey<D: Disk>(disk: &D) -> Result<Survey, OpenError> {
    let files = disk.list()?;
    let newest = files.iter().filter_map(|file| snapshot::number(file)).max();
    let mut survey = Survey { snapshot: newest.is_some(), first: newest.unwrap_or(1), ..Survey::default() };
    survey.last = survey.first - 1;
    // The last gap: the first missing file in it, and the file after it.
    let mut gap = None;
    for file in files {
        let superseded = snapshot::number(&file).is_some_and(|number| number < survey.first);
        if superseded || snapshot::is_partial(&file) || segment::is_partial(&file) {
            survey.obsolete.push(file);
            continue;
        }
        if !segment::is_of_log(&file) {
            continue;
        }
        let Some(number) = segment::number(&file) else {
            return Err(OpenError::Names { file, known: "no segment of the log has such a name".into() });
        };
        if number < survey.first {
            survey.obsolete.push(file);
            continue;
        }
        if number != survey.last + 1 {
            gap = Some((segment::name(survey.last + 1), file));
        }
        survey.last = number;
        survey.segments.push(number);
    }
    // The replay reports the records lost in a gap. A file that merely has a segment's name is refused.
    if let Some((missing, file)) = gap {
        let mut behind = survey.segments.iter().rev().take_while(|number| segment::name(**number) >= file);
        let known = format!("{missing} should come before it and is missing");
        let is_one_right = behind.try_fold(false, |right, number| Ok(right || is_called_right(disk, *number)?));
        if !is_one_right.map_err(OpenError::Disk)? {
            return Err(OpenError::Names { file, known });
        }
    }
    survey.obsolete.reverse();
    if survey.snapshot && survey.last < survey.first {
        let file = snapshot::name(survey.first);
        let known = format!("the log goes on in {} after it, and that is missing", segment::name(survey.first));
        return Err(OpenError::Names { file, known });
    }
    Ok(survey)
}
