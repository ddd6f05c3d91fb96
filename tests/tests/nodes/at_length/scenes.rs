//! Every scene of the suite on real nodes. `NORN_SCENE` selects scenes by a part of their names.

use norn_tests::suite::{Real, chosen};

/// Scenes that kill no node are played at the same time, on one cluster.
#[tokio::test(flavor = "multi_thread")]
async fn every_scene_that_kills_no_node_is_played_on_real_nodes() {
    let real = Real::start().await;
    let failed = real.play(&chosen(|play| !play.kills)).await;
    assert!(failed.is_empty(), "these scenes failed: {failed:?}");
    real.settle().await;
}

/// Scenes that kill nodes are played one after the other.
#[tokio::test(flavor = "multi_thread")]
async fn every_scene_that_kills_nodes_is_played_on_real_nodes() {
    let real = Real::start().await;
    let mut failed = Vec::new();
    for play in chosen(|play| play.kills) {
        failed.extend(real.play(&[play]).await);
    }
    assert!(failed.is_empty(), "these scenes failed: {failed:?}");
    real.settle().await;
}
