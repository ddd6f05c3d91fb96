//! Handshakes of TLS under way. Each holds a place of a connection, so that those that hang give way to others.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Age from which a handshake gives way. One between machines far apart takes a tenth of it.
const GRACE: Duration = Duration::from_secs(2);

/// The handshakes of a door.
#[derive(Debug)]
pub struct Handshakes {
    /// Handshakes from which on the oldest gives way.
    max: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    /// By number, the oldest first. Dropping the sender ends the handshake.
    begun: BTreeMap<u64, (Instant, oneshot::Sender<()>)>,
}

/// A handshake under way.
#[derive(Debug)]
pub struct Handshake<'a> {
    all: &'a Handshakes,
    number: u64,
    way: oneshot::Receiver<()>,
}

impl Handshakes {
    /// No handshake. From this number on, old ones give way.
    pub fn new(max: usize) -> Handshakes {
        Handshakes { max: max.max(1), open: Mutex::default() }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a handshake.
    pub fn begin(&self) -> Handshake<'_> {
        self.make_room();
        let (held, way) = oneshot::channel();
        let mut open = self.open();
        let number = open.next;
        open.next += 1;
        open.begun.insert(number, (Instant::now(), held));
        Handshake { all: self, number, way }
    }

    /// Ends the oldest handshake if it is old enough: all places are taken, and it may be what takes one for nothing.
    pub fn give_way(&self) {
        let mut open = self.open();
        if let Some(oldest) = open.begun.first_entry().filter(|oldest| oldest.get().0.elapsed() >= GRACE) {
            oldest.remove();
        }
    }

    /// Ends the oldest handshakes, as far as there are too many and these are old enough.
    pub fn make_room(&self) {
        let mut open = self.open();
        while open.begun.len() >= self.max {
            let Some(oldest) = open.begun.first_entry().filter(|oldest| oldest.get().0.elapsed() >= GRACE) else {
                return;
            };
            oldest.remove();
        }
    }
}

impl Handshake<'_> {
    /// Waits until the handshake has to give way.
    pub async fn gives_way(&mut self) {
        // The sender is dropped, and nothing is ever sent.
        let _ = (&mut self.way).await;
    }
}

impl Drop for Handshake<'_> {
    fn drop(&mut self) {
        self.all.open().begun.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn has_to_go(handshake: &mut Handshake<'_>) -> bool {
        tokio::time::timeout(Duration::ZERO, handshake.gives_way()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_handshake_gives_way_and_a_young_one_does_not() {
        let all = Handshakes::new(2);
        let (mut first, mut second) = (all.begin(), all.begin());
        let mut third = all.begin();
        assert!(!has_to_go(&mut first).await, "many may begin at once");
        tokio::time::advance(GRACE).await;
        let mut fourth = all.begin();
        assert!(has_to_go(&mut first).await && has_to_go(&mut second).await);
        assert!(!has_to_go(&mut fourth).await);
        drop(fourth);
        all.make_room();
        assert!(!has_to_go(&mut third).await, "there is room");
        tokio::time::advance(GRACE).await;
        all.give_way();
        assert!(has_to_go(&mut third).await, "all places are taken");
        drop((first, second, third));
        assert!(all.open().begun.is_empty());
    }
}
