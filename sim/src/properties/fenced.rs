//! A node that knows its clock to be wrong leads nothing and grants nothing. (ARCHITECTURE.md I-18)

use super::Property;
use crate::history::{Happening, History, Moment};
use norn_engine::Observation;
use norn_wire::response::Standing;
use std::collections::BTreeSet;

#[derive(Debug, Default)]
pub struct Fenced {
    fencing: bool,
    /// Node and boot.
    fenced: BTreeSet<(usize, u64)>,
}

// S39
impl Property for Fenced {
    fn name(&self) -> &'static str {
        "fenced"
    }

    fn see(&mut self, _history: &History, _moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Founded(terms) => self.fencing = terms.fencing,
            Happening::Observed { node, boot, observation } => match observation {
                Observation::ClockStanding { standing: Standing::Fenced, .. } => {
                    self.fenced.insert((*node, *boot));
                }
                Observation::ClockStanding { .. } => {
                    self.fenced.remove(&(*node, *boot));
                }
                Observation::Granted { .. } | Observation::Established { .. } | Observation::Campaign { .. }
                    if self.fencing && self.fenced.contains(&(*node, *boot)) =>
                {
                    return Err(format!("node {node} knows that its clock is wrong, and says {observation:?}"));
                }
                _ => {}
            },
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::*;

    fn stand(bench: &mut Bench<Fenced>, standing: Standing) {
        let observation = &Observation::ClockStanding { standing, off_us: None };
        bench.see(Happening::Observed { node: 0, boot: 1, observation }).unwrap();
    }

    fn grant(bench: &mut Bench<Fenced>, node: usize, boot: u64) -> Result<(), String> {
        let observation = &Observation::Granted { id: id(1), token: token(1, 1) };
        bench.see(Happening::Observed { node, boot, observation })
    }

    #[test]
    fn a_grant_of_a_node_with_a_wrong_clock_is_refused() {
        let mut bench = Bench::<Fenced>::new();
        bench.see(Happening::Founded(Terms { fencing: true, ..Terms::default() })).unwrap();
        grant(&mut bench, 0, 1).unwrap();
        stand(&mut bench, Standing::Fenced);
        assert!(grant(&mut bench, 0, 1).is_err());
        grant(&mut bench, 1, 1).unwrap();
        grant(&mut bench, 0, 2).unwrap();
        stand(&mut bench, Standing::Suspect);
        grant(&mut bench, 0, 1).unwrap();
    }

    #[test]
    fn where_clocks_do_not_fence_it_may_grant() {
        let mut bench = Bench::<Fenced>::new();
        bench.see(Happening::Founded(Terms::default())).unwrap();
        stand(&mut bench, Standing::Fenced);
        grant(&mut bench, 0, 1).unwrap();
    }
}
