//! Links between nodes.

use super::*;

/// Starts a node at an address of its own, which it keeps.
async fn start_at(cluster: &Cluster, name: &str, address: &str) -> Server {
    cluster.start(name, &[("listen", address)]).await
}

/// Waits until two nodes serve and have one connection, with each other.
async fn share(one: &Server, other: &Server) {
    for server in [one, other] {
        assert_eq!(server.ready().await, Some(Readiness::Serving));
        until(|| server.connections() == 1).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_link_up_and_find_each_other_again() {
    let cluster = Cluster::new();
    let first = cluster.start("n1", &[]).await;
    let second = cluster.start("n2", &[]).await;
    found(&cluster, &first, &second).await;
    for server in [&first, &second] {
        until(|| server.metrics().get(Counter::PeerConnected) > 0).await;
    }
    // An unannounced end, as in a crash, and a restart at the same address.
    let (address, links) = (second.address().to_string(), first.metrics().get(Counter::PeerConnected));
    second.shutdown().await;
    let second = cluster.start("n2", &[("listen", &address)]).await;
    until(|| first.metrics().get(Counter::PeerConnected) > links).await;
    until(|| second.metrics().get(Counter::PeerConnected) > 0).await;
    assert!(first.serving().await);
    first.shutdown().await;
    second.shutdown().await;
}

/// Goal: two nodes talk over one connection, whichever of them was away. Method: each restarts once; it is not known which one dials.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_share_a_connection_after_either_was_away() {
    let cluster = Cluster::new();
    let (mut one, mut other) = (cluster.start("n1", &[]).await, cluster.start("n2", &[]).await);
    found(&cluster, &one, &other).await;
    share(&one, &other).await;
    let [first, second] = [&one, &other].map(|server| server.address().to_string());
    one.shutdown().await;
    one = start_at(&cluster, "n1", &first).await;
    share(&one, &other).await;
    other.shutdown().await;
    other = start_at(&cluster, "n2", &second).await;
    share(&one, &other).await;
    one.shutdown().await;
    other.shutdown().await;
}

/// Goal: a node sends over a connection that it has not dialed only to a peer that reads there. Method: the peer is two connections of
/// this test, the first one as of a version that does not read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_sends_only_on_connections_that_are_read() {
    let cluster = Cluster::new();
    let server = cluster.start("n1", &[]).await;
    let me = answers(&cluster, &server).await;
    let peer = Identity { node: NodeId(me.node.0 - 1), name: "n2".into(), ..me.clone() };
    let founding = genesis(&[(&me, &me.address), (&peer, "127.0.0.1:9")]);
    let init = Request::Initialize(Box::new(founding));
    cluster.caller().call(&server.address().to_string(), &init).await.unwrap();
    let process = 1;
    let greet = async |features| {
        let speaker = Speaker { node: peer.node, process, speaks: Versions::SPOKEN };
        let hello = PeerHello { features, ..speaker.hello(ClusterId(7), me.node, false) };
        let mut bytes = Vec::new();
        encode_named(&mut bytes, NEWEST, Kind::PeerHello, 0, &hello);
        let connection = cluster.connect(&server, Role::Node, "n2").await;
        let mut stream = connection.open_uni().await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        (connection, stream)
    };
    let (alone, _stream) = greet(0).await;
    let (shared, _stream) = greet(FEATURES).await;
    for _class in ["urgent", "bulk"] {
        tokio::time::timeout(PATIENCE, shared.accept_uni()).await.expect("the node sends").unwrap();
    }
    let nothing = tokio::time::timeout(Duration::ZERO, alone.accept_uni()).await;
    assert!(nothing.is_err(), "the node sends on a connection that is not read: {nothing:?}");
    server.shutdown().await;
}
