//! Authorization: the only place that decides which requests a principal may make.

use norn_engine::Principal;
use norn_wire::{Error, ErrorCode, Request};

/// Checks whether `principal` may make this request. Called for every request of every client before the core sees it.
///
/// Today every certificate of the cluster's authority may use every verb. Finer rules belong here and nowhere else:
/// the principal's name comes from its certificate, and the request names its queues and tasks. A rule that needs the
/// queue of a task known only by id must be asked again where the task is read.
pub fn authorize(principal: &Principal, request: &Request) -> Result<(), Error> {
    if principal.name.is_empty() {
        return Err(Error::new(ErrorCode::Denied, "the certificate has no name"));
    }
    match request {
        Request::Identify | Request::Ping | Request::Initialize(_) | Request::Join(_) => Ok(()),
        Request::Hello { .. }
        | Request::Enqueue { .. }
        | Request::EnqueueUnique { .. }
        | Request::Transact(_)
        | Request::CloseGroup { .. }
        | Request::Update { .. }
        | Request::Complete { .. }
        | Request::Cancel { .. }
        | Request::Get { .. }
        | Request::Wait { .. }
        | Request::Watch { .. }
        | Request::List { .. }
        | Request::Count { .. }
        | Request::Queues
        | Request::Claim(_)
        | Request::Confirm { .. }
        | Request::Leave { .. }
        | Request::Renew { .. }
        | Request::Release { .. }
        | Request::Fail { .. }
        | Request::Redrive { .. }
        | Request::Purge { .. }
        | Request::Nodes
        | Request::Ring
        | Request::Partitions
        | Request::Arrange { .. }
        | Request::Change { .. }
        | Request::Cluster
        | Request::Schedule(_)
        | Request::Schedules { .. }
        | Request::Recover { .. }
        | Request::Status => Ok(()),
    }
}
