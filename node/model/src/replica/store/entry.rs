//! A task as a store keeps it. There is one entry for each task of a node, so its size decides how many a machine can hold: what is
//! derived from the task is packed into words, and what few tasks have stands behind a pointer.

use super::Class;
use crate::task::{Digest, Outline, Task};
use norn_wire::State;

/// A task and what is derived from it.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub task: Task<Outline>,
    /// Two words, since a 16-byte number would align all the fields beside it to its own size.
    digest: [u64; 2],
    class: u64,
}

/// A field that most tasks leave empty belongs behind the pointer of `Outline`; `node/docs/operating.md` states the memory of a task.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Entry>() <= 88);

impl Entry {
    pub fn new(task: Task<Outline>, digest: Digest, class: Class) -> Entry {
        let mut entry = Entry { task, digest: [0; 2], class: packed(class) };
        entry.set_digest(digest);
        entry
    }

    pub fn digest(&self) -> Digest {
        let [low, high] = self.digest.map(Digest::from);
        high << u64::BITS | low
    }

    pub fn set_digest(&mut self, digest: Digest) {
        self.digest = [digest as u64, (digest >> u64::BITS) as u64];
    }

    pub fn class(&self) -> Class {
        unpacked(self.class)
    }

    pub fn set_class(&mut self, class: Class) {
        self.class = packed(class);
    }
}

/// A class in one word: the end of a delay or, above the last such time, the number of another class.
fn packed(class: Class) -> u64 {
    let number = match class {
        Class::Delayed(until_ms) => {
            assert!(until_ms <= Class::NEVER_MS, "no delay is longer");
            return until_ms;
        }
        Class::Orphan => 1,
        Class::Ready => 2,
        Class::Blocked => 3,
        Class::Held => 4,
        Class::Ended(state) => FIRST_STATE + state as u64,
    };
    Class::NEVER_MS + number
}

const FIRST_STATE: u64 = 5;
const _: () = assert!(FIRST_STATE + State::ALL.len() as u64 <= u64::MAX - Class::NEVER_MS + 1);

fn unpacked(class: u64) -> Class {
    match class.saturating_sub(Class::NEVER_MS) {
        0 => Class::Delayed(class),
        1 => Class::Orphan,
        2 => Class::Ready,
        3 => Class::Blocked,
        4 => Class::Held,
        number => Class::Ended(State::ALL[(number - FIRST_STATE) as usize]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_gives_back_what_it_packs() {
        let delays = [0, 1, 1_700_000_000_000, Class::NEVER_MS - 1, Class::NEVER_MS].map(Class::Delayed);
        let others = [Class::Orphan, Class::Ready, Class::Blocked, Class::Held];
        for class in delays.into_iter().chain(others).chain(State::ALL.map(Class::Ended)) {
            for digest in
                [0, 1, Digest::MAX, Digest::MAX << 64, u64::MAX.into(), 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210]
            {
                let mut entry = Entry::new(Task::default(), digest, class);
                assert_eq!((entry.class(), entry.digest()), (class, digest));
                entry.set_digest(!digest);
                entry.set_class(Class::Ready);
                assert_eq!((entry.class(), entry.digest()), (Class::Ready, !digest));
            }
        }
    }
}
