//! Runs of the simulator in tests.

use norn_sim::Overrides;

/// What the nodes hold is checked seldom: these runs are made without optimisation.
pub fn seldom() -> Overrides {
    Overrides { check_every: Some(128), ..Overrides::default() }
}
