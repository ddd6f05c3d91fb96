//! Authorization: the only place that decides which requests a principal may make.

use norn_engine::Principal;
use norn_wire::{Error, ErrorCode};

/// Checks whether `principal` may make requests. Called for every request of every client before the core sees it.
///
/// Today every certificate of the cluster's authority may use every verb. Finer rules belong here and nowhere else:
/// the principal's name comes from its certificate, and a request names its queues and tasks. A rule that needs the
/// queue of a task known only by id must be asked again where the task is read.
pub fn authorize(principal: &Principal) -> Result<(), Error> {
    if principal.name.is_empty() {
        return Err(Error::new(ErrorCode::Denied, "the certificate has no name"));
    }
    Ok(())
}
