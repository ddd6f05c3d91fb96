//! `cluster add` and `cluster replace`: a running node that waits becomes a member.
//!
//! The verb asks the node for its identity, has the metadata group make it a member, and hands it the cluster's membership; then the node
//! serves. Each step can be repeated, so the same verb completes an interrupted one.

use super::super::parse;
use super::super::text::{clean, duration};
use super::super::{Exit, Failure, Runner, Transport};
use super::change::{CourseArguments, Texts, Wish};
use super::follow::look_timeout;
use super::survey::Survey;
use super::{ailing, not_yet};
use clap::Args;
use norn_client::client::joining::{self, Asker};
use norn_wire::limits::WEIGHT_MAX;
use norn_wire::membership::{Candidate, Changed, ClusterChange, Member};
use norn_wire::response::Identity;
use norn_wire::{Error, Request, Response};
use std::time::Duration;
use tokio::time::Instant;

/// Longest wait until a new member serves.
const SERVING_PATIENCE: Duration = Duration::from_secs(60);
/// Interval of requests to the node.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Weight of a founding member.
const WEIGHT_DEFAULT: u32 = 1;

/// Arguments of `cluster add`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct AddArguments {
    /// Address where the node listens
    #[arg(value_name = "HOST:PORT", value_parser = parse::address)]
    pub address: String,
    /// Properties of the member
    #[command(flatten)]
    pub newcomer: NewcomerArguments,
    /// How to carry the change out
    #[command(flatten)]
    pub course: CourseArguments,
}

/// Arguments of `cluster replace`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct ReplaceArguments {
    /// Name of the member, or the beginning of its id
    #[arg(value_name = "NODE")]
    pub node: String,
    /// Address where the new node listens
    #[arg(value_name = "HOST:PORT", value_parser = parse::address)]
    pub address: String,
    /// Properties of the member
    #[command(flatten)]
    pub newcomer: NewcomerArguments,
    /// How to carry the change out
    #[command(flatten)]
    pub course: CourseArguments,
}

/// Properties of the new member.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct NewcomerArguments {
    /// Share of the replicas, relative to other members [default: 1, or that of the member it replaces]
    #[arg(long, value_name = "N", value_parser = parse::whole(1, WEIGHT_MAX, 2), allow_negative_numbers = true)]
    pub weight: Option<u32>,
    /// Failure domain [default: the one that the node was started with]
    #[arg(long, value_name = "ZONE")]
    pub zone: Option<String>,
}

impl AddArguments {
    pub(super) async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        let survey = Survey::take(runner, None).await?;
        let newcomer = Newcomer::meet(runner, &survey, self.address, self.course.patience()).await?;
        let wish = newcomer.addition(&self.newcomer);
        newcomer.admit(runner, wish, &self.newcomer, &self.course).await
    }
}

impl ReplaceArguments {
    pub(super) async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        let survey = Survey::take(runner, None).await?;
        let old = survey.find(&self.node)?;
        let newcomer = Newcomer::meet(runner, &survey, self.address, self.course.patience()).await?;
        // The new node may have the old one's name; once it is a member, the name means the new node.
        let wish = match old.node == newcomer.met.identity.node {
            true => newcomer.addition(&self.newcomer),
            false => newcomer.replacement(&survey, old, &self.newcomer),
        };
        newcomer.admit(runner, wish, &self.newcomer, &self.course).await
    }
}

/// Node to be made a member.
struct Newcomer {
    met: joining::Newcomer,
    /// Longest wait until the node answers or serves.
    patience: Duration,
}

impl Newcomer {
    /// Asks the node at an address for its identity. Refuses a node of another cluster.
    async fn meet<T: Transport>(
        runner: &Runner<T>,
        survey: &Survey,
        address: String,
        patience: Duration,
    ) -> Result<Newcomer, Failure> {
        let met = joining::Newcomer::meet(&Outside(&runner.transport), survey.view.cluster, address, patience).await?;
        Ok(Newcomer { met, patience })
    }

    fn candidate(&self, wanted: &NewcomerArguments, weight: u32) -> Candidate {
        let Identity { node, incarnation, name, address, zone, genesis, serving: _ } = self.met.identity.clone();
        Candidate {
            cluster: genesis.map(|genesis| genesis.cluster),
            node,
            incarnation,
            name,
            address,
            zone: wanted.zone.clone().unwrap_or(zone),
            weight: wanted.weight.unwrap_or(weight),
        }
    }

    fn addition(&self, wanted: &NewcomerArguments) -> Wish {
        let name = clean(&self.met.identity.name);
        let told = Texts {
            already: format!("{name} is a member already"),
            begun: format!("{name} at {} is a member", clean(&self.met.identity.address)),
            done: format!("{name} holds its share"),
        };
        let change = ClusterChange::Add { with: self.candidate(wanted, WEIGHT_DEFAULT) };
        Wish::about(self.met.identity.node, "add", change, told)
    }

    fn replacement(&self, survey: &Survey, old: &Member, wanted: &NewcomerArguments) -> Wish {
        let (mut before, mut now) = (clean(&old.name), clean(&self.met.identity.name));
        if before == now {
            before += &format!(" ({:?})", old.node);
            now += &format!(" ({:?})", self.met.identity.node);
        }
        let left = match survey.is_alive(old.node) {
            true => format!("; `norn cluster remove {}` takes the old one out", clean(&old.name)),
            false => String::new(),
        };
        let told = Texts {
            already: format!("{now} has taken the place of {before} already"),
            begun: format!("{now} takes the place of {before}"),
            done: format!("{now} holds what {before} held{left}"),
        };
        let change = ClusterChange::Replace { node: old.node, with: self.candidate(wanted, old.weight) };
        Wish::about(self.met.identity.node, "replace", change, told)
    }

    /// Makes the node a member; if wanted, waits until it serves and holds its share.
    async fn admit<T: Transport>(
        &self,
        runner: &mut Runner<T>,
        wish: Wish,
        wanted: &NewcomerArguments,
        course: &CourseArguments,
    ) -> Result<Exit, Failure> {
        let changed = wish.send(runner, course.dry_run).await?;
        if changed.already {
            self.remark(runner, &changed, wanted)?;
        }
        if course.dry_run {
            return wish.preview(&mut runner.output, &changed);
        }
        self.met.hand_over(&Outside(&runner.transport), &changed).await?;
        if !course.no_wait {
            self.wait_until_serving(runner).await?;
        }
        wish.settle(runner, &changed, course).await
    }

    /// Reports requested properties that do not apply because the node was a member before.
    fn remark<T: Transport>(
        &self,
        runner: &mut Runner<T>,
        changed: &Changed,
        wanted: &NewcomerArguments,
    ) -> Result<(), Failure> {
        let mut members = changed.view.roster.members.values();
        let Some(member) = members.find(|member| member.node == self.met.identity.node) else { return Ok(()) };
        let (name, zone) = (clean(&member.name), clean(&member.zone));
        if wanted.weight.is_some_and(|weight| weight != member.weight) {
            let weight = member.weight;
            runner.output.note(&format!("{name} keeps its weight, {weight}; `norn cluster set weight` changes it"))?;
        }
        if wanted.zone.as_ref().is_some_and(|wanted| *wanted != member.zone) {
            runner.output.note(&format!("{name} keeps its zone, {zone:?}; `norn cluster set zone` changes it"))?;
        }
        Ok(())
    }

    async fn wait_until_serving<T: Transport>(&self, runner: &Runner<T>) -> Result<(), Failure> {
        let patience = SERVING_PATIENCE.min(self.patience);
        let deadline = Instant::now() + patience;
        loop {
            let seen = match identify(runner, &self.met.address).await {
                Ok(identity) => {
                    self.met.check_same(&identity)?;
                    if identity.serving {
                        return Ok(());
                    }
                    "it does not know a leader of each partition yet".to_owned()
                }
                Err(error) => error.message,
            };
            if Instant::now() >= deadline {
                let reasons = [vec![seen], ailing::reasons(runner, look_timeout(patience)).await].concat().join("; ");
                let (address, patience) = (&self.met.address, duration(patience.as_millis() as u64));
                return Err(not_yet(format!(
                    "{address} is a member, and does not serve within {patience}: {reasons}. The same command looks on"
                )));
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }
}

/// The transport's calls to nodes outside the cluster.
struct Outside<'a, T>(&'a T);

impl<T: Transport> Asker for Outside<'_, T> {
    fn ask(&self, address: &str, request: Request) -> impl Future<Output = Result<Response, Error>> + Send {
        self.0.ask(address, request)
    }
}

/// Asks the node at an address for its identity.
pub(super) async fn identify<T: Transport>(runner: &Runner<T>, address: &str) -> Result<Identity, Error> {
    joining::identify(&Outside(&runner.transport), address).await
}
