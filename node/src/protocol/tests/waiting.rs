//! Calls that wait for work, and leaders that do not grant.

use super::*;

/// Goal: a leader that does not grant for a while tells nobody of its heads, or who waits at that very node would be woken, get
/// nothing and wait again within one step, for ever. Method: work arrives at a node that is stopping, with a call parked there.
#[test]
fn who_waits_is_not_woken_for_what_is_not_granted() {
    let mut cluster = Cluster::new(3);
    let probe = cluster.id(3 << 19);
    let leader = cluster.leader(&probe);
    let mut waiting = claim_of(ClaimId(77), 1_000, 1);
    waiting.wait_ms = 10_000;
    let number = cluster.submit(leader, Request::Claim(waiting));
    cluster.advance(100);
    assert!(!cluster.replies.contains_key(&number), "it waits");
    cluster.nodes[leader].stopping = true;
    let id = cluster.enqueue((leader + 1) % 3, b"work", 3 << 19);
    assert_eq!(cluster.leader(&id), leader);
    cluster.advance(100);
    assert!(!cluster.replies.contains_key(&number), "a node that stops grants nothing");
    // What is not granted is not said to be nothing.
    let look = claim_of(ClaimId(78), 1_000, 1);
    let Response::Claimed { tasks, unavailable } = cluster.ask((leader + 1) % 3, Request::Claim(look)) else {
        panic!()
    };
    assert!(tasks.is_empty() && unavailable > 0);
    cluster.nodes[leader].stopping = false;
    cluster.run_until(|cluster| cluster.replies.contains_key(&number));
    let Some(Response::Claimed { tasks, .. }) = cluster.replies.remove(&number) else { panic!() };
    assert_eq!(tasks[0].id, id);
}
