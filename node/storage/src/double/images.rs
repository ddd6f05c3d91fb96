//! Enumerates every state in which a crash may leave the disk, instead of a sample.

use super::{Change, Content, Double, write_at};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Files and their bytes.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Bytes that a disk writes atomically.
const SECTOR_BYTES: usize = 512;
/// Most pending writes of one file whose subsets are enumerated.
const PENDING_MAX: usize = 10;

/// A part of a write that arrived.
#[derive(Debug, Clone)]
struct Tear {
    part: Range<usize>,
    /// The file has the length of the whole write; what did not arrive reads as zeroes.
    length_kept: bool,
}

/// All tears of a write: none of its bytes, or those before or after a place. Places are after the first byte, before the last byte,
/// the middle, and the ends of sectors.
fn tears(offset: usize, bytes: usize) -> Vec<Tear> {
    let sectors = (offset / SECTOR_BYTES + 1..).map(|sector| sector * SECTOR_BYTES - offset);
    let mut places: BTreeSet<usize> = sectors.take_while(|place| *place < bytes).collect();
    places.extend([1, bytes / 2, bytes.saturating_sub(1)].into_iter().filter(|place| (1..bytes).contains(place)));
    let mut tears = vec![Tear { part: 0..0, length_kept: true }];
    for place in places {
        tears.push(Tear { part: 0..place, length_kept: false });
        tears.push(Tear { part: 0..place, length_kept: true });
        tears.push(Tear { part: place..bytes, length_kept: true });
    }
    tears
}

impl Content {
    /// Every subset of the pending changes, and every subset of the others beside each tear of one.
    fn images(&self) -> BTreeSet<Vec<u8>> {
        let count = self.pending.len();
        assert!(count <= PENDING_MAX, "{count} pending writes have too many subsets: sync more often");
        let mut torn = vec![None];
        for (place, change) in self.pending.iter().enumerate() {
            if let Change::Write(offset, bytes) = change {
                torn.extend(tears(*offset, bytes.len()).into_iter().map(|tear| Some((place, tear))));
            }
        }
        let mut images = BTreeSet::new();
        for torn in &torn {
            for kept in 0..1_usize << count {
                let is_kept = |place: usize| kept >> place & 1 == 1;
                // A torn write is neither kept nor absent.
                if torn.as_ref().is_none_or(|(place, _)| !is_kept(*place)) {
                    images.insert(self.image(is_kept, torn.as_ref()));
                }
            }
        }
        images
    }

    fn image(&self, is_kept: impl Fn(usize) -> bool, torn: Option<&(usize, Tear)>) -> Vec<u8> {
        let mut file = self.durable.clone();
        for (place, change) in self.pending.iter().enumerate() {
            match (change, torn) {
                (Change::Write(offset, bytes), Some((other, Tear { part, length_kept }))) if *other == place => {
                    if *length_kept {
                        file.resize(file.len().max(offset + bytes.len()), 0);
                    }
                    if !part.is_empty() {
                        write_at(&mut file, offset + part.start, &bytes[part.clone()]);
                    }
                }
                (Change::Write(offset, bytes), _) if is_kept(place) => write_at(&mut file, *offset, bytes),
                (Change::Truncate(length), _) if is_kept(place) => file.truncate(*length),
                (Change::Write(..) | Change::Truncate(_), _) => {}
            }
        }
        file
    }
}

impl Double {
    /// All states that a crash now may leave, each once: every prefix of the pending name changes, and with each of them every subset
    /// of the pending writes, with at most one torn write in each file.
    pub fn images(&self) -> BTreeSet<Files> {
        let state = self.0.borrow();
        let mut names = state.durable_names.clone();
        let mut images = BTreeSet::new();
        let mut renames = state.pending_names.iter();
        loop {
            let mut of_names = vec![Files::new()];
            for (name, number) in &names {
                let contents = state.contents[number].images();
                let with = |files: &Files, bytes: &Vec<u8>| {
                    let mut files = files.clone();
                    files.insert(name.clone(), bytes.clone());
                    files
                };
                of_names =
                    of_names.iter().flat_map(|files| contents.iter().map(move |bytes| with(files, bytes))).collect();
            }
            images.extend(of_names);
            match renames.next() {
                Some(rename) => rename.apply(&mut names),
                None => break,
            }
        }
        assert_eq!(names, state.names, "all changes of names lead to what there is now");
        images
    }
}
