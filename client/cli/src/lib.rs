//! The verbs: one definition of each, for the command line and for the REPL.
//!
//! A verb's arguments become one or a few calls on a [`Transport`]; the answers become tables for people or JSON
//! lines for programs.
//!
//! ```no_run
//! # use norn_cli::{Output, Transport, Verb, execute};
//! # async fn example(transport: impl Transport) {
//! let exit = execute(transport, Verb::Queues, Output::standard(true), None).await;
//! std::process::exit(exit.code().into());
//! # }
//! ```

mod bound;
mod children;
mod claims;
mod cluster;
pub mod counters;
mod each;
mod effects;
mod enqueue;
mod error;
mod examples;
mod group;
mod help;
pub mod input;
pub(crate) mod interrupt;
mod json;
mod lines;
mod list;
mod members;
mod nodes_beside;
mod operate;
mod output;
mod parse;
mod purge;
pub(crate) mod queue;
mod recent;
mod redrive;
pub mod repl;
mod runner;
mod schedule;
mod session;
pub(crate) mod several;
mod shown;
mod table;
mod tasks;
pub mod text;
mod transact;
mod transport;
mod watch;
mod why;
pub(crate) mod words;

#[cfg(test)]
pub(crate) mod tests;

pub use claims::{ClaimArguments, CompleteArguments, FailArguments, ReleaseArguments, RenewArguments, UpdateArguments};
pub use cluster::{NodeStatusArguments, StatusArguments};
pub use enqueue::EnqueueArguments;
pub use error::{Exit, Failure};
pub use group::GroupArguments;
#[doc(hidden)]
pub use help::unexplained_default;
pub use help::{HelpArguments, print_help, refuse_usage, usage_summary};
pub use input::Input;
pub use list::ListArguments;
pub use members::MembersArguments;
pub use norn_client::session::{Call, Draft, Finish};
pub use operate::{
    AddArguments, ClusterVerb, CourseArguments, MoveArguments, NewcomerArguments, NodeArguments, RebalanceArguments,
    RecoverArguments, ReplaceArguments, SetVerb,
};
pub use output::Output;
pub use parse::{DataArguments, DurabilityArguments, duration_ms};
pub use purge::PurgeArguments;
pub use queue::{Key, QueueVerb, SetArguments, ShowArguments};
pub use recent::{Meant, Part, Recent};
pub use redrive::RedriveArguments;
pub use runner::{Place, Runner};
pub use schedule::{ScheduleArguments, ScheduleSetArguments, ScheduleVerb};
pub use session::{SessionArguments, SessionOpenArguments, SessionVerb};
pub use shown::ShownIds;
pub use tasks::{CancelArguments, CountArguments, GetArguments, LogArguments, WaitArguments};
pub use transact::TransactArguments;
pub use transport::Transport;
pub use watch::WatchArguments;
pub use why::WhyArguments;
#[doc(hidden)]
pub use words::split;

use clap::Subcommand;
use norn_wire::TaskView;
use std::future::Future;
use std::pin::Pin;

/// A task as `get --json` shows it, in one line.
pub fn task_line(task: &TaskView) -> String {
    serde_json::to_string(&json::task(task)).expect("a task is text")
}

/// What a person or a program may ask of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum Verb {
    /// Stores a task
    #[command(after_help = examples::ENQUEUE)]
    Enqueue(Box<EnqueueArguments>),
    /// Takes tasks to work on
    #[command(after_help = examples::CLAIM)]
    Claim(ClaimArguments),
    /// Prolongs a claim
    #[command(after_help = examples::RENEW)]
    Renew(RenewArguments),
    /// Adds an entry to a claim's log
    #[command(after_help = examples::UPDATE)]
    Update(UpdateArguments),
    /// Ends a task with a result
    #[command(after_help = examples::COMPLETE)]
    Complete(CompleteArguments),
    /// Says that an attempt failed
    #[command(after_help = examples::FAIL)]
    Fail(FailArguments),
    /// Gives claims back
    #[command(after_help = examples::RELEASE)]
    Release(ReleaseArguments),
    /// Ends tasks that nobody should run any more
    #[command(after_help = examples::CANCEL)]
    Cancel(CancelArguments),
    /// Adds, changes and ends several tasks at once, or none of them
    #[command(after_help = examples::TRANSACT)]
    Transact(TransactArguments),
    /// Enqueues dead tasks again
    #[command(after_help = examples::REDRIVE)]
    Redrive(RedriveArguments),
    /// Forgets tasks that have ended before their retention is over
    #[command(after_help = examples::PURGE)]
    Purge(PurgeArguments),
    /// Shows tasks with their claims and their logs
    #[command(after_help = examples::GET)]
    Get(GetArguments),
    /// Shows a task's log
    #[command(after_help = examples::LOG)]
    Log(LogArguments),
    /// Waits until a task has ended
    #[command(after_help = examples::WAIT)]
    Wait(WaitArguments),
    /// Shows what becomes of the tasks of a queue or of a group, as it happens
    #[command(after_help = examples::WATCH)]
    Watch(WatchArguments),
    /// Says what keeps a task from being claimed, or from having ended
    #[command(after_help = examples::WHY)]
    Why(WhyArguments),
    /// Lists the members of a group with what came of each
    #[command(after_help = examples::MEMBERS)]
    Members(MembersArguments),
    /// Lists tasks
    #[command(after_help = examples::LIST)]
    List(ListArguments),
    /// Counts tasks
    #[command(after_help = examples::COUNT)]
    Count(CountArguments),
    /// Lists queues with their counts
    #[command(after_help = examples::QUEUES)]
    Queues,
    /// Sets and shows what holds for a queue
    #[command(subcommand)]
    Queue(QueueVerb),
    /// Keeps all claims of a worker by one heartbeat, and ends them together
    #[command(subcommand)]
    Session(SessionVerb),
    /// Has the cluster enqueue tasks by itself, again and again or once
    #[command(subcommand)]
    Schedule(ScheduleVerb),
    /// Lists the nodes of the cluster
    #[command(after_help = examples::NODES)]
    Nodes,
    /// Shows which nodes hold which partition
    #[command(after_help = examples::RING)]
    Ring,
    /// Shows leaders, epochs and sizes of the partitions
    #[command(after_help = examples::PARTITIONS)]
    Partitions,
    /// Shows the cluster in short
    #[command(after_help = examples::STATUS)]
    Status(NodeStatusArguments),
    /// Shows the verbs, or one of them
    #[command(after_help = examples::HELP)]
    Help(HelpArguments),
}

/// A verb, or one of the group `cluster`.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// One of the verbs
    #[command(flatten)]
    Verb(Box<Verb>),
    /// Changes the cluster: members, replicas, settings, and which nodes hold what
    #[command(subcommand)]
    Cluster(ClusterVerb),
}

impl From<Verb> for Command {
    fn from(verb: Verb) -> Command {
        Command::Verb(Box::new(verb))
    }
}

impl From<ClusterVerb> for Command {
    fn from(verb: ClusterVerb) -> Command {
        Command::Cluster(verb)
    }
}

impl Command {
    /// Runs it. The future is boxed here, so that all verbs are compiled once for a transport and not with each of their callers.
    #[inline(never)]
    fn run<'a, T: Transport>(
        self,
        runner: &'a mut Runner<T>,
    ) -> Pin<Box<dyn Future<Output = Result<Exit, Failure>> + 'a>> {
        match self {
            Command::Verb(verb) => Box::pin(verb.run(runner)),
            Command::Cluster(verb) => Box::pin(verb.run(runner)),
        }
    }
}

impl Verb {
    /// Runs it.
    async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        match self {
            Verb::Enqueue(arguments) => arguments.run(runner).await,
            Verb::Claim(arguments) => arguments.run(runner).await,
            Verb::Renew(arguments) => arguments.run(runner).await,
            Verb::Update(arguments) => arguments.run(runner).await,
            Verb::Complete(arguments) => arguments.run(runner).await,
            Verb::Fail(arguments) => arguments.run(runner).await,
            Verb::Release(arguments) => arguments.run(runner).await,
            Verb::Cancel(arguments) => arguments.run(runner).await,
            Verb::Transact(arguments) => arguments.run(runner).await,
            Verb::Redrive(arguments) => arguments.run(runner).await,
            Verb::Purge(arguments) => arguments.run(runner).await,
            Verb::Get(arguments) => arguments.run(runner).await,
            Verb::Log(arguments) => arguments.run(runner).await,
            Verb::Wait(arguments) => arguments.run(runner).await,
            Verb::Watch(arguments) => arguments.run(runner).await,
            Verb::Why(arguments) => arguments.run(runner).await,
            Verb::Members(arguments) => arguments.run(runner).await,
            Verb::List(arguments) => arguments.run(runner).await,
            Verb::Count(arguments) => arguments.run(runner).await,
            Verb::Queues => tasks::queues(runner).await,
            Verb::Queue(verb) => verb.run(runner).await,
            Verb::Session(verb) => verb.run(runner).await,
            Verb::Schedule(verb) => verb.run(runner).await,
            Verb::Nodes => cluster::nodes(runner).await,
            Verb::Ring => cluster::ring(runner).await,
            Verb::Partitions => cluster::partitions(runner).await,
            Verb::Status(arguments) => arguments.run(runner).await,
            Verb::Help(arguments) => help::run(&arguments, runner),
        }
    }
}

/// Runs one verb of the group `cluster`. Failures are printed too.
pub async fn operate(transport: impl Transport, verb: ClusterVerb, output: Output) -> Exit {
    Runner::new(transport, output, Input::stdin(), Place::CommandLine).run(verb).await
}

/// Runs one verb of the command line, reading data from standard input where it says so. Failures are printed too. A few
/// characters stand for an id that is among those shown before, if these are kept.
pub async fn execute(transport: impl Transport, verb: Verb, output: Output, shown: Option<ShownIds>) -> Exit {
    let mut runner = Runner::new(transport, output, Input::stdin(), Place::CommandLine);
    runner.shown = shown;
    let exit = runner.run(verb).await;
    runner.remember_shown();
    exit
}
