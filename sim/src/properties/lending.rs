//! A node's clock that is or was ahead locks no client out and takes no id back. A client that asks for no ids is welcome at every
//! node that knows which member it is, whatever was lent before. A read or claim is never refused for a clock that is ahead. The
//! times that a node lends do not go back, not even across restarts.

use super::Property;
use crate::adapter::Call;
use crate::history::{Happening, History, Moment};
use norn_wire::request::Request;
use norn_wire::response::{Response, Welcome};
use norn_wire::{ErrorCode, NodeId};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Lending {
    /// Latest time that each node has lent.
    lent_ms: BTreeMap<NodeId, u64>,
}

/// Whether a call reads or claims existing tasks, and so needs no id. Writes do not count: a write may arrive before its task, whose
/// id may be ahead.
fn needs_no_id(call: &Call) -> bool {
    let Call::Request(request) = call else { return false };
    matches!(
        request,
        Request::Claim(_)
            | Request::Renew { .. }
            | Request::Release { .. }
            | Request::Fail { .. }
            | Request::Get { .. }
            | Request::Wait { .. }
            | Request::Watch { .. }
            | Request::List { .. }
            | Request::Count { .. }
            | Request::Queues
            | Request::Nodes
            | Request::Status
    )
}

impl Property for Lending {
    fn name(&self) -> &'static str {
        "lending"
    }

    fn see(&mut self, _: &History, _: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Replied { request: Request::Hello { bare: true, .. }, response: Response::Error(error) }
                if error.message.contains("clock") =>
            {
                return Err(format!("a client that asks for no ids is shut out: {error:?}"));
            }
            Happening::Finished(finished) if needs_no_id(finished.call) => {
                if let Some(error) = finished.result.as_ref().err().filter(|error| error.code == ErrorCode::ClockAhead)
                {
                    return Err(format!("{:?} needs no id, and is refused: {error:?}", finished.call));
                }
            }
            Happening::Replied {
                response: Response::Welcome(Welcome { node, time_ms, refusal: None, .. }), ..
            } => {
                let lent_ms = self.lent_ms.entry(*node).or_default();
                if time_ms < lent_ms {
                    return Err(format!("{node:?} lends {time_ms}, and has lent {lent_ms}: ids go back"));
                }
                *lent_ms = *time_ms;
            }
            // A disk that has lost records, or that is an earlier image, need not have what its node lent.
            Happening::Damaged { .. } | Happening::Spoiled { .. } | Happening::Gone { .. } => self.lent_ms.clear(),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::*;
    use norn_wire::{ClusterId, Error};

    fn hello(bare: bool) -> Request {
        Request::Hello { name: "c".to_owned(), bare }
    }

    fn lends(bench: &mut Bench<Lending>, node: u128, time_ms: u64) -> Result<(), String> {
        let (node, cluster) = (NodeId(node), ClusterId(1));
        let response = Response::Welcome(Welcome { node, cluster, time_ms, minter: 1, refusal: None, clock_ms: None });
        bench.see(Happening::Replied { request: &hello(true), response: &response })
    }

    #[test]
    fn times_that_a_node_lends_do_not_go_back_unless_its_disk_does() {
        let mut bench: Bench<Lending> = Bench::new();
        for (node, time_ms) in [(1, 500), (2, 100), (1, 500), (1, 501)] {
            lends(&mut bench, node, time_ms).unwrap();
        }
        assert!(lends(&mut bench, 1, 500).unwrap_err().contains("ids go back"));
        bench.see(Happening::Spoiled { node: 0, left: &[] }).unwrap();
        lends(&mut bench, 1, 7).unwrap();
    }

    #[test]
    fn what_needs_no_id_is_refused_for_no_clock() {
        let mut bench: Bench<Lending> = Bench::new();
        let mut refused =
            |call: Call, code: ErrorCode| bench.finish_call(call, Moment::default(), Err(Error::new(code, "why")));
        let enqueue = Call::Enqueue { drafts: Vec::new(), acks: norn_wire::request::Acks::Quorum };
        refused(enqueue, ErrorCode::ClockAhead).unwrap();
        for request in [Request::Status, claim(), Request::Count { queue: None, state: None }] {
            refused(Call::Request(request.clone()), ErrorCode::Unavailable).unwrap();
            let refusal = refused(Call::Request(request), ErrorCode::ClockAhead).unwrap_err();
            assert!(refusal.contains("needs no id"), "{refusal}");
        }
    }

    #[test]
    fn a_clock_keeps_out_only_those_who_want_ids() {
        let mut bench: Bench<Lending> = Bench::new();
        let mut refused = |bare: bool, message: &str| {
            let response = Response::Error(Error::unavailable(message));
            bench.see(Happening::Replied { request: &hello(bare), response: &response })
        };
        refused(false, "this node's clock is wrong").unwrap();
        refused(true, "this node does not know yet which member it is").unwrap();
        assert!(refused(true, "this node's clock is wrong").unwrap_err().contains("shut out"));
    }
}
