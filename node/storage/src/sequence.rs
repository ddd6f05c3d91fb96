//! Order of records by ordinal: whether a record is the expected next one.

/// Relation of a whole record to those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// The next one.
    Next,
    /// A repetition of a record that was read already.
    Repeat,
    /// A different record under an ordinal that was read already: two writers, each of which took itself for the only one.
    Conflict,
    /// Records are missing before it.
    Ahead,
    /// It is of an earlier segment.
    Behind,
}

/// Records of one segment that were read so far. Eight bytes for each.
#[derive(Debug)]
pub struct Sequence {
    first_ordinal: u64,
    /// `None` for lost records.
    fingerprints: Vec<Option<u32>>,
}

impl Sequence {
    /// A segment of which nothing is read yet.
    pub fn new(first_ordinal: u64) -> Sequence {
        assert!(first_ordinal > 0, "ordinals count from 1");
        Sequence { first_ordinal, fingerprints: Vec::new() }
    }

    /// Ordinal of the next record.
    pub fn next_ordinal(&self) -> u64 {
        self.first_ordinal + self.fingerprints.len() as u64
    }

    /// Skips the records before `ordinal`, which are lost.
    pub fn skip_to(&mut self, ordinal: u64) {
        assert!(ordinal > self.next_ordinal(), "only what is missing is passed over");
        self.fingerprints.resize((ordinal - self.first_ordinal) as usize, None);
    }

    /// Takes a record that was read, and classifies it.
    pub fn take(&mut self, ordinal: u64, fingerprint: u32) -> Turn {
        if ordinal == self.next_ordinal() {
            self.fingerprints.push(Some(fingerprint));
            return Turn::Next;
        }
        let Some(place) = ordinal.checked_sub(self.first_ordinal) else { return Turn::Behind };
        match self.fingerprints.get(place as usize) {
            None => Turn::Ahead,
            Some(known) if *known == Some(fingerprint) => Turn::Repeat,
            Some(_) => Turn::Conflict,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // E11, E12
    #[test]
    fn every_record_has_its_turn() {
        let mut sequence = Sequence::new(5);
        assert_eq!(sequence.take(6, 60), Turn::Ahead);
        assert_eq!(sequence.take(u64::MAX, 60), Turn::Ahead);
        assert_eq!(sequence.take(5, 50), Turn::Next);
        assert_eq!(sequence.take(6, 60), Turn::Next);
        assert_eq!(sequence.take(5, 50), Turn::Repeat);
        assert_eq!(sequence.take(6, 50), Turn::Conflict);
        assert_eq!(sequence.take(4, 50), Turn::Behind);
        assert_eq!(sequence.next_ordinal(), 7);
    }
}
