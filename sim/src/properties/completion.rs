//! No task is granted to a claim that was invoked after the client had a strict acknowledgement that the task has ended.
//! (ARCHITECTURE.md I-9, C-1)

use super::Property;
use crate::adapter::Call;
use crate::history::{Finished, Happening, History, Moment};
use norn_wire::TaskId;
use norn_wire::request::Request;
use norn_wire::response::Response;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Completion {
    /// Tasks failed as invalid, and when the worker had the answer.
    invalid: BTreeMap<TaskId, Moment>,
}

// O16, S7, S22
impl Property for Completion {
    fn name(&self) -> &'static str {
        "completion"
    }

    fn see(&mut self, history: &History, moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        let Happening::Finished(Finished { call: Call::Request(request), submitted, result: Ok(response), client }) =
            happening
        else {
            return Ok(());
        };
        match (request, response) {
            (Request::Fail { id, invalid: true, .. }, Response::Done) => {
                self.invalid.entry(*id).or_insert(moment);
            }
            (Request::Claim(_), Response::Claimed { tasks, .. }) => {
                for task in tasks {
                    let ended = history.ended(&task.id).into_iter().chain(self.invalid.get(&task.id).copied()).min();
                    if ended.is_some_and(|ended| ended < *submitted) {
                        return Err(format!(
                            "task {} was granted to client {client} under {}, claimed {} us after its end was confirmed",
                            task.id,
                            task.token,
                            submitted.time_us - ended.unwrap_or_default().time_us
                        ));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::*;

    #[test]
    fn a_grant_claimed_after_the_end_is_refused() {
        let mut bench = Bench::<Completion>::new();
        bench.enqueued(1);
        let before = bench.now();
        bench.cancelled(1);
        let after = Moment { sequence: bench.now().sequence + 1, ..bench.now() };
        assert!(bench.finish(claim(), before, granted(1, token(1, 1))).is_ok(), "it was asked before");
        assert!(bench.finish(claim(), after, granted(1, token(1, 2))).is_err());
    }

    #[test]
    fn a_grant_of_a_task_given_up_is_refused() {
        let mut bench = Bench::<Completion>::new();
        let fail = Request::Fail {
            id: id(1),
            token: token(1, 1),
            reason: String::new(),
            retry_in_ms: 0,
            invalid: true,
            retry_open: false,
        };
        let now = bench.now();
        bench.finish(fail, now, Response::Done).unwrap();
        let after = Moment { sequence: bench.now().sequence + 1, ..bench.now() };
        assert!(bench.finish(claim(), after, granted(1, token(1, 2))).is_err());
    }
}
