//! What a session takes from outside itself once and then keeps: server time, ids, randomness.

use crate::wire::ids::{ClaimId, TAG_BITS, TaskId};
use crate::wire::response::Welcome;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// A seeded generator whose stream depends on the seed alone.
#[derive(Debug)]
pub(super) struct Random(Xoshiro256PlusPlus);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0);
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    pub fn tag(&mut self) -> u32 {
        self.below(1 << TAG_BITS) as u32
    }

    /// Never 0, which stands for "not chosen yet".
    pub fn claim(&mut self) -> ClaimId {
        ClaimId((u128::from(self.0.next_u64()) << 64 | u128::from(self.0.next_u64())).max(1))
    }
}

/// What the newest welcome said about time.
#[derive(Debug)]
struct ServerClock {
    received_us: u64,
    time_ms: u64,
    /// What this session had read before: a node whose clock is behind makes the time stand still for a while,
    /// never go back.
    floor_ms: u64,
    minter: u64,
}

/// Server time and the ids that follow from it.
#[derive(Debug)]
pub(super) struct Mint {
    clock: Option<ServerClock>,
    time_ms_last: u64,
    counter: u32,
}

impl Mint {
    /// The counter starts anywhere: a session that gets the same minter as an earlier one meets other numbers.
    pub fn new(random: &mut Random) -> Self {
        Mint::starting_at(random.below(1 << 32) as u32)
    }

    pub fn starting_at(counter: u32) -> Self {
        Mint { clock: None, time_ms_last: 0, counter }
    }

    pub fn welcome(&mut self, now_us: u64, welcome: &Welcome) {
        let floor_ms = self.server_time_ms(now_us).unwrap_or(0);
        self.clock =
            Some(ServerClock { received_us: now_us, time_ms: welcome.time_ms, floor_ms, minter: welcome.minter });
    }

    pub fn server_time_ms(&self, now_us: u64) -> Option<u64> {
        self.clock.as_ref().map(|clock| {
            let elapsed_ms = now_us.saturating_sub(clock.received_us) / 1_000;
            clock.time_ms.saturating_add(elapsed_ms).max(clock.floor_ms)
        })
    }

    /// The next id: above every id that this session minted before. Needs a welcome.
    pub fn mint(&mut self, now_us: u64, tag: u32) -> TaskId {
        let clock = self.clock.as_ref().expect("calls that mint wait for a welcome");
        let minter = clock.minter;
        let server_ms = self.server_time_ms(now_us).expect("there is a clock");
        let mut time_ms = self.time_ms_last.max(server_ms);
        let (counter, wrapped) = self.counter.overflowing_add(1);
        if wrapped && time_ms == self.time_ms_last {
            time_ms += 1;
        }
        assert!(time_ms >= self.time_ms_last);
        self.time_ms_last = time_ms;
        self.counter = counter;
        TaskId::new(time_ms, counter, minter, tag)
    }
}
