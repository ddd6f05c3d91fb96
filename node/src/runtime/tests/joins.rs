//! A node that joins by itself.

use super::*;
use crate::runtime::joining::join;
use norn_wire::invitation::Invitation;

/// Founds a cluster of one node.
async fn found_alone(cluster: &Cluster, server: &Server, id: ClusterId) {
    let identity = answers(cluster, server).await;
    let init = Genesis { cluster: id, ..genesis(&[(&identity, &identity.address)]) };
    cluster.caller().call(&server.address().to_string(), &Request::Initialize(Box::new(init))).await.unwrap();
}

/// Goal: a permanent refusal at one address does not hide another address whose member accepts the node. If none accepts it, each
/// refusal is named. Method: the first address is in another cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_address_is_asked_before_a_join_is_given_up() {
    let cluster = Cluster::new();
    create(cluster.authority.path(), Role::Node, "n3", &["127.0.0.1".to_owned()], DAYS, Present::Kept).unwrap();
    let (other, meant, new) =
        (cluster.start("n1", &[]).await, cluster.start("n2", &[]).await, cluster.start("n3", &[]).await);
    found_alone(&cluster, &other, ClusterId(9)).await;
    found_alone(&cluster, &meant, ClusterId(7)).await;
    let addresses = [&other, &meant].map(|server| server.address().to_string());
    let caller = Caller::new(Role::Node.files(cluster.authority.path(), "n3"), PATIENCE).unwrap();
    let invitation = |id| Invitation { cluster: Some(ClusterId(id)), addresses: addresses.to_vec() };
    let refusal = join(&new, &caller, &invitation(8)).await.unwrap_err().to_string();
    for address in &addresses {
        assert_eq!(refusal.matches(&format!("{address} belongs to cluster ")).count(), 1, "{refusal}");
    }
    tokio::time::timeout(PATIENCE, join(&new, &caller, &invitation(7))).await.expect("it joins in time").unwrap();
    assert_eq!(answers(&cluster, &new).await.genesis.map(|genesis| genesis.cluster), Some(ClusterId(7)));
    for server in [other, meant, new] {
        server.shutdown().await;
    }
}
