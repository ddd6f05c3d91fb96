//! The verbs, each defined once, for the command line and for the REPL.
//!
//! A verb turns its arguments into one or a few calls on a [`Transport`], and the answers into tables for people or JSON lines for
//! programs.
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
pub mod doctor;
mod each;
mod effects;
mod enqueue;
mod error;
mod examples;
mod group;
mod help;
pub mod input;
pub(crate) mod interrupt;
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
use std::future::Future;
use std::pin::Pin;

/// Verbs of clients, for people and programs.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum Verb {
    /// Store a task
    #[command(after_help = examples::ENQUEUE)]
    Enqueue(Box<EnqueueArguments>),
    /// Claim tasks to work on
    #[command(after_help = examples::CLAIM)]
    Claim(ClaimArguments),
    /// Renew the lease of a claim
    #[command(after_help = examples::RENEW)]
    Renew(RenewArguments),
    /// Add an entry to a claim's log
    #[command(after_help = examples::UPDATE)]
    Update(UpdateArguments),
    /// Complete a task with a result
    #[command(after_help = examples::COMPLETE)]
    Complete(CompleteArguments),
    /// Report an attempt as failed
    #[command(after_help = examples::FAIL)]
    Fail(FailArguments),
    /// Release claims, so that their tasks can be claimed again at once
    #[command(after_help = examples::RELEASE)]
    Release(ReleaseArguments),
    /// Cancel tasks
    #[command(after_help = examples::CANCEL)]
    Cancel(CancelArguments),
    /// Add, change and end several tasks at once, or none of them
    #[command(after_help = examples::TRANSACT)]
    Transact(TransactArguments),
    /// Enqueue dead tasks again, each as a new task, at once and with all its attempts
    ///
    /// The dead task stays as it is, and `get` shows its copy. A task is redriven once: a repeated command shows the copy that exists, or
    /// the dead letter. If the copy dies, redrive the copy.
    #[command(after_help = examples::REDRIVE)]
    Redrive(RedriveArguments),
    /// Forget ended tasks, with payload, result and log, before their retention is over
    ///
    /// A task that has not ended is refused: cancel it first. `get` and `list` show a purged task until its leader has replaced it by a
    /// tombstone. That takes a moment; a member of a group is kept until the group's join has ended.
    #[command(after_help = examples::PURGE)]
    Purge(PurgeArguments),
    /// Show tasks with their claims and their logs
    #[command(after_help = examples::GET)]
    Get(GetArguments),
    /// Show a task's log
    #[command(after_help = examples::LOG)]
    Log(LogArguments),
    /// Wait until a task has ended
    #[command(after_help = examples::WAIT)]
    Wait(WaitArguments),
    /// Show how the tasks of a queue or of a group change, as it happens
    #[command(after_help = examples::WATCH)]
    Watch(WatchArguments),
    /// Explain what keeps a task from being claimed, or from ending
    #[command(after_help = examples::WHY)]
    Why(WhyArguments),
    /// List the members of a group, with the outcome of each
    #[command(after_help = examples::MEMBERS)]
    Members(MembersArguments),
    /// List tasks
    #[command(after_help = examples::LIST)]
    List(ListArguments),
    /// Count tasks
    #[command(after_help = examples::COUNT)]
    Count(CountArguments),
    /// List queues with their counts
    #[command(after_help = examples::QUEUES)]
    Queues,
    /// Change and show the settings of a queue
    #[command(subcommand)]
    Queue(QueueVerb),
    /// Keep all claims of a worker alive by one heartbeat, and end them together
    #[command(subcommand)]
    Session(SessionVerb),
    /// Have the cluster enqueue tasks by itself, repeatedly or once
    #[command(subcommand)]
    Schedule(ScheduleVerb),
    /// List the nodes of the cluster
    #[command(after_help = examples::NODES)]
    Nodes,
    /// Show which nodes hold which partition
    #[command(after_help = examples::RING)]
    Ring,
    /// Show leaders, epochs and sizes of the partitions
    #[command(after_help = examples::PARTITIONS)]
    Partitions,
    /// Summarize the cluster
    #[command(after_help = examples::STATUS)]
    Status(NodeStatusArguments),
    /// Show the verbs, or the help of one
    #[command(after_help = examples::HELP)]
    Help(HelpArguments),
}

/// Verb, or one of the group `cluster`.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// One of the verbs
    #[command(flatten)]
    Verb(Box<Verb>),
    /// Change the cluster: members, replicas, settings, and which nodes hold what
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
    /// Runs the command. The future is boxed here, so that all verbs are compiled once per transport and not with each of their callers.
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
    /// Runs the verb.
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

/// Runs one verb of the group `cluster`, and prints a failure too.
pub async fn operate(transport: impl Transport, verb: ClusterVerb, output: Output) -> Exit {
    Runner::new(transport, output, Input::stdin(), Place::CommandLine).run(verb).await
}

/// Runs one verb of the command line, and prints a failure too. Reads data from standard input if the arguments say so. With `shown`, a
/// few characters stand for an id that an earlier command has shown.
pub async fn execute(transport: impl Transport, verb: Verb, output: Output, shown: Option<ShownIds>) -> Exit {
    let mut runner = Runner::new(transport, output, Input::stdin(), Place::CommandLine);
    runner.shown = shown;
    let exit = runner.run(verb).await;
    runner.remember_shown();
    exit
}
