//! The partitions that a node holds a replica of: found by their number in a step, and looked at in its order.

use norn_model::replica::Partition;
use norn_wire::PartitionId;
use std::ops::{Bound, Index};

/// Replicas by partition. A partition is looked up many times for each message, so there is a place for each number up to the highest.
#[derive(Debug, Default)]
pub(crate) struct Partitions {
    numbered: Vec<Option<Box<Partition>>>,
    /// The metadata group's number is higher than all others by far, so it is kept apart.
    metadata: Option<Box<Partition>>,
}

impl Partitions {
    pub fn get(&self, id: &PartitionId) -> Option<&Partition> {
        match *id {
            PartitionId::METADATA => self.metadata.as_deref(),
            PartitionId(number) => self.numbered.get(usize::from(number))?.as_deref(),
        }
    }

    pub fn get_mut(&mut self, id: &PartitionId) -> Option<&mut Partition> {
        match *id {
            PartitionId::METADATA => self.metadata.as_deref_mut(),
            PartitionId(number) => self.numbered.get_mut(usize::from(number))?.as_deref_mut(),
        }
    }

    pub fn contains_key(&self, id: &PartitionId) -> bool {
        self.get(id).is_some()
    }

    /// Takes in a replica; returns the one of the same partition that it replaces.
    pub fn insert(&mut self, id: PartitionId, replica: Partition) -> Option<Box<Partition>> {
        assert!(id == replica.id, "a replica is found by the number of its own partition");
        assert!(id <= PartitionId::METADATA, "the metadata group has the last number");
        self.place(id).replace(Box::new(replica))
    }

    #[cfg(test)]
    pub fn remove(&mut self, id: &PartitionId) -> Option<Box<Partition>> {
        self.place(*id).take()
    }

    fn place(&mut self, id: PartitionId) -> &mut Option<Box<Partition>> {
        if id == PartitionId::METADATA {
            return &mut self.metadata;
        }
        let place = usize::from(id.0);
        if self.numbered.len() <= place {
            self.numbered.resize_with(place + 1, || None);
        }
        &mut self.numbered[place]
    }

    /// In ascending order of numbers, so the metadata group comes last.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &Partition> + Clone {
        self.numbered.iter().chain([&self.metadata]).filter_map(|place| place.as_deref())
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Partition> {
        self.numbered.iter_mut().chain([&mut self.metadata]).filter_map(|place| place.as_deref_mut())
    }

    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &PartitionId> + Clone {
        self.values().map(|replica| &replica.id)
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&PartitionId, &Partition)> + Clone {
        self.values().map(|replica| (&replica.id, replica))
    }

    /// The first replica from a bound on.
    pub fn first_from(&self, from: Bound<PartitionId>) -> Option<&Partition> {
        let from = match from {
            Bound::Unbounded => 0,
            Bound::Included(id) => usize::from(id.0),
            Bound::Excluded(id) => usize::from(id.0) + 1,
        };
        let numbered = self.numbered.iter().skip(from).find_map(|place| place.as_deref());
        numbered.or(self.metadata.as_deref().filter(|_| from <= usize::from(PartitionId::METADATA.0)))
    }
}

impl Index<&PartitionId> for Partitions {
    type Output = Partition;

    fn index(&self, id: &PartitionId) -> &Partition {
        self.get(id).expect("asked for own partitions only")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use norn_model::viewstamp::ReplicaId;
    use norn_wire::NodeId;

    #[test]
    fn partitions_are_found_by_number_and_come_in_order_with_the_metadata_group_last() {
        let mut partitions = Partitions::default();
        assert!(partitions.first_from(Bound::Unbounded).is_none());
        let ids = [PartitionId(7), PartitionId::METADATA, PartitionId(0), PartitionId(300)];
        for id in ids {
            let me = ReplicaId { node: NodeId(1), incarnation: 1 };
            assert!(partitions.insert(id, Partition::new(id, me, vec![me])).is_none());
        }
        let sorted = [PartitionId(0), PartitionId(7), PartitionId(300), PartitionId::METADATA];
        assert!(partitions.keys().eq(&sorted) && partitions.iter().all(|(id, replica)| *id == replica.id));
        assert!(partitions.values_mut().map(|replica| replica.id).eq(sorted));
        for id in sorted {
            assert_eq!((partitions[&id].id, partitions.get_mut(&id).map(|replica| replica.id)), (id, Some(id)));
        }
        for absent in [PartitionId(1), PartitionId(301), PartitionId(u16::MAX)] {
            assert!(!partitions.contains_key(&absent) && partitions.get_mut(&absent).is_none());
        }
        let from = |bound| partitions.first_from(bound).map(|replica| replica.id);
        assert_eq!(from(Bound::Included(PartitionId(7))), Some(PartitionId(7)));
        assert_eq!(from(Bound::Excluded(PartitionId(7))), Some(PartitionId(300)));
        assert_eq!(from(Bound::Excluded(PartitionId(300))), Some(PartitionId::METADATA));
        assert_eq!(from(Bound::Excluded(PartitionId::METADATA)), None);
        assert!(partitions.remove(&PartitionId(7)).is_some() && !partitions.contains_key(&PartitionId(7)));
    }
}
