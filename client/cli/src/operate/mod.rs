//! Verbs that change a cluster, from `cluster add` to `cluster set`, and `cluster status`, which shows it.
//!
//! The cluster keeps its wanted state by consensus, and moves its partitions by itself. So these verbs request a change once, and then
//! only watch: interrupting one changes nothing, and the same verb resumes watching.

mod ailing;
mod change;
mod follow;
mod join;
mod moving;
pub(super) mod overview;
mod recover;
mod rows;
mod set;
pub(super) mod survey;
mod token;

#[cfg(test)]
pub(super) mod tests;

pub use change::CourseArguments;
pub use join::{AddArguments, NewcomerArguments, ReplaceArguments};
pub use moving::MoveArguments;
pub use recover::RecoverArguments;
pub use set::SetVerb;

use super::cluster::{Shown, StatusArguments};
use super::text::clean;
use super::{Exit, Failure, Runner, Transport, examples};
use change::{Texts, Wish};
use clap::{Args, Subcommand};
use norn_client::client::cluster::{no_such_member, present_names};
use norn_wire::membership::ClusterChange;
use norn_wire::{Error, ErrorCode};
use survey::Survey;

/// Verbs about the cluster as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum ClusterVerb {
    /// Add a running node that waits for a cluster, as a member
    ///
    /// Start the node with an empty data directory and a certificate of the cluster's authority. It gets its share of the partitions. If
    /// the command was interrupted, repeat it. A node that is started with `--join` needs no `add`.
    #[command(after_help = examples::CLUSTER_ADD)]
    Add(AddArguments),
    /// Print a token with which a new machine joins: `norn start --join TOKEN`
    ///
    /// The token names the cluster and some of its members. It is no secret: a machine is admitted by its certificate.
    #[command(after_help = examples::CLUSTER_TOKEN)]
    Token,
    /// Move everything off a member, so that it can be removed
    ///
    /// The member serves clients meanwhile. Other members take its replicas; there must be enough of them for every replica.
    #[command(after_help = examples::CLUSTER_DRAIN)]
    Drain(NodeArguments),
    /// Cancel the drain of a member, and give it its share again
    #[command(after_help = examples::CLUSTER_UNDRAIN)]
    Undrain(NodeArguments),
    /// Remove a member that was drained, or that is dead
    ///
    /// Replicas of a dead member are created on others. Its data directory is useless afterwards: a removed node joins again with an
    /// empty one.
    #[command(after_help = examples::CLUSTER_REMOVE)]
    Remove(NodeArguments),
    /// Put a new node in the place of a member, which may be dead
    ///
    /// Start the new node as for `cluster add`; it may have the name and the address of the old one, if that is dead. A member that is
    /// alive is drained, and can be removed afterwards.
    #[command(after_help = examples::CLUSTER_REPLACE)]
    Replace(ReplaceArguments),
    /// Move one partition to other nodes
    ///
    /// They keep it until an input of the layout changes, or until `cluster rebalance`.
    #[command(after_help = examples::CLUSTER_MOVE)]
    Move(MoveArguments),
    /// Give every member its share, with as few moves as possible
    #[command(after_help = examples::CLUSTER_REBALANCE)]
    Rebalance(RebalanceArguments),
    /// Change the settings of the cluster; `cluster status` shows them
    #[command(subcommand)]
    Set(SetVerb),
    /// Have partitions go on that have lost a majority of their members for good. LOSES DATA
    ///
    /// This is the last resort: start the lost nodes instead, if that is at all possible. The surviving members of a partition hold it
    /// alone then, until the lost ones are removed with `cluster remove`. Data that only the lost nodes had is lost, even if it was
    /// acknowledged. Partitions with a majority are left alone; so are those with a member that was named as lost and is still heard.
    #[command(after_help = examples::CLUSTER_RECOVER)]
    Recover(RecoverArguments),
    /// Show the members, their replicas, the moves, and the settings
    #[command(after_help = examples::CLUSTER_STATUS)]
    Status(StatusArguments),
}

/// Arguments that name a member and how to carry the change out.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct NodeArguments {
    /// Name of the member, or the beginning of its id
    #[arg(value_name = "NODE")]
    pub node: String,
    /// How to carry the change out
    #[command(flatten)]
    pub course: CourseArguments,
}

/// Arguments of `cluster rebalance`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct RebalanceArguments {
    /// How to carry the change out
    #[command(flatten)]
    pub course: CourseArguments,
}

impl ClusterVerb {
    /// Whether the verb waits for something that may take long, so that `--timeout` limits that wait and not each call.
    pub fn waits(&self) -> bool {
        match self {
            ClusterVerb::Status(_) | ClusterVerb::Token => false,
            ClusterVerb::Set(verb) => verb.waits(),
            _ => true,
        }
    }

    pub(super) async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        match self {
            ClusterVerb::Add(arguments) => arguments.run(runner).await,
            ClusterVerb::Token => token::run(runner).await,
            ClusterVerb::Drain(arguments) => drain(runner, arguments).await,
            ClusterVerb::Undrain(arguments) => undrain(runner, arguments).await,
            ClusterVerb::Remove(arguments) => remove(runner, arguments).await,
            ClusterVerb::Replace(arguments) => arguments.run(runner).await,
            ClusterVerb::Move(arguments) => arguments.run(runner).await,
            ClusterVerb::Rebalance(arguments) => rebalance(runner, arguments).await,
            ClusterVerb::Recover(arguments) => arguments.run(runner).await,
            ClusterVerb::Set(verb) => verb.run(runner).await,
            ClusterVerb::Status(arguments) => arguments.run(runner, Shown::Layout).await,
        }
    }
}

async fn drain<T: Transport>(runner: &mut Runner<T>, arguments: NodeArguments) -> Result<Exit, Failure> {
    let survey = Survey::take(runner, None).await?;
    let member = survey.find(&arguments.node)?;
    let (node, name) = (member.node, survey.name(member.node));
    let told = Texts {
        already: format!("{name} is leaving already"),
        begun: format!("{name} leaves"),
        done: format!("{name} holds nothing any more; `norn cluster remove {name}` takes it out"),
    };
    let wish = Wish::about(node, "drain", ClusterChange::Drain { node }, told);
    wish.carry_out(runner, &arguments.course).await
}

async fn undrain<T: Transport>(runner: &mut Runner<T>, arguments: NodeArguments) -> Result<Exit, Failure> {
    let survey = Survey::take(runner, None).await?;
    let node = survey.find(&arguments.node)?.node;
    let name = survey.name(node);
    let told = Texts {
        already: format!("{name} stays already"),
        begun: format!("{name} stays"),
        done: format!("{name} holds its share"),
    };
    let wish = Wish::about(node, "undrain", ClusterChange::Undrain { node }, told);
    wish.carry_out(runner, &arguments.course).await
}

async fn remove<T: Transport>(runner: &mut Runner<T>, arguments: NodeArguments) -> Result<Exit, Failure> {
    let survey = Survey::take(runner, None).await?;
    let Some(member) = survey.look_up(&arguments.node)? else {
        // A rehearsal finds a mistaken name.
        if arguments.course.dry_run {
            return Err(no_such_member(&survey.view, &arguments.node).into());
        }
        return not_there(runner, &survey, &arguments.node);
    };
    let node = member.node;
    let name = survey.name(node);
    let done = match survey.is_alive(node) {
        true => format!("{name} is no member any more; it can be stopped"),
        false => format!("{name} is no member any more, and every partition has its replicas"),
    };
    let told =
        Texts { already: format!("{name} was removed already"), begun: format!("{name} is no member any more"), done };
    let wish = Wish::about(node, "remove", ClusterChange::Remove { node }, told);
    wish.carry_out(runner, &arguments.course).await
}

/// Reports that there is no such member. The cluster forgets a removed member's name once others hold its replicas, so removing it again
/// is a success.
fn not_there<T: Transport>(runner: &mut Runner<T>, survey: &Survey, text: &str) -> Result<Exit, Failure> {
    if runner.output.json() {
        runner.output.object(&rows::of_absent("remove", &survey.view))?;
        return Ok(Exit::Done);
    }
    let (text, known) = (clean(text), present_names(&survey.view));
    runner
        .output
        .line(&format!("{text} is no member: it was removed already, or never was one; the members are {known}"))?;
    Ok(Exit::Done)
}

async fn rebalance<T: Transport>(runner: &mut Runner<T>, arguments: RebalanceArguments) -> Result<Exit, Failure> {
    let told = Texts {
        already: "the layout is about to be planned anew".to_owned(),
        begun: "the layout is planned anew".to_owned(),
        done: "every member holds its share".to_owned(),
    };
    Wish::new("rebalance", ClusterChange::Rebalance, told).carry_out(runner, &arguments.course).await
}

/// Creates a failure for something that is not there yet and may come, as the message says.
fn not_yet(message: String) -> Failure {
    Failure::Explained(Error::new(ErrorCode::Unavailable, message))
}
