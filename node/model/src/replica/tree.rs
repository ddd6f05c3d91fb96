//! Merkle tree over the tasks of a partition: a fixed number of buckets, each the sum of its tasks' digests.
//!
//! A change costs one subtraction and one addition. The tree above the buckets is built on demand (`merkle_light`), and only where
//! something changed since: groups of buckets keep their own roots, and these are the leaves of the tree above. As both numbers are
//! powers of two, no leaf is ever duplicated, and the root equals that of one tree.

use super::places::{Places, bucket_of, place_of};
use crate::limits::{BUCKETS, GROUP_BUCKETS, GROUPS};
use crate::task::Digest;
use merkle_light::hash::Algorithm;
use merkle_light::merkle::MerkleTree;
use norn_wire::TaskId;
use std::cell::Cell;
use std::hash::Hasher;
use std::ops::{Range, RangeInclusive};
use xxhash_rust::xxh3::xxh3_128;

/// Root of the tree; all zero for an empty partition.
pub type Root = u128;

const _: () = assert!(GROUP_BUCKETS.is_power_of_two() && GROUPS.is_power_of_two() && GROUPS >= 2);

/// Hashes a pair of nodes in one go; leaves are digests already.
struct NodeHash {
    bytes: [u8; 64],
    length: usize,
}

impl Default for NodeHash {
    fn default() -> Self {
        NodeHash { bytes: [0; 64], length: 0 }
    }
}

impl Hasher for NodeHash {
    fn write(&mut self, bytes: &[u8]) {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    fn finish(&self) -> u64 {
        unreachable!("the tree asks for the wide hash only")
    }
}

impl Algorithm<[u8; 16]> for NodeHash {
    fn hash(&mut self) -> [u8; 16] {
        xxh3_128(&self.bytes[..self.length]).to_be_bytes()
    }

    fn reset(&mut self) {
        self.length = 0;
    }

    fn leaf(&mut self, leaf: [u8; 16]) -> [u8; 16] {
        leaf
    }

    fn node(&mut self, left: [u8; 16], right: [u8; 16]) -> [u8; 16] {
        self.write(&left);
        self.write(&right);
        Algorithm::hash(self)
    }
}

/// The buckets, and the tree above as last built.
#[derive(Debug, Default)]
pub struct Tree {
    /// Allocated with the first task.
    buckets: Vec<Digest>,
    /// Sum of all buckets.
    sum: Digest,
    /// Roots of the groups; absent where a bucket changed since.
    groups: Vec<Cell<Option<[u8; 16]>>>,
    root: Cell<Option<Root>>,
    /// Bucket listing index.
    places: Places,
}

fn root_of(leaves: impl Iterator<Item = [u8; 16]>) -> [u8; 16] {
    MerkleTree::<[u8; 16], NodeHash>::from_iter(leaves).root()
}

impl Tree {
    /// Changes a task's digest; 0 stands for a task that is not there.
    pub fn change(&mut self, id: &TaskId, before: Digest, after: Digest) {
        if before == after {
            return;
        }
        if self.buckets.is_empty() {
            self.buckets = vec![0; BUCKETS];
            self.groups = vec![Cell::new(None); GROUPS];
        }
        let number = bucket_of(id);
        assert!(number < self.buckets.len(), "a task is in no bucket");
        match (before, after) {
            (0, _) => self.places.insert(number, id),
            (_, 0) => self.places.remove(number, id),
            _ => {}
        }
        self.groups[number / GROUP_BUCKETS].set(None);
        let bucket = &mut self.buckets[number];
        *bucket = bucket.wrapping_sub(before).wrapping_add(after);
        self.sum = self.sum.wrapping_sub(before).wrapping_add(after);
        self.root.set(None);
    }

    /// The root.
    pub fn root(&self) -> Root {
        if let Some(root) = self.root.get() {
            return root;
        }
        let root = if self.buckets.iter().all(|digest| *digest == 0) {
            0
        } else {
            u128::from_be_bytes(root_of((0..GROUPS).map(|group| self.group_root(group))))
        };
        self.root.set(Some(root));
        root
    }

    /// Buckets of a group.
    pub fn buckets_of(group: usize) -> Range<usize> {
        assert!(group < GROUPS, "there is no such group of buckets");
        group * GROUP_BUCKETS..(group + 1) * GROUP_BUCKETS
    }

    /// Digests of all groups; `None` for those without tasks.
    pub fn group_digests(&self) -> impl Iterator<Item = Option<Digest>> + '_ {
        let is_filled = |group: usize| Tree::buckets_of(group).any(|bucket| self.count(bucket) > 0);
        (0..GROUPS).map(move |group| is_filled(group).then(|| u128::from_be_bytes(self.group_root(group))))
    }

    /// Digests of the buckets of a group; `None` for those without tasks.
    pub fn bucket_digests(&self, group: usize) -> impl Iterator<Item = Option<Digest>> + '_ {
        Tree::buckets_of(group).map(|bucket| (self.count(bucket) > 0).then(|| self.buckets[bucket]))
    }

    /// Number of tasks in a bucket.
    pub fn count(&self, bucket: usize) -> usize {
        self.places.count(bucket)
    }

    /// Ranges of ids, in order, that contain all tasks of a bucket after one id. They may contain tasks of other buckets, too.
    pub fn ranges(&self, bucket: usize, after: Option<TaskId>) -> impl Iterator<Item = RangeInclusive<TaskId>> + '_ {
        self.places.ranges(bucket, after)
    }

    fn group_root(&self, group: usize) -> [u8; 16] {
        if let Some(root) = self.groups[group].get() {
            return root;
        }
        let buckets = &self.buckets[Tree::buckets_of(group)];
        let root = root_of(buckets.iter().map(|digest| digest.to_be_bytes()));
        self.groups[group].set(Some(root));
        root
    }

    /// Whether this is the tree of these tasks and digests, and the cached root of one group, chosen by `turn`, is right.
    pub fn is_of<'a>(&self, tasks: impl Iterator<Item = (&'a TaskId, Digest)>, turn: usize) -> bool {
        let mut expected: Vec<(usize, u64, Digest)> =
            tasks.map(|(id, digest)| (bucket_of(id), place_of(id), digest)).collect();
        expected.sort_unstable();
        let sum = |digests: &[(usize, u64, Digest)]| {
            digests.iter().fold(0, |sum: Digest, (_, _, digest)| sum.wrapping_add(*digest))
        };
        let holds = |bucket: &[(usize, u64, Digest)]| {
            let number = bucket[0].0;
            self.buckets.get(number) == Some(&sum(bucket))
                && self.places.of(number).iter().eq(bucket.iter().map(|(_, place, _)| place))
        };
        let mut buckets = expected.chunk_by(|one, other| one.0 == other.0);
        let nothing_besides = self.places.total() == expected.len()
            && self.buckets.iter().filter(|digest| **digest != 0).count() <= buckets.clone().count();
        self.sum == sum(&expected) && nothing_besides && buckets.all(holds) && self.is_group_true(turn % GROUPS)
    }

    /// Whether the cached root of a group is what it would be if it were built anew.
    fn is_group_true(&self, group: usize) -> bool {
        let Some(kept) = self.groups.get(group).and_then(Cell::get) else { return true };
        let buckets = &self.buckets[Tree::buckets_of(group)];
        kept == root_of(buckets.iter().map(|digest| digest.to_be_bytes()))
    }

    /// Digest of all tasks together, without building the tree.
    pub fn sum(&self) -> Digest {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u32) -> TaskId {
        TaskId::new(u64::from(number), 1, 2, 3)
    }

    /// Places at which the children of two nodes differ.
    fn differing(one: impl Iterator<Item = Option<Digest>>, other: impl Iterator<Item = Option<Digest>>) -> Vec<usize> {
        one.zip(other).enumerate().filter(|(_, (one, other))| one != other).map(|(place, _)| place).collect()
    }

    #[test]
    fn the_root_depends_on_the_content_and_not_on_the_way_there() {
        let mut one = Tree::default();
        let mut other = Tree::default();
        for number in 0..500u32 {
            one.change(&id(number), 0, u128::from(number) * 7 + 1);
            other.change(&id(499 - number), 0, 5);
        }
        for number in 0..500u32 {
            other.change(&id(number), 5, u128::from(number) * 7 + 1);
        }
        assert_eq!(one.root(), other.root());
        other.change(&id(3), 22, 23);
        assert_ne!(one.root(), other.root());
        assert_eq!(differing(one.group_digests(), other.group_digests()), [bucket_of(&id(3)) / GROUP_BUCKETS]);
        let group = bucket_of(&id(3)) / GROUP_BUCKETS;
        let buckets = differing(one.bucket_digests(group), other.bucket_digests(group));
        assert_eq!(buckets, [bucket_of(&id(3)) % GROUP_BUCKETS]);
        other.change(&id(3), 23, 22);
        assert_eq!(one.root(), other.root());
    }

    #[test]
    fn the_root_is_that_of_one_tree_over_all_buckets() {
        let mut tree = Tree::default();
        for round in 0..50u32 {
            for number in 0..20 {
                tree.change(&id(round * 20 + number), 0, u128::from(round * number) * 31 + 5);
            }
            let whole = root_of(tree.buckets.iter().map(|digest| digest.to_be_bytes()));
            assert_eq!(tree.root(), u128::from_be_bytes(whole), "what is kept of earlier rounds is still true");
        }
    }

    #[test]
    fn an_emptied_tree_is_an_empty_tree() {
        let mut tree = Tree::default();
        assert_eq!(tree.root(), 0);
        tree.change(&id(1), 0, 9);
        assert_ne!(tree.root(), 0);
        tree.change(&id(1), 9, 0);
        assert_eq!(tree.root(), 0);
        assert!(tree.group_digests().all(|digest| digest.is_none()));
        assert!(tree.is_of([].into_iter(), 0));
        assert!(!tree.is_of([(&id(1), 9)].into_iter(), 0));
    }
}
