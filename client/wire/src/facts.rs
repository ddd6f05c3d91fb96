//! What is to be known of each request without carrying it out, once for clients and nodes.

use crate::request::Request;

/// Properties of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Name of the verb, for logs, counters and errors.
    pub verb: &'static str,
    /// It changes something, so that after a lost answer its outcome is unknown.
    pub writes: bool,
    /// It makes a node's disk and memory fuller for good, so that a node without room refuses it.
    pub grows: bool,
    /// A node answers it in any state: also without a cluster, and while it starts or stops.
    pub of_any_node: bool,
    /// A node answers it also after it was removed from its cluster.
    pub of_removed_nodes: bool,
}

impl Facts {
    const fn read(verb: &'static str) -> Facts {
        Facts { verb, writes: false, grows: false, of_any_node: false, of_removed_nodes: false }
    }

    const fn write(verb: &'static str) -> Facts {
        Facts { writes: true, ..Facts::read(verb) }
    }

    const fn growing(self, grows: bool) -> Facts {
        Facts { grows, ..self }
    }

    const fn of_any_node(self) -> Facts {
        Facts { of_any_node: true, of_removed_nodes: true, ..self }
    }

    const fn of_removed_nodes(self) -> Facts {
        Facts { of_removed_nodes: true, ..self }
    }
}

impl Request {
    /// The properties of this request.
    pub fn facts(&self) -> Facts {
        match self {
            Request::Hello { .. } => Facts::read("hello"),
            Request::Enqueue { .. } => Facts::write("enqueue").growing(true),
            Request::EnqueueUnique { .. } => Facts::write("enqueue_unique").growing(true),
            Request::Transact(transaction) => {
                Facts::write("transact").growing(!transaction.adds.is_empty() || !transaction.changes.is_empty())
            }
            Request::CloseGroup { .. } => Facts::write("close_group"),
            Request::Update { .. } => Facts::write("update").growing(true),
            Request::Complete { .. } => Facts::write("complete"),
            Request::Cancel { .. } => Facts::write("cancel"),
            Request::Get { .. } => Facts::read("get"),
            Request::Wait { .. } => Facts::read("wait"),
            Request::Watch { .. } => Facts::read("watch"),
            Request::List { .. } => Facts::read("list"),
            Request::Count { .. } => Facts::read("count"),
            Request::Queues => Facts::read("queues"),
            Request::Claim(_) => Facts::write("claim"),
            Request::Renew { .. } => Facts::write("renew"),
            Request::Release { .. } => Facts::write("release"),
            Request::Fail { .. } => Facts::write("fail"),
            Request::Redrive { .. } => Facts::write("redrive"),
            Request::Purge { .. } => Facts::write("purge"),
            Request::Nodes => Facts::read("nodes").of_removed_nodes(),
            Request::Ring => Facts::read("ring").of_removed_nodes(),
            Request::Partitions => Facts::read("partitions").of_removed_nodes(),
            Request::Arrange { .. } => Facts::write("arrange"),
            Request::Status => Facts::read("status"),
            Request::Identify => Facts::read("identify").of_any_node(),
            Request::Initialize(_) => Facts::write("init").of_any_node(),
            Request::Change { .. } => Facts::write("change"),
            Request::Cluster => Facts::read("cluster"),
            Request::Schedule(_) => Facts::write("schedule"),
            Request::Schedules { .. } => Facts::read("schedules"),
            Request::Recover { .. } => Facts::write("recover"),
            Request::Join(_) => Facts::write("join").of_any_node(),
            Request::Ping => Facts::read("ping").of_any_node(),
            Request::Confirm { .. } => Facts::read("confirm").of_any_node(),
            Request::Leave { .. } => Facts::read("leave").of_any_node(),
        }
    }

    /// Name of the verb, for logs, counters and errors.
    pub fn verb(&self) -> &'static str {
        self.facts().verb
    }
}
