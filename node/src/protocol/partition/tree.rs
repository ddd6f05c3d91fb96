//! Hash tree over the tasks of a partition: a fixed number of buckets, each the sum of its tasks' digests.
//!
//! A change costs one subtraction and one addition. The tree above the buckets is built when it is asked for
//! (`merkle_light`), and only where something changed since: groups of buckets keep their own roots, and the leaves of the
//! tree above are those. As both numbers are powers of two, no leaf is ever duplicated, and the root is that of one tree.

use crate::limits::BUCKETS;
use crate::protocol::task::Digest;
use merkle_light::hash::Algorithm;
use merkle_light::merkle::MerkleTree;
use norn_client::wire::TaskId;
use std::cell::Cell;
use std::hash::Hasher;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// Root of the tree; all zero for an empty partition.
pub type Root = u128;

/// Buckets under one node of the middle level.
const GROUP_BUCKETS: usize = 32;
const GROUPS: usize = BUCKETS / GROUP_BUCKETS;
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

/// The bucket of a task.
pub fn bucket_of(id: &TaskId) -> usize {
    (xxh3_64(id.as_bytes()) % BUCKETS as u64) as usize
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
}

fn root_of(leaves: impl Iterator<Item = [u8; 16]>) -> [u8; 16] {
    MerkleTree::<[u8; 16], NodeHash>::from_iter(leaves).root()
}

impl Tree {
    /// A task's digest changed.
    pub fn change(&mut self, id: &TaskId, before: Digest, after: Digest) {
        if before == after {
            return;
        }
        if self.buckets.is_empty() {
            self.buckets = vec![0; BUCKETS];
            self.groups = vec![Cell::new(None); GROUPS];
        }
        let number = bucket_of(id);
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

    fn group_root(&self, group: usize) -> [u8; 16] {
        if let Some(root) = self.groups[group].get() {
            return root;
        }
        let buckets = &self.buckets[group * GROUP_BUCKETS..(group + 1) * GROUP_BUCKETS];
        let root = root_of(buckets.iter().map(|digest| digest.to_be_bytes()));
        self.groups[group].set(Some(root));
        root
    }

    /// Whether both hold the same, and what is kept of one group's tree, chosen by `turn`, is true in both.
    pub fn equals(&self, other: &Tree, turn: usize) -> bool {
        let group = turn % GROUPS;
        let groups_equal = || self.buckets.is_empty() || self.group_root(group) == other.group_root(group);
        self.sum == other.sum && self.buckets().eq(other.buckets()) && (other.buckets.is_empty() || groups_equal())
    }

    /// Digest of all tasks together, without building the tree.
    pub fn sum(&self) -> Digest {
        self.sum
    }

    /// Digests of all buckets that are not empty.
    pub fn buckets(&self) -> impl Iterator<Item = (u16, Digest)> + '_ {
        self.buckets
            .iter()
            .enumerate()
            .filter(|(_, digest)| **digest != 0)
            .map(|(bucket, digest)| (bucket as u16, *digest))
    }

    /// Digest of one bucket.
    pub fn bucket(&self, bucket: u16) -> Digest {
        self.buckets.get(usize::from(bucket)).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u32) -> TaskId {
        TaskId::new(1, number, 2, 3)
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
        let differing = (0..BUCKETS as u16).filter(|bucket| one.bucket(*bucket) != other.bucket(*bucket)).count();
        assert_eq!(differing, 1);
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
            let whole = root_of((0..BUCKETS as u16).map(|bucket| tree.bucket(bucket).to_be_bytes()));
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
        assert_eq!((tree.root(), tree.buckets().count()), (0, 0));
    }
}
