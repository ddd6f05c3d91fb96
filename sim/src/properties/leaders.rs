//! At most one leader is established per partition and epoch, and by one process. (ARCHITECTURE.md I-1, R-6)

use super::Property;
use crate::history::{Happening, History, Moment};
use norn_engine::Observation;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Leaders {
    /// Node and boot by partition and epoch.
    established: BTreeMap<(u16, u64), (usize, u64)>,
}

// S10, S28, S41, S44
impl Property for Leaders {
    fn name(&self) -> &'static str {
        "leaders"
    }

    fn see(&mut self, _history: &History, _moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        if let Happening::Observed { node, boot, observation: Observation::Established { partition, epoch } } =
            happening
        {
            let leader = *self.established.entry((*partition, *epoch)).or_insert((*node, *boot));
            if leader != (*node, *boot) {
                return Err(format!(
                    "partition {partition}, epoch {epoch}: node {} (boot {}) and node {node} (boot {boot}) lead",
                    leader.0, leader.1
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::*;

    fn established(bench: &mut Bench<Leaders>, node: usize, boot: u64, epoch: u64) -> Result<(), String> {
        bench.see(Happening::Observed { node, boot, observation: &Observation::Established { partition: 0, epoch } })
    }

    #[test]
    fn a_second_leader_or_process_in_an_epoch_is_refused() {
        let mut bench = Bench::<Leaders>::new();
        established(&mut bench, 0, 1, 5).unwrap();
        established(&mut bench, 0, 1, 5).unwrap();
        established(&mut bench, 1, 1, 6).unwrap();
        assert!(established(&mut bench, 1, 1, 5).is_err());
        assert!(established(&mut bench, 0, 2, 5).is_err());
    }
}
