//! Invariants of a session.

use super::call::Stage;
use super::{Session, ensure};
use std::collections::BTreeMap;

impl Session {
    /// Checks the invariants, and names one that is violated.
    pub fn check(&self) -> Result<(), String> {
        let mut in_flight = 0;
        let mut queued = 0;
        for (id, call) in &self.calls {
            call.check().map_err(|wrong| format!("{id:?}: {wrong}"))?;
            ensure(self.timers.contains(&(call.wake_us, *id)), || format!("{id:?} has no timer"))?;
            let listed = self.queues[call.needs as usize].get(&call.order) == Some(id);
            ensure(listed == matches!(call.stage, Stage::Queued), || format!("{id:?} and its queue disagree"))?;
            queued += usize::from(listed);
            if let Stage::Sent { number, endpoint, .. } = call.stage {
                in_flight += 1;
                let attempt = self.attempts.get(&number);
                let known = attempt.is_some_and(|attempt| attempt.call == *id && attempt.endpoint == endpoint);
                ensure(known, || format!("{id:?} was sent, but its attempt {number} is gone"))?;
            }
            let open = call.numbers.iter().all(|number| self.attempts.get(number).is_some_and(|at| at.call == *id));
            ensure(open, || format!("{id:?} lists attempts that are not its own"))?;
        }
        let listed: usize = self.calls.values().map(|call| call.numbers.len()).sum();
        let bytes: usize = self.calls.values().map(|call| call.bytes).sum();
        ensure(listed == self.attempts.len(), || "an attempt has no call".into())?;
        ensure(bytes == self.calls_bytes, || "bytes of the calls are miscounted".into())?;
        let seekers = self.calls.values().filter(|call| call.seeks()).count();
        ensure(seekers == self.seekers, || format!("{seekers} seek another node, counted {}", self.seekers))?;
        ensure(self.timers.len() == self.calls.len(), || "a timer has no call".into())?;
        let listed: usize = self.queues.iter().map(BTreeMap::len).sum();
        ensure(listed == queued, || "a queue lists calls twice".into())?;
        ensure(in_flight == self.in_flight, || format!("{in_flight} in flight, counted {}", self.in_flight))?;
        let felt: usize = (0..self.links.len()).map(|endpoint| self.links.get(endpoint).pulse.calls).sum();
        ensure(in_flight == felt, || format!("{in_flight} in flight, {felt} by endpoint"))?;
        ensure(in_flight <= self.config.in_flight_max, || format!("{in_flight} in flight are too many"))?;
        ensure(self.calls.len() <= self.config.calls_max, || "too many calls".into())?;
        for (number, attempt) in &self.attempts {
            let open = self.links.get(attempt.endpoint).is_open();
            ensure(open, || format!("attempt {number} is on a connection that is not open"))?;
        }
        self.leaving.check()?;
        self.links.check()
    }
}
