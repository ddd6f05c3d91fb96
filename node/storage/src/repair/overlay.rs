//! Overlay of uncommitted changes over a disk: reads through it see the changes, and the disk below stays as it is.

use crate::disk::{Disk, DiskError};
use std::collections::{BTreeMap, BTreeSet};

/// Name of a file on its way to another name.
pub const MOVING_SUFFIX: &str = ".moving";

/// The intended state of a file.
#[derive(Debug, Clone, Default)]
struct Layer {
    /// The file on the base disk that it is made from.
    source: Option<String>,
    /// Bytes of the source that are left.
    kept: u64,
    length: u64,
    /// Writes over it, in order.
    writes: Vec<(u64, Vec<u8>)>,
}

impl Layer {
    fn truncate(&mut self, length: u64) {
        self.kept = self.kept.min(length);
        self.length = self.length.min(length);
        for (offset, bytes) in &mut self.writes {
            bytes.truncate(length.saturating_sub(*offset).min(bytes.len() as u64) as usize);
        }
    }
}

/// A disk with changes in memory only. Memory is bounded by the bytes written.
#[derive(Debug)]
pub struct Overlay<'a, D> {
    base: &'a D,
    files: BTreeMap<String, Layer>,
    lengths: BTreeMap<String, u64>,
}

/// Changes to make to a disk.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    files: BTreeMap<String, Layer>,
    /// Files that are renamed or removed.
    leaving: BTreeSet<String>,
    /// Files on the base disk that change in any way.
    pub touched: BTreeSet<String>,
}

impl<'a, D: Disk> Overlay<'a, D> {
    /// An overlay without changes.
    pub fn new(base: &'a D) -> Result<Overlay<'a, D>, DiskError> {
        let mut lengths = BTreeMap::new();
        for file in base.list()? {
            let length = base.length(&file)?;
            lengths.insert(file, length);
        }
        let layer = |(file, length): (&String, &u64)| {
            let layer = Layer { source: Some(file.clone()), kept: *length, length: *length, writes: Vec::new() };
            (file.clone(), layer)
        };
        Ok(Overlay { base, files: lengths.iter().map(layer).collect(), lengths })
    }

    /// The changes that the base disk needs.
    pub fn into_changes(self) -> Changes {
        let mut changes = Changes::default();
        let stays = |file: &String, layer: &Layer| layer.source.as_ref() == Some(file);
        for file in self.lengths.keys() {
            if !self.files.get(file).is_some_and(|layer| stays(file, layer)) {
                changes.leaving.insert(file.clone());
                changes.touched.insert(file.clone());
            }
        }
        for (file, layer) in self.files {
            let same = stays(&file, &layer) && layer.writes.is_empty() && self.lengths[&file] == layer.length;
            if same {
                continue;
            }
            changes.touched.extend(layer.source.clone());
            changes.files.insert(file, layer);
        }
        changes
    }

    fn layer(&self, operation: &'static str, file: &str) -> Result<&Layer, DiskError> {
        self.files.get(file).ok_or_else(|| absent(operation, file))
    }
}

fn absent(operation: &'static str, file: &str) -> DiskError {
    DiskError { operation, file: file.into(), cause: "there is no such file".into(), full: false, lost: true }
}

impl Changes {
    /// Whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.leaving.is_empty()
    }

    /// Makes the changes. If this is interrupted anywhere, the result can be repaired again.
    pub fn apply<D: Disk>(&self, disk: &mut D) -> Result<(), DiskError> {
        let sources: BTreeSet<&String> = self.files.values().filter_map(|layer| layer.source.as_ref()).collect();
        for file in &self.leaving {
            if sources.contains(file) {
                disk.rename(file, &moving(file))?;
            } else {
                disk.remove(file)?;
            }
        }
        for (file, layer) in &self.files {
            if let Some(source) = layer.source.as_ref().filter(|source| *source != file) {
                disk.rename(&moving(source), file)?;
            }
            if layer.source.is_some() && disk.length(file)? > layer.kept {
                disk.truncate(file, layer.kept)?;
            }
            if layer.source.is_none() {
                disk.write(file, 0, &[])?;
            }
            for (offset, bytes) in layer.writes.iter().filter(|(_, bytes)| !bytes.is_empty()) {
                disk.write(file, *offset, bytes)?;
            }
            if disk.length(file)? < layer.length {
                disk.write(file, layer.length - 1, &[0])?;
            }
            disk.sync(file)?;
        }
        disk.sync_directory()
    }
}

fn moving(file: &str) -> String {
    format!("{file}{MOVING_SUFFIX}")
}

impl<D: Disk> Disk for Overlay<'_, D> {
    fn list(&self) -> Result<Vec<String>, DiskError> {
        Ok(self.files.keys().cloned().collect())
    }

    fn length(&self, file: &str) -> Result<u64, DiskError> {
        Ok(self.layer("length", file)?.length)
    }

    fn read(&self, file: &str, offset: u64, length: usize) -> Result<Vec<u8>, DiskError> {
        let layer = self.layer("read", file)?;
        let end = layer.length.min(offset.saturating_add(length as u64)).max(offset);
        let mut bytes = match &layer.source {
            Some(source) if offset < layer.kept => {
                self.base.read(source, offset, (layer.kept.min(end) - offset) as usize)?
            }
            Some(_) | None => Vec::new(),
        };
        bytes.resize((end - offset) as usize, 0);
        for (start, written) in &layer.writes {
            let (from, to) = ((*start).max(offset), (start + written.len() as u64).min(end));
            if from < to {
                let part = &written[(from - start) as usize..(to - start) as usize];
                bytes[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
            }
        }
        Ok(bytes)
    }

    fn write(&mut self, file: &str, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let known = self.files.contains_key(file) && self.read(file, offset, bytes.len())? == bytes;
        let layer = self.files.entry(file.into()).or_default();
        // A write of identical bytes is no change.
        if !known {
            layer.writes.push((offset, bytes.into()));
            layer.length = layer.length.max(offset + bytes.len() as u64);
        }
        Ok(())
    }

    fn truncate(&mut self, file: &str, length: u64) -> Result<(), DiskError> {
        self.files.get_mut(file).ok_or_else(|| absent("truncate", file))?.truncate(length);
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError> {
        let layer = self.files.remove(from).ok_or_else(|| absent("rename", from))?;
        self.files.insert(to.into(), layer);
        Ok(())
    }

    fn remove(&mut self, file: &str) -> Result<(), DiskError> {
        self.files.remove(file).map(drop).ok_or_else(|| absent("remove", file))
    }

    fn sync(&mut self, _file: &str) -> Result<(), DiskError> {
        Ok(())
    }

    fn sync_directory(&mut self) -> Result<(), DiskError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::double::Double;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Write(usize, u64, Vec<u8>),
        Truncate(usize, u64),
        Rename(usize, usize),
        Remove(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let file = || 0usize..4;
        let bytes = proptest::collection::vec(0u8..3, 1..6);
        let step = prop_oneof![
            4 => (file(), 0u64..12, bytes).prop_map(|(file, offset, bytes)| Step::Write(file, offset, bytes)),
            2 => (file(), 0u64..12).prop_map(|(file, length)| Step::Truncate(file, length)),
            2 => (file(), file()).prop_map(|(from, to)| Step::Rename(from, to)),
            1 => file().prop_map(Step::Remove),
        ];
        proptest::collection::vec(step, 0..12)
    }

    fn make(disk: &mut impl Disk, step: &Step) {
        let name = |file: &usize| format!("{file}.log");
        let _ = match step {
            Step::Write(file, offset, bytes) => disk.write(&name(file), *offset, bytes),
            // The test never extends a file by truncation.
            Step::Truncate(file, length) if disk.length(&name(file)).is_ok_and(|now| now >= *length) => {
                disk.truncate(&name(file), *length)
            }
            Step::Truncate(..) => Ok(()),
            Step::Rename(from, to) if from != to => disk.rename(&name(from), &name(to)),
            Step::Rename(..) => Ok(()),
            Step::Remove(file) => disk.remove(&name(file)),
        };
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

        /// Goal: an overlay shows the changed files and leaves the disk alone, and applying its changes makes them durable there.
        #[test]
        fn changes_are_seen_at_once_and_made_later(steps in steps()) {
            let files = (0..3).map(|file| (format!("{file}.log"), vec![file + 1; 8])).collect();
            let (below, mut direct) = (Double::with_files(&files), Double::with_files(&files));
            let mut overlay = Overlay::new(&below).expect("no fault");
            for step in &steps {
                make(&mut overlay, step);
                make(&mut direct, step);
            }
            let shown = |disk: &dyn Fn(&str) -> Vec<u8>, names: Vec<String>| -> BTreeMap<String, Vec<u8>> {
                names.into_iter().map(|name| (name.clone(), disk(&name))).collect()
            };
            let of_overlay = shown(&|name| overlay.read(name, 0, 99).expect("there"), overlay.list().expect("no fault"));
            prop_assert_eq!(&of_overlay, &direct.files());
            prop_assert_eq!(&below.files(), &files);
            let changes = overlay.into_changes();
            let differs = files.iter().filter(|(name, bytes)| direct.files().get(*name) != Some(bytes));
            prop_assert!(differs.into_iter().all(|(name, _)| changes.touched.contains(name)));
            changes.apply(&mut below.clone()).expect("no fault");
            prop_assert_eq!(below.crash(crate::double::Kept::Nothing, false).files(), direct.files());
        }
    }
}
