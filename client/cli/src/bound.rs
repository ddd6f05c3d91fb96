//! Which commands `--timeout` bounds in all. Of others, which go on for as long as there is work, it bounds each call.

use super::{ClusterVerb, Command, Verb};

impl Command {
    /// Whether it makes a few calls, however many tasks there are, and then ends by itself.
    pub(super) fn makes_few_calls(&self) -> bool {
        match self {
            Command::Verb(verb) => verb.makes_few_calls(),
            Command::Cluster(ClusterVerb::Status(status)) => status.watch.is_none(),
            // The `--timeout` of the others says for how long nothing may come on.
            Command::Cluster(verb) => !verb.waits(),
        }
    }
}

impl Verb {
    fn makes_few_calls(&self) -> bool {
        match self {
            Verb::Enqueue(enqueue) => !enqueue.lines,
            Verb::Cancel(cancel) => cancel.id.is_some(),
            Verb::Release(release) => release.id.is_some(),
            Verb::Purge(purge) => purge.id.len() == 1,
            Verb::Redrive(redrive) => redrive.ids.len() == 1,
            Verb::Get(get) => get.ids.len() == 1,
            Verb::Status(status) => status.status.watch.is_none(),
            // It waits for tasks as long as its own flag says, beside that time.
            Verb::Claim(_)
            | Verb::Renew(_)
            | Verb::Update(_)
            | Verb::Complete(_)
            | Verb::Fail(_)
            | Verb::Transact(_)
            | Verb::Log(_)
            | Verb::Why(_)
            | Verb::Count(_)
            | Verb::Queues
            | Verb::Queue(_)
            | Verb::Session(_)
            | Verb::Schedule(_)
            | Verb::Nodes
            | Verb::Ring
            | Verb::Partitions
            | Verb::Help(_) => true,
            // These two wait for as long as their own flag says, and pages of tasks have no end.
            Verb::Wait(_) | Verb::Watch(_) | Verb::List(_) | Verb::Members(_) => false,
        }
    }
}
