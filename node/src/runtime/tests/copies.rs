//! Starts on a copy of a node's directory.

use super::*;

/// A new directory beside that of `n1`, with the same content.
fn copy_of(cluster: &Cluster) -> PathBuf {
    let mut names = (1..).map(|number| cluster.data.path().join(format!("copy{number}")));
    let copy = names.find(|copy| !copy.exists()).unwrap();
    std::fs::create_dir(&copy).unwrap();
    for entry in std::fs::read_dir(cluster.data.path().join("n1")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    copy
}

/// Starts a node on a copy while the original runs. The original has a few seconds to answer; a start for which it was too slow may
/// have written its own address into the copy, so the next attempt needs a new copy.
async fn is_refused(cluster: &Cluster, running: &Identity, copied: &mut Settings) {
    for _ in 0..ATTEMPTS_MAX {
        match start(copied).await {
            Ok(server) => server.shutdown().await,
            Err(error) => {
                assert!(matches!(error, StartError::DuplicateInstance(_)), "{error}");
                let words = error.to_string();
                assert!(words.contains(&running.address), "{words}");
                return assert!(words.contains(&copied.data.display().to_string()), "{words}");
            }
        }
        copied.data = copy_of(cluster);
    }
    panic!("{ATTEMPTS_MAX} copies have started");
}

/// While a node is running, no other process starts as this node, and the node recognizes itself wherever it listens. Once it has
/// ended, another process may be the node, whether the old address is unused or taken by another node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_runs_is_not_started_again_on_a_copy() {
    let cluster = Cluster::new();
    let server = cluster.start("n1", &[]).await;
    let me = answers(&cluster, &server).await;
    let init = Request::Initialize(Box::new(genesis(&[(&me, &me.address)])));
    cluster.caller().call(&me.address, &init).await.unwrap();
    let mut copied = settings(cluster.authority.path(), "n1", &copy_of(&cluster), &[]);
    is_refused(&cluster, &me, &mut copied).await;
    assert!(server.serving().await);
    server.shutdown().await;
    let everywhere = me.address.replace("127.0.0.1", "0.0.0.0");
    let server = cluster.start("n1", &[("listen", &everywhere), ("advertise", &me.address)]).await;
    assert!(server.serving().await);
    is_refused(&cluster, &me, &mut copied).await;
    server.shutdown().await;
    start(&copied).await.expect("nobody is there").shutdown().await;
    let elsewhere = cluster.data.path().join("elsewhere");
    let stranger = cluster.start("n1", &[("listen", &me.address), ("data", elsewhere.to_str().unwrap())]).await;
    start(&copied).await.expect("it is another node").shutdown().await;
    assert_eq!(stranger.ready().await, Some(Readiness::AwaitsCluster));
    stranger.shutdown().await;
}
