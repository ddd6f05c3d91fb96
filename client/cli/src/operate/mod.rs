//! The verbs that change a cluster, `cluster add` to `cluster set`, and `cluster status`, which shows it.
//!
//! What a cluster should be is kept by itself, by consensus, and it moves its partitions by itself. So these verbs say what is
//! wanted, once, and then only look: ending one at any moment changes nothing, and the same verb looks on.

mod ailing;
mod change;
mod follow;
mod join;
mod moving;
pub(super) mod overview;
mod recover;
mod rows;
mod set;
mod survey;
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
use change::{Told, Wish};
use clap::{Args, Subcommand};
use norn_wire::membership::ClusterChange;
use norn_wire::{Error, ErrorCode};
use survey::Survey;

/// What a person or a program may do with a cluster as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum ClusterVerb {
    /// Makes a node that runs and waits a member
    ///
    /// The node was started with an empty data directory and a certificate of the cluster's authority. It gets its share of the
    /// partitions. May be repeated if it was interrupted. A node that is started with `--join` needs no `add`.
    #[command(after_help = examples::CLUSTER_ADD)]
    Add(AddArguments),
    /// Prints a token with which a new machine joins: `norn start --join TOKEN`
    ///
    /// It names the cluster and some of its members. It is no secret: what admits a machine is its certificate.
    #[command(after_help = examples::CLUSTER_TOKEN)]
    Token,
    /// Moves everything off a member, so that it can be removed
    ///
    /// It serves clients all the while. Others take what it holds; there must be enough of them for every replica.
    #[command(after_help = examples::CLUSTER_DRAIN)]
    Drain(NodeArguments),
    /// Lets a member stay that was to be drained, and gives it its share again
    #[command(after_help = examples::CLUSTER_UNDRAIN)]
    Undrain(NodeArguments),
    /// Takes a member out that was drained, or that is dead
    ///
    /// What a dead one held gets replicas at others. Its data directory is of no use afterwards: a node that was removed joins
    /// again with an empty one.
    #[command(after_help = examples::CLUSTER_REMOVE)]
    Remove(NodeArguments),
    /// Puts a new node in the place of a member, which may be dead
    ///
    /// The new one was started as for `cluster add`; it may have the name and the address of the old one, if that is dead. A
    /// member that is alive is drained, and can be removed afterwards.
    #[command(after_help = examples::CLUSTER_REPLACE)]
    Replace(ReplaceArguments),
    /// Moves one partition to other nodes
    ///
    /// They keep it until something changes on which the layout rests, or `cluster rebalance`.
    #[command(after_help = examples::CLUSTER_MOVE)]
    Move(MoveArguments),
    /// Gives every member its share, with as few moves as possible
    #[command(after_help = examples::CLUSTER_REBALANCE)]
    Rebalance(RebalanceArguments),
    /// Sets how the cluster should be; `cluster status` shows what is set
    #[command(subcommand)]
    Set(SetVerb),
    /// Has partitions go on that have lost a majority of their members for good. LOSES DATA
    ///
    /// The last resort: start the lost nodes instead, if that is possible in any way. Whoever is left of a partition holds it alone
    /// then, until the lost are taken out with `cluster remove`. Whatever only the lost had is lost, also if it was acknowledged.
    /// Partitions with a majority are left alone; so are those of which a node that is said to be lost is heard.
    #[command(after_help = examples::CLUSTER_RECOVER)]
    Recover(RecoverArguments),
    /// Shows members, what each holds, what moves, and what is set
    #[command(after_help = examples::CLUSTER_STATUS)]
    Status(StatusArguments),
}

/// A member, and how a change is carried out.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct NodeArguments {
    /// Name, or the beginning of the id
    #[arg(value_name = "NODE")]
    pub node: String,
    /// How
    #[command(flatten)]
    pub course: CourseArguments,
}

/// Gives every member its share.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct RebalanceArguments {
    /// How
    #[command(flatten)]
    pub course: CourseArguments,
}

impl ClusterVerb {
    /// Whether it waits for what may last, so that `--timeout` bounds that and not each of its calls.
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
    let told = Told {
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
    let told = Told {
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
        return not_there(runner, &survey, &arguments.node);
    };
    let node = member.node;
    let name = survey.name(node);
    let done = match survey.is_alive(node) {
        true => format!("{name} is no member any more; it can be stopped"),
        false => format!("{name} is no member any more, and every partition has its replicas"),
    };
    let told =
        Told { already: format!("{name} was removed already"), begun: format!("{name} is no member any more"), done };
    let wish = Wish::about(node, "remove", ClusterChange::Remove { node }, told);
    wish.carry_out(runner, &arguments.course).await
}

/// The cluster forgets the name of a member once others hold all that it held, so that removing it again finds none.
fn not_there<T: Transport>(runner: &mut Runner<T>, survey: &Survey, text: &str) -> Result<Exit, Failure> {
    if runner.output.json() {
        runner.output.object(&rows::of_absent("remove", &survey.view))?;
        return Ok(Exit::Done);
    }
    let (text, known) = (clean(text), survey.present_names());
    runner
        .output
        .line(&format!("{text} is no member: it was removed already, or never was one; the members are {known}"))?;
    Ok(Exit::Done)
}

async fn rebalance<T: Transport>(runner: &mut Runner<T>, arguments: RebalanceArguments) -> Result<Exit, Failure> {
    let told = Told {
        already: "the layout is about to be planned anew".to_owned(),
        begun: "the layout is planned anew".to_owned(),
        done: "every member holds its share".to_owned(),
    };
    Wish::new("rebalance", ClusterChange::Rebalance, told).carry_out(runner, &arguments.course).await
}

/// What was asked for is not there yet, and may come, as the message says.
fn not_yet(message: String) -> Failure {
    Failure::Told(Error::new(ErrorCode::Unavailable, message))
}
