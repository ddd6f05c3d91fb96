//! Every scene of the suite on real nodes. `NORN_SCENE` chooses scenes by a part of their names.

use norn_tests::suite::{Real, chosen};

/// Scenes that kill nobody share a cluster at the same time; those that do have it to themselves, one after the other.
#[tokio::test(flavor = "multi_thread")]
async fn every_scene_is_played_on_real_nodes() {
    let real = Real::start().await;
    let mut failed = real.play(&chosen(|play| !play.kills)).await;
    for play in chosen(|play| play.kills) {
        failed.extend(real.play(&[play]).await);
    }
    assert!(failed.is_empty(), "these scenes failed: {failed:?}");
    real.settle().await;
}
