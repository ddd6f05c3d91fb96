//! A grant hands out the task that was enqueued.

use super::Property;
use crate::history::{Finished, Happening, History, Moment};
use norn_wire::response::Response;

#[derive(Debug, Default)]
pub struct Contents;

// T8, S16
impl Property for Contents {
    fn name(&self) -> &'static str {
        "contents"
    }

    fn see(&mut self, history: &History, _moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        let Happening::Finished(Finished { result: Ok(Response::Claimed { tasks, .. }), .. }) = happening else {
            return Ok(());
        };
        for task in tasks {
            let Some(spec) = history.specs.get(&task.id) else {
                return Err(format!("task {} was granted but never enqueued", task.id));
            };
            let changed = history.changed.get(&task.id).is_some_and(|changed| changed.contains(&task.payload));
            let payload = if changed { &task.payload } else { &spec.payload };
            if (&task.queue, &task.payload, task.priority) != (&spec.queue, payload, spec.priority) {
                return Err(format!("task {} was granted with other content than enqueued", task.id));
            }
            if task.attempt == 0 || (spec.attempts_max > 0 && task.attempt > spec.attempts_max) {
                return Err(format!("attempt {} of {} at task {}", task.attempt, spec.attempts_max, task.id));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::*;

    #[test]
    fn a_grant_of_something_else_is_refused() {
        let mut bench = Bench::<Contents>::new();
        bench.enqueued(1);
        let now = bench.now();
        assert!(bench.finish(claim(), now, granted(1, token(1, 1))).is_ok());
        assert!(bench.finish(claim(), now, granted(2, token(1, 2))).is_err());
        let mut other = granted(1, token(1, 3));
        if let Response::Claimed { tasks, .. } = &mut other {
            tasks[0].payload = vec![9];
        }
        assert!(bench.finish(claim(), now, other).is_err());
    }
}
