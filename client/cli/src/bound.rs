//! Which commands `--timeout` bounds as a whole. For other commands, which go on as long as there is work, it bounds each call.

use super::{ClusterVerb, Command, Verb};

impl Command {
    /// Whether the command makes a few calls, however many tasks there are, and then ends by itself.
    pub(super) fn makes_few_calls(&self) -> bool {
        match self {
            Command::Verb(verb) => verb.makes_few_calls(),
            Command::Cluster(ClusterVerb::Status(status)) => status.watch.is_none(),
            // For the others, `--timeout` limits how long there may be no progress.
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
            // A claim waits for tasks as long as its own flag says, in addition to the timeout.
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
            // The first two wait as long as their own flags say, and pages of tasks have no limit.
            Verb::Wait(_) | Verb::Watch(_) | Verb::List(_) | Verb::Members(_) => false,
        }
    }
}
