//! The end of a session's task. Each call that the task has taken gets an answer. A write that may have been sent is `unknown`: after
//! `unavailable` a caller would make it anew under another id.
//!
//! Tasks that a claim is granted while its client closes go back, because they could not be ended through this client any more.

use super::{Answer, CLOSE_TIMEOUT, Driver, ROUND_MAX};
use crate::session::{CallId, Input, Output};

pub(super) const CLOSED: &str = "the client was closed before the call had ended";
const ENDED: &str = "the client's task has ended, by a panic or with its runtime, before the call had";

impl Driver {
    /// Abandons all calls under way, and lets the nodes hear of it, so that tasks granted meanwhile need not wait for the end of their
    /// leases.
    pub(super) async fn let_go(&mut self) {
        self.closes = true;
        // Answers that have arrived already still count.
        for _ in 0..ROUND_MAX {
            let Ok(event) = self.events.try_recv() else { break };
            self.event(event);
        }
        let open: Vec<CallId> = self.replies.keys().copied().collect();
        for call in open {
            self.step(Input::Abandon { call });
        }
        self.take_abandoned();
        self.step(Input::Closing);
        self.carry_out();
        let written = async {
            for link in self.links.iter_mut().flatten().filter(|link| link.version.is_some()) {
                link.outbox.end();
                // It has ended, with or without an error.
                let _ = (&mut link.task).await;
            }
        };
        // A node that does not read it in time notices when the connection ends.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, written).await;
    }
}

impl Drop for Driver {
    /// Answers the remaining calls. After a panic the session cannot be used any more.
    fn drop(&mut self) {
        for output in std::mem::take(&mut self.outputs) {
            if let Output::Done { call, result, lease_from_us } = output
                && let Some(reply) = self.replies.remove(&call)
            {
                let lease_from = lease_from_us.map(|sent_us| self.instant(sent_us));
                let _ = reply.send(Answer { result, lease_from });
            }
        }
        for reply in std::mem::take(&mut self.replies).into_values() {
            let _ = reply.send(Answer::lost(ENDED));
        }
    }
}
