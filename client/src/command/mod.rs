//! The verbs: one definition of each, for the command line and for the REPL.
//!
//! A verb's arguments become one or a few calls on a [`Transport`]; the answers become tables for people or JSON
//! lines for programs.
//!
//! ```no_run
//! # use norn_client::command::{Output, Transport, Verb, execute};
//! # async fn example(transport: impl Transport) {
//! let exit = execute(transport, Verb::Queues, Output::standard(true)).await;
//! std::process::exit(exit.code().into());
//! # }
//! ```

mod children;
mod claims;
mod cluster;
mod enqueue;
mod error;
mod group;
mod help;
pub mod input;
mod json;
mod members;
mod operate;
mod output;
mod parse;
mod queue;
mod recent;
mod redrive;
mod runner;
mod schedule;
mod session;
mod tasks;
pub mod text;
mod transact;
mod watch;
mod why;
pub(crate) mod words;

#[cfg(test)]
pub(crate) mod tests;

pub use crate::session::{Call, Draft, Finish};
pub use claims::{ClaimArguments, CompleteArguments, FailArguments, ReleaseArguments, RenewArguments, UpdateArguments};
pub use cluster::StatusArguments;
pub use enqueue::EnqueueArguments;
pub use error::{Exit, Failure};
pub use group::GroupArguments;
pub use help::{HelpArguments, print_help, refuse_usage};
pub use input::Input;
pub use members::MembersArguments;
pub use operate::{
    AddArguments, ClusterVerb, CourseArguments, MoveArguments, NewcomerArguments, NodeArguments, RebalanceArguments,
    RecoverArguments, ReplaceArguments, SetVerb,
};
pub use output::Output;
pub use parse::{DataArguments, DurabilityArguments};
pub use queue::{Key, QueueVerb, SetArguments, ShowArguments};
pub use recent::Recent;
pub use redrive::RedriveArguments;
pub use runner::{Place, Runner};
pub use schedule::{ScheduleArguments, ScheduleSetArguments, ScheduleVerb};
pub use session::{SessionArguments, SessionOpenArguments, SessionVerb};
pub use tasks::{CancelArguments, CountArguments, GetArguments, ListArguments, LogArguments, WaitArguments};
pub use transact::TransactArguments;
pub use watch::WatchArguments;
pub use why::WhyArguments;

use crate::wire::{Error, ErrorCode, Request, Response, TaskView};
use clap::Subcommand;
use std::future::Future;
use std::time::Duration;

const ENQUEUE_EXAMPLES: &str = "Examples:
  norn enqueue mail hello --priority 5 --delay 10m
  norn enqueue pages 'page one' --group book-7 --number 1 --join books
  norn enqueue pages 'page two' --group book-7 --number 2 --join books --total 2    # the last one says how many there are";

const MEMBERS_EXAMPLES: &str = "Example, by the id that `enqueue --group` printed:
  norn members 000038g2m4d7kq9rjscg0080000w3n5t --limit 1000";

const WATCH_EXAMPLES: &str = "Examples:
  norn watch mail
  norn watch --group 000038g2m4d7kq9rjscg0080000w3n5t
  norn watch mail --json --limit 10 --timeout 1m

An ending is told at least once. That a task is ready or claimed is told as its leader sees it.";

const COMPLETE_EXAMPLES: &str = "Examples:
  norn complete ID TOKEN --result sent
  norn complete ID TOKEN --then next.json

A file with a group of two, and the join that comes behind them:
  [{\"queue\": \"books\", \"data\": \"bind\", \"join\": {\"total\": 2, \"fail_fast\": false}},
   {\"queue\": \"pages\", \"data\": \"one\", \"number\": 1}, {\"queue\": \"pages\", \"data\": \"two\", \"number\": 2}]";

const TRANSACT_EXAMPLES: &str = "The tasks lie together: they have one queue and key, or were enqueued with --near. A task is
found by its id, as it was seen with its `version` (from `get`), or under its holder's `token`. Nothing is changed unless all are found so.

Examples:
  norn transact '{\"adds\": [{\"queue\": \"outbox\", \"data\": \"hello\"}], \"deletes\": [{\"id\": \"ID\", \"token\": \"7.42\"}]}'
  norn transact --file change.json

A file that changes a task, ends another one, and needs a third one to be there:
  {\"changes\": [{\"id\": \"ID\", \"version\": \"VERSION\", \"data\": \"two\", \"priority\": 5, \"delay\": \"1m\"}],
   \"deletes\": [{\"id\": \"ID\", \"token\": \"7.42\", \"result\": \"sent\"}],
   \"depends\": [{\"id\": \"ID\"}]}

A holder that hands a task back, changed, names its token and {\"release\": true}.";

/// A task as `get --json` shows it, in one line.
pub fn task_line(task: &TaskView) -> String {
    serde_json::to_string(&json::task(task)).expect("a task is text")
}

/// What carries a verb's calls to the cluster.
pub trait Transport {
    /// Makes one call. Without a timeout the transport's own holds.
    fn call(&self, call: Call, timeout: Option<Duration>) -> impl Future<Output = Result<Response, Error>> + Send;

    /// Asks the node at an address itself, which need not belong to the cluster. Without this, no nodes can be added.
    fn ask(&self, address: &str, request: Request) -> impl Future<Output = Result<Response, Error>> + Send {
        let verb = request.verb();
        let message = format!("this program reaches no node outside its cluster: {verb} at {address} is not possible");
        async { Err(Error::new(ErrorCode::Unsupported, message)) }
    }
}

impl<T: Transport> Transport for &T {
    fn call(&self, call: Call, timeout: Option<Duration>) -> impl Future<Output = Result<Response, Error>> + Send {
        T::call(self, call, timeout)
    }

    fn ask(&self, address: &str, request: Request) -> impl Future<Output = Result<Response, Error>> + Send {
        T::ask(self, address, request)
    }
}

/// What a person or a program may ask of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum Verb {
    /// Stores a task
    #[command(after_help = ENQUEUE_EXAMPLES)]
    Enqueue(Box<EnqueueArguments>),
    /// Takes tasks to work on
    Claim(ClaimArguments),
    /// Prolongs a claim
    Renew(RenewArguments),
    /// Adds an entry to a claim's log
    Update(UpdateArguments),
    /// Ends a task with a result
    #[command(after_help = COMPLETE_EXAMPLES)]
    Complete(CompleteArguments),
    /// Says that an attempt failed
    Fail(FailArguments),
    /// Gives a claim back
    Release(ReleaseArguments),
    /// Ends a task that nobody should run any more
    Cancel(CancelArguments),
    /// Adds, changes and ends several tasks at once, or none of them
    #[command(after_help = TRANSACT_EXAMPLES)]
    Transact(TransactArguments),
    /// Enqueues dead tasks again
    Redrive(RedriveArguments),
    /// Shows a task with its claims and its log
    Get(GetArguments),
    /// Shows a task's log
    Log(LogArguments),
    /// Waits until a task has ended
    Wait(WaitArguments),
    /// Shows what becomes of the tasks of a queue or of a group, as it happens
    #[command(after_help = WATCH_EXAMPLES)]
    Watch(WatchArguments),
    /// Says what keeps a task from being claimed, or from having ended
    Why(WhyArguments),
    /// Lists the members of a group with what came of each
    #[command(after_help = MEMBERS_EXAMPLES)]
    Members(MembersArguments),
    /// Lists tasks
    List(ListArguments),
    /// Counts tasks
    Count(CountArguments),
    /// Lists queues with their counts
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
    Nodes,
    /// Shows which nodes hold which partition
    Ring,
    /// Shows leaders, epochs and sizes of the partitions
    Partitions,
    /// Shows the cluster in short
    Status(StatusArguments),
    /// Shows the verbs, or one of them
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
    /// Runs it.
    async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        match self {
            Command::Verb(verb) => verb.run(runner).await,
            Command::Cluster(verb) => verb.run(runner).await,
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
            Verb::Status(arguments) => arguments.run(runner, cluster::Shown::Node).await,
            Verb::Help(arguments) => help::run(&arguments, runner),
        }
    }
}

/// Runs one verb of the group `cluster`. Failures are printed too.
pub async fn operate(transport: impl Transport, verb: ClusterVerb, output: Output) -> Exit {
    Runner::new(transport, output, Input::stdin(), Place::CommandLine).run(verb).await
}

/// Runs one verb of the command line, reading data from standard input where it says so. Failures are printed too.
pub async fn execute(transport: impl Transport, verb: Verb, output: Output) -> Exit {
    Runner::new(transport, output, Input::stdin(), Place::CommandLine).run(verb).await
}
