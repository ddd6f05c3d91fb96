//! `cluster set`: operators' settings of the cluster and its members.

use super::super::parse;
use super::super::text::{clean, duration};
use super::super::{Exit, Failure, Runner, Transport, examples};
use super::change::{CourseArguments, Texts, Wish};
use super::join::identify;
use super::survey::Survey;
use clap::Subcommand;
use norn_wire::Error;
use norn_wire::limits::{MOVES_MAX, NODES_OF_PARTITION_MAX, WEIGHT_MAX};
use norn_wire::membership::{ClusterChange, Member, Settings};

/// Verbs of cluster settings.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum SetVerb {
    /// Set the number of replicas of each partition, 1 to 7
    #[command(after_help = examples::CLUSTER_SET_REPLICAS)]
    Replicas {
        /// Number of replicas
        #[arg(value_name = "N", value_parser = parse::whole(1, NODES_OF_PARTITION_MAX as u32, 3), allow_negative_numbers = true)]
        replicas: u32,
        /// How to carry the change out
        #[command(flatten)]
        course: CourseArguments,
    },
    /// Set the weight of a member: its share of the replicas, relative to other members
    #[command(after_help = examples::CLUSTER_SET_WEIGHT)]
    Weight {
        /// Name of the member, or the beginning of its id
        #[arg(value_name = "NODE")]
        node: String,
        /// Weight, relative to the weights of others; above 0
        #[arg(value_name = "N", value_parser = parse::whole(1, WEIGHT_MAX, 2), allow_negative_numbers = true)]
        weight: u32,
        /// How to carry the change out
        #[command(flatten)]
        course: CourseArguments,
    },
    /// Set the failure domain of a member: replicas are spread over zones
    #[command(after_help = examples::CLUSTER_SET_ZONE)]
    Zone {
        /// Name of the member, or the beginning of its id
        #[arg(value_name = "NODE")]
        node: String,
        /// New zone
        #[arg(value_name = "ZONE")]
        zone: String,
        /// How to carry the change out
        #[command(flatten)]
        course: CourseArguments,
    },
    /// Set the address of a member, after it was moved there
    #[command(after_help = examples::CLUSTER_SET_ADDRESS)]
    Address {
        /// Name of the member, or the beginning of its id
        #[arg(value_name = "NODE")]
        node: String,
        /// New address
        #[arg(value_name = "HOST:PORT", value_parser = parse::address)]
        address: String,
        /// Skip the check that the member answers there: it does not run yet, or this machine does not reach it there
        #[arg(long)]
        untried: bool,
    },
    /// Set after how much silence the cluster declares a member gone by itself, and creates its replicas on others
    #[command(after_help = examples::CLUSTER_SET_HEAL_AFTER)]
    HealAfter {
        /// Duration, or `never`: then only operators declare members gone
        #[arg(value_name = "DUR|never", value_parser = heal_after)]
        after: HealAfter,
    },
    /// Set how many partitions move at once in the whole cluster
    #[command(after_help = examples::CLUSTER_SET_MOVES)]
    Moves {
        /// Number of partitions
        #[arg(value_name = "N", value_parser = parse::whole(1, MOVES_MAX, 8), allow_negative_numbers = true)]
        moves: u32,
    },
    /// Set how many partitions come to or leave one member at once
    #[command(after_help = examples::CLUSTER_SET_MOVES_EACH)]
    MovesEach {
        /// Number of partitions
        #[arg(value_name = "N", value_parser = parse::whole(1, MOVES_MAX, 8), allow_negative_numbers = true)]
        moves: u32,
    },
}

/// When a silent member is declared gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealAfter {
    /// Only by operators.
    Never,
    /// After this many milliseconds of silence.
    Milliseconds(u64),
}

fn heal_after(text: &str) -> Result<HealAfter, String> {
    match text {
        "never" => Ok(HealAfter::Never),
        _ => parse::duration_ms(text).map(HealAfter::Milliseconds).map_err(|error| format!("{error}; or `never`")),
    }
}

/// Formats the setting for people.
pub fn heal_after_text(settings: &Settings) -> String {
    settings.heal_after_ms.map_or_else(|| "never".to_owned(), duration)
}

impl SetVerb {
    /// Whether the verb waits for something that may take long.
    pub(super) fn waits(&self) -> bool {
        matches!(self, SetVerb::Replicas { .. } | SetVerb::Weight { .. } | SetVerb::Zone { .. })
    }

    pub(super) async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        match self {
            SetVerb::Replicas { replicas, course } => {
                let told = Texts {
                    already: format!("{replicas} replicas of each partition are wanted already"),
                    begun: format!("{replicas} replicas of each partition are wanted"),
                    done: format!("each partition has {replicas} replicas"),
                };
                let wish = Wish::new("replicas", ClusterChange::Replicas { replicas }, told);
                wish.carry_out(runner, &course).await
            }
            SetVerb::Weight { node, weight, course } => {
                let survey = Survey::take(runner, None).await?;
                let node = survey.find(&node)?.node;
                let told = Texts::of_member(&survey.name(node), &format!("weight {weight}"));
                let wish = Wish::about(node, "weight", ClusterChange::Weight { node, weight }, told);
                wish.carry_out(runner, &course).await
            }
            SetVerb::Zone { node, zone, course } => {
                let survey = Survey::take(runner, None).await?;
                let node = survey.find(&node)?.node;
                let told = Texts::of_member(&survey.name(node), &format!("zone {zone:?}"));
                let wish = Wish::about(node, "zone", ClusterChange::Zone { node, zone }, told);
                wish.carry_out(runner, &course).await
            }
            SetVerb::Address { node, address, untried } => {
                let survey = Survey::take(runner, None).await?;
                let member = survey.find(&node)?;
                if !untried && member.address != address {
                    check_address(runner, member, &address).await?;
                }
                let node = member.node;
                let told = Texts::of_member(&survey.name(node), &format!("address {address}"));
                let told = Texts { done: told.begun.clone(), ..told };
                Wish::about(node, "address", ClusterChange::Address { node, address }, told).set(runner).await
            }
            SetVerb::HealAfter { after } => {
                let heal_after_ms = match after {
                    HealAfter::Never => None,
                    HealAfter::Milliseconds(ms) => Some(ms),
                };
                set_settings(runner, "heal-after", |settings| settings.heal_after_ms = heal_after_ms).await
            }
            SetVerb::Moves { moves } => set_settings(runner, "moves", |settings| settings.moves_at_once = moves).await,
            SetVerb::MovesEach { moves } => {
                set_settings(runner, "moves-each", |settings| settings.moves_at_once_each = moves).await
            }
        }
    }
}

/// Refuses an address at which the member does not answer: others would not reach it there either.
async fn check_address<T: Transport>(runner: &Runner<T>, member: &Member, address: &str) -> Result<(), Failure> {
    let name = clean(&member.name);
    let advice = "start it there first; if it shall not run yet, or only this machine does not reach it there, repeat the command \
                  with --untried";
    match identify(runner, address).await {
        Ok(there) if there.node == member.node => Ok(()),
        Ok(there) => {
            let other = clean(&there.name);
            Err(Failure::invalid(format!(
                "nothing was changed: another node answers at {address}, {other}, and not {name}"
            )))
        }
        Err(error) => {
            let why = &error.message;
            let message = format!("nothing was changed: {name} is not reached at {address}: {why}\n{advice}");
            Err(Failure::Explained(Error { message, ..error }))
        }
    }
}

impl Texts {
    fn of_member(name: &str, what: &str) -> Texts {
        Texts {
            already: format!("{name} has {what} already"),
            begun: format!("{name} has {what}"),
            done: format!("{name} has {what}, and every member holds its share"),
        }
    }
}

/// Changes one setting. All settings are sent together, so the current ones are fetched first.
async fn set_settings<T: Transport>(
    runner: &mut Runner<T>,
    verb: &'static str,
    change: impl FnOnce(&mut Settings),
) -> Result<Exit, Failure> {
    let mut settings = Survey::take(runner, None).await?.view.settings;
    change(&mut settings);
    let text = overview(&settings);
    let told = Texts { already: format!("already set: {text}"), begun: String::new(), done: format!("set: {text}") };
    Wish::new(verb, ClusterChange::Settings { settings }, told).set(runner).await
}

/// Formats all settings, for people.
pub fn overview(settings: &Settings) -> String {
    let Settings { heal_after_ms: _, moves_at_once, moves_at_once_each } = settings;
    format!("heal-after {}, moves {moves_at_once}, moves-each {moves_at_once_each}", heal_after_text(settings))
}
