//! Faults of the network between real nodes, under load: shapes of partitions under which queues and consensus protocols have been
//! found to fail.
//!
//! The requirement for each: while the network has the shape, a node that hears no majority grants nothing. Where some node hears a
//! majority and is heard by it, claims continue within seconds. After the network has healed, nothing that was acknowledged is lost,
//! no task had two holders at once, and tokens grew. `NORN_NETWORK_SECONDS` sets the minimum duration of a shape.

use norn_tests::{Rule, Trial};
use std::time::Duration;

/// Number of nodes where several different majorities are needed.
const FIVE: usize = 5;

fn others_than(nodes: usize, one: usize) -> Vec<usize> {
    (0..nodes).filter(|node| *node != one).collect()
}

// S1, S3, S35, S43
/// Two sides that hear nothing of each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn halves() {
    let trial = Trial::start("halves", FIVE, 5).await;
    // The smaller half contains the busiest leader.
    let first = trial.busiest();
    let small = [first, (first + 1) % FIVE];
    let large: Vec<usize> = (0..FIVE).filter(|node| !small.contains(node)).collect();
    let shape = trial.cut(|from, to| small.contains(&from) == small.contains(&to));
    trial.goes_on(&shape, "the larger half", &large).await;
    trial.bites(&shape);
    trial.starve(&shape, &small).await;
    trial.succeeded(&shape, &small);
    trial.end().await;
}

/// One node hears no other and is heard by none. It has no replica of some partitions, and keeps hints for their tasks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_isolated() {
    let trial = Trial::start("one isolated", 4, 3).await;
    let alone = trial.busiest();
    let shape = trial.cut(|from, to| from != alone && to != alone);
    trial.goes_on(&shape, "all but one", &others_than(4, alone)).await;
    trial.bites(&shape);
    trial.starve(&shape, &[alone]).await;
    trial.succeeded(&shape, &[alone]);
    trial.end().await;
}

/// Each node hears its two neighbours in a ring: a majority including itself, and a different one for each node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn majority_ring() {
    let trial = Trial::start("majority ring", FIVE, 5).await;
    let shape = trial.cut(|from, to| [1, FIVE - 1].contains(&((to + FIVE - from) % FIVE)));
    trial.goes_on(&shape, "each hears another majority", &trial.everybody()).await;
    trial.bites(&shape);
    trial.end().await;
}

/// Two sides that hear nothing of each other, and one node between them that hears both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bridge() {
    let trial = Trial::start("bridge", FIVE, 5).await;
    let between = 2;
    let shape = trial.cut(|from, to| from == between || to == between || (from < between) == (to < between));
    trial.goes_on(&shape, "two sides with a bridge", &trial.everybody()).await;
    trial.bites(&shape);
    trial.end().await;
}

// S45
/// Three nodes in a row: the ends do not hear each other, and each considers the other dead while it leads. Elections must end all the
/// same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chained() {
    let trial = Trial::start("chained", 3, 3).await;
    let shape = trial.cut(|from, to| from == 1 || to == 1);
    // The middle node is asked who leads too, because the ends do not hear of each other's leaderships.
    trial.goes_on(&shape, "three in a row", &[0, 2, 1]).await;
    trial.bites(&shape);
    trial.end().await;
}

/// All nodes hear only one node, which may lead nothing yet. The leaders still hear one node, but no majority: they must step down,
/// and that node must take over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quorum_loss() {
    let trial = Trial::start("quorum loss", FIVE, 5).await;
    let hub = 4;
    let shape = trial.cut(|from, to| from == hub || to == hub);
    trial.goes_on(&shape, "only one hears a majority", &[hub]).await;
    trial.bites(&shape);
    trial.succeeded(&shape, &others_than(FIVE, hub));
    trial.end().await;
}

// S44
/// As before, but the only node that hears a majority was away for a while, so that its tables are old, and the busiest leader is
/// isolated. The node must fetch newer tables before it can be elected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn constrained_election() {
    let trial = Trial::start("constrained election", FIVE, 5).await;
    let leader = trial.busiest();
    let hub = (leader + 1) % FIVE;
    let behind = trial.cut(|from, to| from != hub && to != hub);
    trial.goes_on(&behind, "one is away", &others_than(FIVE, hub)).await;
    trial.bites(&behind);
    let shape = trial.cut(|from, to| from != leader && to != leader && (from == hub || to == hub));
    trial.goes_on(&shape, "only that one hears a majority", &[hub]).await;
    trial.bites(&shape);
    trial.starve(&shape, &[leader]).await;
    trial.succeeded(&shape, &others_than(FIVE, hub));
    trial.end().await;
}

// S3
/// Two of five nodes are cut off, a different pair each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moving_minority() {
    let trial = Trial::start("moving minority", FIVE, 5).await;
    for first in 0..FIVE {
        let minority = [first, (first + 1) % FIVE];
        let majority: Vec<usize> = (0..FIVE).filter(|node| !minority.contains(node)).collect();
        let shape = trial.cut(|from, to| minority.contains(&from) == minority.contains(&to));
        trial.works_in(&shape, &format!("{minority:?} are cut off"), &majority).await;
        trial.bites(&shape);
        trial.starve(&shape, &minority).await;
    }
    trial.end().await;
}

/// All others hear the busiest leader, which hears none of them: it must notice that, and the others must not wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_way_deaf() {
    let trial = Trial::start("one-way, deaf", 3, 3).await;
    let deaf = trial.busiest();
    let shape = trial.cut(|_, to| to != deaf);
    trial.goes_on(&shape, "a leader hears nobody", &others_than(3, deaf)).await;
    trial.bites(&shape);
    trial.starve(&shape, &[deaf]).await;
    trial.succeeded(&shape, &[deaf]);
    trial.end().await;
}

/// The busiest leader hears all others, and none of them hears it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_way_mute() {
    let trial = Trial::start("one-way, mute", 3, 3).await;
    let mute = trial.busiest();
    let shape = trial.cut(|from, _| from != mute);
    trial.goes_on(&shape, "nobody hears a leader", &others_than(3, mute)).await;
    trial.bites(&shape);
    trial.starve(&shape, &[mute]).await;
    trial.succeeded(&shape, &[mute]);
    trial.end().await;
}

/// One node does not hear one other. Each has a majority that it hears and that hears it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_way_link() {
    let trial = Trial::start("one-way link", 3, 3).await;
    let deaf_to = trial.busiest();
    let shape = trial.cut(|from, to| from != deaf_to || to != (deaf_to + 1) % 3);
    trial.goes_on(&shape, "one link is one-way", &trial.everybody()).await;
    trial.bites(&shape);
    trial.end().await;
}

/// No path is cut, but every path drops, duplicates, delays and reorders datagrams.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_weather() {
    let trial = Trial::start("bad weather", 3, 3).await;
    let milliseconds = Duration::from_millis;
    let rule = Rule { loss: 0.1, duplicates: 0.1, delay: milliseconds(2), reordered: 0.1, late: milliseconds(60) };
    let shape = trial.spoil(rule);
    trial.goes_on(&shape, "all paths are bad", &trial.everybody()).await;
    let counts = trial.counts_between_nodes();
    assert!(counts.dropped > 0 && counts.duplicated > 0 && counts.delayed > counts.dropped, "{counts:?}");
    trial.end().await;
}
