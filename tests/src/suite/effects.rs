//! Side effects outside the queue, which a task that runs again may repeat.

use super::Host;
use super::scene::Scene;
use norn_client::session::Draft;
use norn_wire::response::State;
use norn_wire::{TaskId, Token};
use std::collections::BTreeMap;
use std::time::Duration;

const SHORT: Duration = Duration::from_secs(2);

// C18: the first worker does the work, and disappears before it reports that
pub(super) async fn work_that_is_found_done_is_just_completed<H: Host>(scene: Scene<H>) {
    let mut printed: BTreeMap<TaskId, String> = BTreeMap::new();
    let id = scene.enqueue(0, Draft::new(scene.queue("pages"), "page 1")).await;
    let first = scene.take_for(0, "pages", SHORT).await;
    printed.insert(first.id, "printed".to_owned());
    let second = scene.take(1, "pages").await;
    let found = printed.get(&second.id).expect("the task is the same, and so is the place to look").clone();
    scene.complete(1, &second, &found).await;
    let view = scene.get(2, id).await;
    assert_eq!((view.state, view.result.as_deref().map(Vec::as_slice)), (State::Done, Some(&b"printed"[..])));
    scene.nothing("pages").await;
    assert_eq!(printed.len(), 1);
}

/// A service whose effects cannot be undone.
#[derive(Debug, Default)]
struct Bank {
    /// The latest token that was used for each payment.
    latest: BTreeMap<TaskId, Token>,
    paid: BTreeMap<TaskId, u32>,
    asked: u32,
}

impl Bank {
    /// Pays once for each task, and rejects claims that are older than the latest it has seen.
    fn pay(&mut self, task: TaskId, token: Token) -> bool {
        self.asked += 1;
        let latest = self.latest.entry(task).or_insert(token);
        if token < *latest {
            return false;
        }
        *latest = token;
        self.paid.entry(task).or_insert(1);
        true
    }
}

// C1, C19: several workers may run a task, even at once, and the queue cannot prevent it. A service that knows the task's id and the
// caller's token has one effect all the same, and tells a late caller that it is late
pub(super) async fn a_service_that_tells_repetitions_apart_has_one_effect<H: Host>(scene: Scene<H>) {
    let mut bank = Bank::default();
    let id = scene.enqueue(0, Draft::new(scene.queue("payments"), "ten crowns")).await;
    let first = scene.take_for(0, "payments", SHORT).await;
    // The first worker stalls for longer than its lease.
    let second = scene.take_for(1, "payments", SHORT).await;
    assert!(bank.pay(second.id, second.token), "the latest holder is heard");
    assert!(!bank.pay(first.id, first.token), "who wakes up late is told so");
    // The second worker disappears before it reports the payment.
    let third = scene.take(2, "payments").await;
    assert!(bank.pay(third.id, third.token), "a later holder is heard");
    scene.complete(2, &third, "paid").await;
    assert_eq!((bank.asked, bank.paid), (3, BTreeMap::from([(id, 1)])));
    scene.nothing("payments").await;
}
