//! Founds a cluster: asks the nodes for their identities, draws the founding record, and sends it to all of them.
//!
//! Every step can be repeated: nodes that have the record already are recognised, and the rest is completed.

use super::failure::Failure;
use norn_model::limits::{NODES_MAX, PARTITIONS_MAX, REPLICAS_MAX};
use norn_model::ring::assign;
use norn_node::runtime::caller::{CallError, Caller};
use norn_wire::response::{Genesis, Identity, Member};
use norn_wire::{ClusterId, Request, Response};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Longest wait for nodes that are just starting.
const IDENTIFY_PATIENCE: Duration = Duration::from_secs(15);
/// Longest wait until every node of the new cluster serves.
const SERVING_PATIENCE: Duration = Duration::from_secs(30);
/// Longest wait until a node that answers does so at the address that it advertises, too.
const ADVERTISED_PATIENCE: Duration = Duration::from_secs(5);
/// Upper bound of every wait.
const PATIENCE_MAX: Duration = Duration::from_secs(86_400);
/// Interval of requests to one node.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// Default number of partitions.
const PARTITIONS_DEFAULT: u32 = 256;
/// Default number of replicas.
const REPLICAS_DEFAULT: u32 = 3;

/// Requested properties. Absent: the default, or the value of the existing cluster.
#[derive(Debug, Clone, Default)]
pub struct Wish {
    /// Name, for people.
    pub name: Option<String>,
    /// Number of partitions.
    pub partitions: Option<u32>,
    /// Replicas of each partition.
    pub replicas: Option<u32>,
    /// Longest wait until a node answers, and again until it serves.
    pub patience: Option<Duration>,
    /// Skip the check of the addresses that the nodes advertise: only the nodes reach each other there.
    pub untried: bool,
}

impl Wish {
    fn patience(&self, default: Duration) -> Duration {
        self.patience.unwrap_or(default)
    }
}

/// The founded cluster.
#[derive(Debug)]
pub struct Founded {
    /// Its founding record.
    pub genesis: Genesis,
    /// Whether every node had the record before.
    pub already: bool,
}

/// Founds a cluster of exactly these nodes, completes a partly founded one, or finds that all is done.
pub async fn found(caller: &Caller, peers: &[String], wish: &Wish) -> Result<Founded, Failure> {
    check_peers(peers)?;
    let mut identities = Vec::new();
    let patience = wish.patience(IDENTIFY_PATIENCE);
    for peer in peers {
        identities.push(identify(caller, peer, patience).await.map_err(|failure| failure.during(peer))?);
    }
    check_distinct(peers, &identities)?;
    let existing = identities.iter().find_map(|identity| identity.genesis.clone());
    let genesis = match existing {
        Some(genesis) => {
            check_existing(&genesis, peers, &identities, wish)?;
            *genesis
        }
        None => {
            let genesis = draw(&identities, wish)?;
            if !wish.untried {
                check_advertised(caller, peers, &identities, patience.min(ADVERTISED_PATIENCE)).await?;
            }
            genesis
        }
    };
    let already = identities.iter().all(|identity| identity.genesis.is_some());
    for (peer, identity) in peers.iter().zip(&identities) {
        if identity.genesis.is_none() {
            initialize(caller, peer, &genesis, patience).await.map_err(|failure| failure.during(peer))?;
        }
    }
    if let Err(failure) = wait_until_serving(caller, peers, wish.patience(SERVING_PATIENCE)).await {
        let founded = format!("cluster {} ({}) is founded, and waited for", genesis.name, genesis.cluster);
        let failure = failure.during(founded);
        return Err(match unreached(caller, peers).await {
            Some(unreached) => failure.advising(unreached),
            None => failure.advising("the same command looks on"),
        });
    }
    Ok(Founded { genesis, already })
}

/// Refuses nodes that do not answer at their advertised addresses: their cluster would be founded, and its partitions would have no
/// leaders.
async fn check_advertised(
    caller: &Caller,
    peers: &[String],
    identities: &[Identity],
    patience: Duration,
) -> Result<(), Failure> {
    let is_alone = peers.len() == 1;
    for (peer, Identity { node, name, address, .. }) in peers.iter().zip(identities) {
        if address == peer {
            continue;
        }
        let place = format!(
            "nothing was founded: node {name} at {peer} says that others reach it at {address} (its setting `advertise`)"
        );
        let advice = "start it again with the right --advertise; if only this machine does not reach it there, repeat the command with \
                      --untried";
        let deadline = deadline(patience);
        let found = loop {
            match caller.identify_node(address, name).await {
                Err(error) if !error.is_lasting() && !is_alone && Instant::now() < deadline => {
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                found => break found,
            }
        };
        match found {
            Ok(there) if there.node == *node => {}
            // No other node needs to reach the only node of a cluster.
            Err(error) if is_alone && !error.is_lasting() => {}
            Ok(there) => {
                let failure =
                    Failure::refused(format!("{place}, and there is another node of this name, {}", there.node));
                return Err(failure.advising(advice));
            }
            Err(error) => return Err(Failure::from(error).during(format!("{place}, and there")).advising(advice)),
        }
    }
    Ok(())
}

/// Returns which nodes others do not reach, as reported by these nodes: a node that does not hear another one is not reached by it.
async fn unreached(caller: &Caller, peers: &[String]) -> Option<String> {
    let mut unreached = Vec::new();
    for peer in peers {
        let Ok(Response::Nodes(nodes)) = caller.call(peer, &Request::Nodes).await else { continue };
        let Some(own) = nodes.iter().find(|node| node.this) else { continue };
        let unheard: Vec<&str> =
            nodes.iter().filter(|node| !node.alive && !node.this).map(|node| &*node.name).collect();
        if !unheard.is_empty() {
            unreached.push(format!("node {} is not reached at {} by {}", own.name, own.address, unheard.join(", ")));
        }
    }
    (!unreached.is_empty()).then(|| {
        format!(
            "as far as can be told, {}: where such an address is wrong, start the node again with the right --advertise, and the \
             others with --peer NAME=HOST:PORT until they have found it; the same command looks on",
            unreached.join("; ")
        )
    })
}

fn check_peers(peers: &[String]) -> Result<(), Failure> {
    let distinct: BTreeSet<&String> = peers.iter().collect();
    if peers.is_empty() || peers.len() > NODES_MAX {
        return Err(Failure::usage(format!("--peers wants 1 to {NODES_MAX} addresses")));
    }
    if distinct.len() != peers.len() {
        return Err(Failure::usage("--peers names an address twice"));
    }
    Ok(())
}

/// Asks a node for its identity, with patience for one that is just starting.
async fn identify(caller: &Caller, peer: &str, patience: Duration) -> Result<Identity, Failure> {
    let deadline = deadline(patience);
    loop {
        match caller.identify(peer).await {
            Ok(identity) => return Ok(identity),
            Err(error) if error.is_lasting() => return Err(error.into()),
            Err(error @ CallError::Refused(_)) => return Err(error.into()),
            Err(error) if Instant::now() >= deadline => {
                return Err(Failure::from(error).during(format!("not reached for {patience:?}")));
            }
            Err(_) => tokio::time::sleep(RETRY_INTERVAL).await,
        }
    }
}

/// Returns a deadline that the clock can represent.
fn deadline(patience: Duration) -> Instant {
    Instant::now() + patience.min(PATIENCE_MAX)
}

fn check_distinct(peers: &[String], identities: &[Identity]) -> Result<(), Failure> {
    for (index, identity) in identities.iter().enumerate() {
        for (other_index, other) in identities.iter().enumerate().take(index) {
            let pair = format!("{} and {}", peers[other_index], peers[index]);
            if identity.node == other.node {
                return Err(Failure::refused(format!("{pair} are one node, {}", identity.node)));
            }
            if identity.name == other.name {
                let name = &identity.name;
                return Err(Failure::refused(format!("{pair} both are called {name}: names must differ")));
            }
            if identity.address == other.address {
                let address = &identity.address;
                return Err(Failure::refused(format!("{pair} both advertise {address}")));
            }
        }
    }
    Ok(())
}

fn check_existing(genesis: &Genesis, peers: &[String], identities: &[Identity], wish: &Wish) -> Result<(), Failure> {
    for (peer, identity) in peers.iter().zip(identities) {
        if let Some(other) = &identity.genesis
            && **other != *genesis
        {
            let (cluster, name) = (other.cluster, &other.name);
            return Err(Failure::refused(format!("{peer} belongs to another cluster, {name} ({cluster})")));
        }
    }
    let place = format!("cluster {} ({})", genesis.name, genesis.cluster);
    for (peer, identity) in peers.iter().zip(identities) {
        let member = genesis.members.iter().find(|member| member.node == identity.node);
        if member.is_none_or(|member| member.incarnation != identity.incarnation) {
            return Err(Failure::refused(format!("{peer} is no member of {place}, to which others of these belong")));
        }
    }
    if genesis.members.len() != identities.len() {
        let members: Vec<&str> = genesis.members.iter().map(|member| member.address.as_str()).collect();
        return Err(Failure::refused(format!("{place} has other members as well: {}", members.join(", "))));
    }
    let differs = wish.name.as_ref().is_some_and(|name| *name != genesis.name)
        || wish.partitions.is_some_and(|partitions| partitions != genesis.partitions)
        || wish.replicas.is_some_and(|replicas| replicas != genesis.replicas);
    if differs {
        let (partitions, replicas) = (genesis.partitions, genesis.replicas);
        return Err(Failure::refused(format!(
            "these nodes already are {place} with {partitions} partitions and {replicas} replicas, not as asked for"
        )));
    }
    Ok(())
}

fn draw(identities: &[Identity], wish: &Wish) -> Result<Genesis, Failure> {
    let partitions = wish.partitions.unwrap_or(PARTITIONS_DEFAULT);
    if !partitions.is_power_of_two() || partitions > PARTITIONS_MAX {
        let message = format!("--partitions is a power of two up to {PARTITIONS_MAX}, not {partitions}");
        return Err(Failure::usage(message));
    }
    let nodes = u32::try_from(identities.len()).unwrap_or(u32::MAX);
    let replicas = wish.replicas.unwrap_or(REPLICAS_DEFAULT.min(nodes));
    if !(1..=REPLICAS_MAX.min(nodes)).contains(&replicas) {
        return Err(Failure::usage(format!(
            "--replicas is 1 to {REPLICAS_MAX} and not more than the {nodes} nodes there are, not {replicas}"
        )));
    }
    let mut members: Vec<Member> = identities
        .iter()
        .map(|identity| Member {
            node: identity.node,
            incarnation: identity.incarnation,
            address: identity.address.clone(),
            name: identity.name.clone(),
            zone: identity.zone.clone(),
        })
        .collect();
    members.sort_by_key(|member| member.node);
    let assignment = assign(&members, partitions, replicas);
    assert_eq!(assignment.len(), partitions as usize, "every partition has a place");
    let name = wish.name.clone().unwrap_or_else(|| "norn".to_owned());
    Ok(Genesis { cluster: ClusterId(rand::random()), name, partitions, replicas, members, assignment })
}

async fn initialize(caller: &Caller, peer: &str, genesis: &Genesis, patience: Duration) -> Result<(), Failure> {
    let deadline = deadline(patience);
    loop {
        let reason = match caller.call(peer, &Request::Initialize(Box::new(genesis.clone()))).await {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        // The record may have arrived although its answer was lost, or another operator was faster.
        match caller.identify(peer).await {
            Ok(Identity { genesis: Some(found), .. }) if *found == *genesis => return Ok(()),
            Ok(Identity { genesis: Some(found), .. }) => {
                let (name, cluster) = (&found.name, found.cluster);
                return Err(Failure::refused(format!("it was put into another cluster, {name} ({cluster})")));
            }
            _ => {}
        }
        if reason.is_lasting() || matches!(reason, CallError::Refused(_)) || Instant::now() >= deadline {
            return Err(reason.into());
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

/// Waits until every node has a leader for each of its partitions.
async fn wait_until_serving(caller: &Caller, peers: &[String], patience: Duration) -> Result<(), Failure> {
    let deadline = deadline(patience);
    for peer in peers {
        loop {
            let seen = match caller.identify(peer).await {
                Ok(identity) if identity.serving => break,
                Ok(_) => "some of its partitions have no leader".to_owned(),
                Err(error) if error.is_lasting() => return Err(Failure::from(error).during(peer)),
                Err(error) => error.to_string(),
            };
            if Instant::now() >= deadline {
                return Err(Failure::unavailable(format!("{peer} does not serve within {patience:?}: {seen}")));
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::verbs::read_certificates;
    use norn_node::runtime::certificates::{DAYS, Present, Role, create, create_authority};
    use norn_node::runtime::server::Server;
    use norn_node::runtime::settings::Effective;
    use std::net::UdpSocket;
    use std::path::Path;

    /// Goal: the wait for a silent node is as long as requested, and the failure states it.
    #[tokio::test]
    async fn a_silent_node_is_waited_for_as_long_as_is_asked() {
        let directory = tempfile::tempdir().unwrap();
        create_authority(directory.path(), DAYS).unwrap();
        let files = create(directory.path(), Role::Client, "c", &[], DAYS, Present::Kept).unwrap().files;
        let patience = Duration::from_millis(1);
        let caller = Caller::with(read_certificates(files).unwrap(), patience).unwrap();
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let peer = silent.local_addr().unwrap().to_string();
        let wish = Wish { name: None, partitions: None, replicas: None, patience: Some(patience), untried: false };
        let Err(failure) = found(&caller, std::slice::from_ref(&peer), &wish).await else { panic!("it answers") };
        let failure = format!("{failure:?}");
        assert!(failure.contains(&format!("{peer}: not reached for 1ms: ")), "{failure}");
    }

    /// Starts a node; if `advertise` is given, it advertises an address where no node is.
    async fn node(directory: &Path, name: &str, advertise: &str) -> Server {
        let files = Role::Node.files(directory, name);
        if !files.certificate.exists() {
            create(directory, Role::Node, name, &["127.0.0.1".to_owned()], DAYS, Present::Kept).unwrap();
        }
        let (data, certs) = (directory.join(name).display().to_string(), directory.display().to_string());
        let flags =
            [("data", &*data), ("certs", &certs), ("name", name), ("listen", "127.0.0.1:0"), ("advertise", advertise)];
        let flags = flags.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter();
        let settings = Effective::gather(None, std::iter::empty(), flags).unwrap().settings().unwrap();
        Server::start(settings, |_| {}).await.unwrap()
    }

    /// Goal: if nodes do not reach each other, the founding fails beforehand, or else names the node afterwards.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_node_that_is_not_where_it_says_is_named_before_the_cluster_is_founded_and_after() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path();
        create_authority(place, DAYS).unwrap();
        let files = create(place, Role::Client, "c", &[], DAYS, Present::Kept).unwrap().files;
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let dead = silent.local_addr().unwrap().to_string();
        let (first, second) = (node(place, "a", "").await, node(place, "b", &dead).await);
        let peers = [&first, &second].map(|node| node.address().to_string());
        let caller = Caller::with(read_certificates(files).unwrap(), Duration::from_secs(2)).unwrap();
        let wish = Wish { patience: Some(Duration::from_millis(1)), ..Wish::default() };
        let refusal = format!("{:?}", found(&caller, &peers, &wish).await.unwrap_err());
        for words in ["nothing was founded: node b at ", &peers[1], &dead, "--advertise", "--untried"] {
            assert!(refusal.contains(words), "no {words:?} in {refusal}");
        }
        for peer in &peers {
            assert_eq!(caller.identify(peer).await.unwrap().genesis, None);
        }
        // At the address of another node.
        second.shutdown().await;
        let second = node(place, "b", &peers[0]).await;
        let peers = [&first, &second].map(|node| node.address().to_string());
        let wish_of_one = Wish { replicas: Some(1), ..wish.clone() };
        let refusal = format!("{:?}", found(&caller, &peers[1..], &wish_of_one).await.unwrap_err());
        assert!(
            refusal.contains("nothing was founded: node b at ") && refusal.contains("node a answers there"),
            "{refusal}"
        );

        second.shutdown().await;
        let second = node(place, "b", &dead).await;
        let peers = [&first, &second].map(|node| node.address().to_string());
        let failure = format!("{:?}", found(&caller, &peers, &Wish { untried: true, ..wish }).await.unwrap_err());
        let unreached = format!("node b is not reached at {dead} by a");
        for words in
            ["cluster norn (", ") is founded, and waited for: ", &unreached, "--advertise", "--peer NAME=HOST:PORT"]
        {
            assert!(failure.contains(words), "no {words:?} in {failure}");
        }
        first.shutdown().await;
        second.shutdown().await;
    }
}
