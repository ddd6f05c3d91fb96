//! `cluster add` and `cluster replace`: a running node that waits becomes a member.
//!
//! The verb asks the node for its identity, has the metadata group make it a member, and hands it the cluster's membership; then the node
//! serves. Each step can be repeated, so the same verb completes an interrupted one.

use super::super::parse;
use super::super::runner::unexpected;
use super::super::text::{clean, duration};
use super::super::{Exit, Failure, Runner, Transport};
use super::change::{CourseArguments, Texts, Wish};
use super::follow::look_timeout;
use super::survey::Survey;
use super::{ailing, not_yet};
use clap::Args;
use norn_wire::limits::WEIGHT_MAX;
use norn_wire::membership::{Candidate, Changed, ClusterChange, Member};
use norn_wire::response::Identity;
use norn_wire::{ClusterId, Error, Request, Response};
use std::time::Duration;
use tokio::time::Instant;

/// Longest wait for a node that is just starting.
const IDENTIFY_PATIENCE: Duration = Duration::from_secs(15);
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
        let wish = match old.node == newcomer.identity.node {
            true => newcomer.addition(&self.newcomer),
            false => newcomer.replacement(&survey, old, &self.newcomer),
        };
        newcomer.admit(runner, wish, &self.newcomer, &self.course).await
    }
}

/// Node to be made a member.
struct Newcomer {
    address: String,
    identity: Identity,
    cluster: ClusterId,
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
        let deadline = Instant::now() + IDENTIFY_PATIENCE.min(patience);
        let identity = loop {
            match identify(runner, &address).await {
                Ok(identity) => break identity,
                Err(error) if error.passes() && Instant::now() < deadline => {
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                Err(error) => return Err(at(&address, error)),
            }
        };
        let newcomer = Newcomer { address, identity, cluster: survey.view.cluster, patience };
        newcomer.check_cluster(&newcomer.identity)?;
        Ok(newcomer)
    }

    fn check_cluster(&self, identity: &Identity) -> Result<(), Failure> {
        match &identity.genesis {
            Some(genesis) if genesis.cluster != self.cluster => {
                let (address, name, theirs) = (&self.address, clean(&genesis.name), genesis.cluster);
                Err(Failure::invalid(format!(
                    "{address} belongs to another cluster, {name} ({theirs}): start it with an empty data directory to make \
                     it join this one"
                )))
            }
            _ => Ok(()),
        }
    }

    fn candidate(&self, wanted: &NewcomerArguments, weight: u32) -> Candidate {
        let Identity { node, incarnation, name, address, zone, genesis, serving: _ } = self.identity.clone();
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
        let name = clean(&self.identity.name);
        let told = Texts {
            already: format!("{name} is a member already"),
            begun: format!("{name} at {} is a member", clean(&self.identity.address)),
            done: format!("{name} holds its share"),
        };
        let change = ClusterChange::Add { with: self.candidate(wanted, WEIGHT_DEFAULT) };
        Wish::about(self.identity.node, "add", change, told)
    }

    fn replacement(&self, survey: &Survey, old: &Member, wanted: &NewcomerArguments) -> Wish {
        let (mut before, mut now) = (clean(&old.name), clean(&self.identity.name));
        if before == now {
            before += &format!(" ({:?})", old.node);
            now += &format!(" ({:?})", self.identity.node);
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
        Wish::about(self.identity.node, "replace", change, told)
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
        self.hand_over(runner, &changed).await?;
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
        let Some(member) = members.find(|member| member.node == self.identity.node) else { return Ok(()) };
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

    /// Hands the membership to the node. The node may have it already, from an earlier try whose answer was lost.
    async fn hand_over<T: Transport>(&self, runner: &Runner<T>, changed: &Changed) -> Result<(), Failure> {
        let Some(membership) = &changed.membership else {
            return match self.identity.genesis {
                Some(_) => Ok(()),
                None => Err(unexpected("change")),
            };
        };
        let deadline = Instant::now() + IDENTIFY_PATIENCE.min(self.patience);
        loop {
            let refused = match ask(runner, &self.address, Request::Join(membership.clone())).await {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            if let Ok(identity) = identify(runner, &self.address).await {
                self.check_same(&identity)?;
                self.check_cluster(&identity)?;
                if identity.genesis.is_some() {
                    return Ok(());
                }
            }
            if !refused.passes() || Instant::now() >= deadline {
                return Err(at(&self.address, refused));
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    fn check_same(&self, identity: &Identity) -> Result<(), Failure> {
        if identity.node == self.identity.node {
            return Ok(());
        }
        let (address, was, is) = (&self.address, self.identity.node, identity.node);
        Err(Failure::invalid(format!("another node answers at {address} now, {is}; {was} was made a member")))
    }

    async fn wait_until_serving<T: Transport>(&self, runner: &Runner<T>) -> Result<(), Failure> {
        let patience = SERVING_PATIENCE.min(self.patience);
        let deadline = Instant::now() + patience;
        loop {
            let seen = match identify(runner, &self.address).await {
                Ok(identity) => {
                    self.check_same(&identity)?;
                    if identity.serving {
                        return Ok(());
                    }
                    "it does not know a leader of each partition yet".to_owned()
                }
                Err(error) => error.message,
            };
            if Instant::now() >= deadline {
                let reasons = [vec![seen], ailing::reasons(runner, look_timeout(patience)).await].concat().join("; ");
                let (address, patience) = (&self.address, duration(patience.as_millis() as u64));
                return Err(not_yet(format!(
                    "{address} is a member, and does not serve within {patience}: {reasons}. The same command looks on"
                )));
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }
}

async fn ask<T: Transport>(runner: &Runner<T>, address: &str, request: Request) -> Result<Response, Error> {
    match runner.transport.ask(address, request).await? {
        Response::Error(error) => Err(error),
        response => Ok(response),
    }
}

/// Asks the node at an address for its identity.
pub(super) async fn identify<T: Transport>(runner: &Runner<T>, address: &str) -> Result<Identity, Error> {
    match ask(runner, address, Request::Identify).await? {
        Response::Identity(identity) => Ok(*identity),
        _ => Err(Error::invalid("what answers there does not say who it is; is it a node of this version?")),
    }
}

/// Adds the address to an error.
fn at(address: &str, mut error: Error) -> Failure {
    error.message = format!("{address}: {}", error.message);
    error.into()
}
