//! Whether a record is the one whose turn it is.

/// What a whole record is to those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The next one.
    Next,
    /// One that was read already, once more.
    Repeat,
    /// It has the ordinal of one that was read already and is another: two writes that each thought to be the only one.
    Conflict,
    /// Records are missing before it.
    Ahead,
    /// It is of an earlier segment.
    Behind,
}

/// The records of one segment that were read so far. Eight bytes for each.
#[derive(Debug)]
pub(crate) struct Sequence {
    first_ordinal: u64,
    /// None for those that are lost.
    fingerprints: Vec<Option<u32>>,
}

impl Sequence {
    /// Nothing of a segment was read yet.
    pub fn new(first_ordinal: u64) -> Sequence {
        assert!(first_ordinal > 0, "ordinals count from 1");
        Sequence { first_ordinal, fingerprints: Vec::new() }
    }

    /// Ordinal of the record whose turn it is.
    pub fn next_ordinal(&self) -> u64 {
        self.first_ordinal + self.fingerprints.len() as u64
    }

    /// Passes over the records before `ordinal`, which are lost.
    pub fn skip_to(&mut self, ordinal: u64) {
        assert!(ordinal > self.next_ordinal(), "only what is missing is passed over");
        self.fingerprints.resize((ordinal - self.first_ordinal) as usize, None);
    }

    /// Takes a record that was read, and says what it is.
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
