//! Measures of the node, for monitoring. They are made between events, a piece in each turn of the driver, so that a node with many queues
//! serves its clients meanwhile. All that ask at a time get the same.

use norn_engine::{Measures, Node};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Queues of partitions that are measured before the clock is looked at. The work for one is bounded.
const QUEUES_AT_ONCE: usize = 32;
/// Time for measuring in one turn. Events wait for so long.
const TURN_TIME: Duration = Duration::from_millis(1);

/// Where to send measures.
pub type Asker = oneshot::Sender<Arc<Measures>>;

/// Measures under way.
#[derive(Debug, Default)]
pub struct Measuring {
    askers: Vec<Asker>,
    measures: Option<Measures>,
}

impl Measuring {
    /// Adds one that waits for measures. Measures that are under way are for it, too: they have not been told yet.
    pub fn ask(&mut self, asker: Asker) {
        // Those that gave up make room, so that as many wait as requests are under way.
        self.askers.retain(|asker| !asker.is_closed());
        self.askers.push(asker);
        self.measures.get_or_insert_default();
    }

    /// Whether measures are under way.
    pub fn is_under_way(&self) -> bool {
        self.measures.is_some()
    }

    /// Measures the next piece, and tells those that wait once all is measured.
    pub fn advance(&mut self, node: &mut Node) {
        let Some(measures) = &mut self.measures else { return };
        let begin = Instant::now();
        while !node.measure(measures, QUEUES_AT_ONCE) {
            if begin.elapsed() >= TURN_TIME {
                return;
            }
        }
        let measures = Arc::new(self.measures.take().unwrap_or_default());
        for asker in self.askers.drain(..) {
            // One that has gone needs no answer.
            let _ = asker.send(Arc::clone(&measures));
        }
    }
}
