//! The stop of a node that cannot go on: a stopped node is better than a wrong claim.

use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;

/// What the host does when a rule is broken or the disk fails: after a failed sync nothing is known of what is on the disk.
#[derive(Clone)]
pub struct EmergencyStop(Arc<dyn Fn(&str) + Send + Sync>);

/// The payload with which a thread ends after an emergency stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped;

impl EmergencyStop {
    /// Calls `stop` with the reason. A service ends its process there. If `stop` returns, the thread or task that could not go on
    /// unwinds without a message; `stop` must see to it that the node does nothing more.
    pub fn new(stop: impl Fn(&str) + Send + Sync + 'static) -> EmergencyStop {
        EmergencyStop(Arc::new(stop))
    }

    /// Stops the node if the thread that holds the guard panics.
    pub fn on_panic(&self, what: &'static str) -> PanicGuard {
        PanicGuard { emergency: self.clone(), what }
    }

    /// Stops the node.
    pub fn stop(&self, reason: &str) -> ! {
        tracing::error!(reason, "stopping at once");
        (self.0)(reason);
        resume_unwind(Box::new(Stopped))
    }
}

/// See [`EmergencyStop::on_panic`].
#[derive(Debug)]
pub struct PanicGuard {
    emergency: EmergencyStop,
    what: &'static str,
}

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let reason = format!("{} has panicked; standard error says where", self.what);
            tracing::error!(reason, "stopping at once");
            (self.emergency.0)(&reason);
        }
    }
}

impl fmt::Debug for EmergencyStop {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("EmergencyStop")
    }
}
