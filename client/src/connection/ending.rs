//! The end of a session's task. Whoever made a call that the task has taken is told what became of it: a write that may have been sent
//! is `unknown`, as whoever reads `unavailable` makes it anew under another id.
//!
//! What a claim is granted as its client closes goes back: nobody could end it through this client any more.

use super::{Answer, CLOSE_TIMEOUT, Driver, ROUND_MAX};
use crate::session::{CallId, Input, Output};

pub(super) const CLOSED: &str = "the client was closed before the call had ended";
const ENDED: &str = "the client's task has ended, by a panic or with its runtime, before the call had";

impl Driver {
    /// Abandons all that is under way, and has the nodes hear that: what a claim was granted meanwhile is not to wait for its lease.
    pub(super) async fn let_go(&mut self) {
        self.closes = true;
        // What has come already is an answer, too.
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
                // It has ended, whether well or badly.
                let _ = (&mut link.task).await;
            }
        };
        // A node that does not take it in time notices when the connection ends.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, written).await;
    }
}

impl Drop for Driver {
    /// Behind a panic the session can be asked nothing more.
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
