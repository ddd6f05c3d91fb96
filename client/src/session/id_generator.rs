//! Server time, ids and random values of a session.

use super::{Call, Draft, Finish};
use norn_wire::ids::{ClaimId, TAG_BITS, TaskId};
use norn_wire::random::Random;
use norn_wire::request::Request;
use norn_wire::response::Welcome;

/// A random tag, for a task without a required one.
pub(super) fn any_tag(random: &mut Random) -> u32 {
    random.below(1 << TAG_BITS) as u32
}

/// A random claim id. Never 0, which stands for "not chosen yet".
pub(super) fn any_claim(random: &mut Random) -> ClaimId {
    ClaimId(random.wide().max(1))
}

/// Requirements of a call before it can be sent, in increasing order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Needs {
    /// A connection: the node may have no cluster yet.
    Connection,
    /// A node that has welcomed the session.
    Node,
    /// The server's time.
    Time,
    /// Ids, for which a node must have lent a minter field.
    Ids,
}

impl Needs {
    /// All values, in increasing order.
    pub const ALL: [Needs; 4] = [Needs::Connection, Needs::Node, Needs::Time, Needs::Ids];

    pub fn of(call: &Call) -> Needs {
        match call {
            Call::Enqueue { drafts, .. } => Needs::of_drafts(drafts),
            Call::EnqueueUnique { draft } => Needs::of_draft(draft),
            Call::Transact { draft } if draft.id.is_none() => Needs::Ids,
            Call::Transact { draft } => Needs::of_drafts(&draft.adds).max(Needs::Time),
            Call::Complete { items, .. } => {
                let of_item =
                    |item: &Finish| Needs::of_drafts(&item.children).max(Needs::of_time(item.completion.at_ms));
                items.iter().map(of_item).max().unwrap_or(Needs::Node)
            }
            Call::Redrive { copy, .. } if copy.get().is_none() => Needs::Ids,
            Call::Redrive { .. } => Needs::Node,
            Call::LendIds { .. } => Needs::Ids,
            Call::Request(request) => match request {
                Request::Identify | Request::Initialize(_) | Request::Join(_) => Needs::Connection,
                Request::Complete { items, .. } => {
                    items.iter().map(|item| Needs::of_time(item.at_ms)).max().unwrap_or(Needs::Node)
                }
                Request::Cancel { at_ms, .. } => Needs::of_time(*at_ms),
                Request::Redrive { child: TaskId::MIN, .. } => Needs::Ids,
                _ => Needs::Node,
            },
        }
    }

    fn of_drafts(drafts: &[Draft]) -> Needs {
        drafts.iter().map(Needs::of_draft).max().unwrap_or(Needs::Node)
    }

    /// Ids of group members follow from their group's.
    fn of_draft(draft: &Draft) -> Needs {
        let is_member = || draft.spec.grouping.as_ref().is_some_and(|grouping| grouping.member.is_some());
        match draft.id {
            Some(_) => Needs::Node,
            None if is_member() && draft.delay_ms > 0 => Needs::Time,
            None if is_member() => Needs::Node,
            None => Needs::Ids,
        }
    }

    /// The server's time, if the caller left the time open.
    fn of_time(at_ms: u64) -> Needs {
        if at_ms == 0 { Needs::Time } else { Needs::Node }
    }
}

/// Greatest difference by which the session's id time may exceed that of a lending node. Beyond it, an earlier lender's clock was far
/// ahead: a node lends ids only with a clock that it trusts.
const AHEAD_MS_MAX: u64 = 60_000;

/// Times of the latest welcome.
#[derive(Debug)]
struct ServerClock {
    received_us: u64,
    /// For ids: at least the time of any id that the node has lent.
    lent: ServerTime,
    /// For all other uses.
    wall: ServerTime,
}

/// A server time, advanced by the local clock since the welcome.
#[derive(Debug)]
struct ServerTime {
    time_ms: u64,
    /// Lower bound: the latest time that this session had read before. A node whose clock is behind makes the time stand still for a
    /// while. The bound is dropped only if the earlier time was far ahead.
    floor_ms: u64,
}

impl ServerTime {
    fn after(&self, elapsed_ms: u64) -> u64 {
        self.time_ms.saturating_add(elapsed_ms).max(self.floor_ms)
    }
}

impl ServerClock {
    fn elapsed_ms(&self, now_us: u64) -> u64 {
        now_us.saturating_sub(self.received_us) / 1_000
    }
}

/// The ids generated under the latest loan up to some time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Minted {
    minter: u64,
    time_ms_last: u64,
}

impl Minted {
    /// Whether an id is one of them.
    pub fn has(self, id: TaskId) -> bool {
        id.minter() == self.minter && id.time_ms() <= self.time_ms_last
    }
}

/// Id generator: server time, and the ids that follow from it.
#[derive(Debug)]
pub(super) struct IdGenerator {
    clock: Option<ServerClock>,
    /// The minter field lent last. It stays this session's for good, whichever node serves it.
    minter: Option<u64>,
    time_ms_last: u64,
    counter: u32,
}

impl IdGenerator {
    /// Starts the counter at a random value: a session that gets the same minter as an earlier one uses other numbers.
    pub fn new(random: &mut Random) -> Self {
        IdGenerator::starting_at(random.below(1 << 32) as u32)
    }

    pub fn starting_at(counter: u32) -> Self {
        IdGenerator { clock: None, minter: None, time_ms_last: 0, counter }
    }

    /// Takes the times and the loan of a welcome. A loan from a node with a right clock replaces one from a node whose clock was far ahead.
    pub fn welcome(&mut self, now_us: u64, welcome: &Welcome) {
        let lends = welcome.refusal.is_none();
        let most_ms = welcome.time_ms.saturating_add(AHEAD_MS_MAX);
        if lends && self.id_time_ms(now_us).is_some_and(|own_ms| own_ms > most_ms) {
            self.clear();
        }
        // A welcome without ids changes nothing while there is a loan: the loan's time is at least that of every id.
        if !lends && (self.minter.is_some() || welcome.time_ms == 0) {
            return;
        }
        let lent = ServerTime { time_ms: welcome.time_ms, floor_ms: self.id_time_ms(now_us).unwrap_or(0) };
        let wall = ServerTime { time_ms: welcome.wall_ms(), floor_ms: self.server_time_ms(now_us).unwrap_or(0) };
        self.clock = Some(ServerClock { received_us: now_us, lent, wall });
        self.minter = lends.then_some(welcome.minter);
    }

    /// Discards a loan and its time, if it is the latest: its ids are ahead of the nodes' clocks. The ids generated from it stay
    /// unique: each loan has another minter, and the counter continues.
    pub fn forget(&mut self, minted: Minted) -> bool {
        let is_last = self.minter == Some(minted.minter);
        if is_last {
            self.clear();
        }
        is_last
    }

    fn clear(&mut self) {
        (self.clock, self.minter, self.time_ms_last) = (None, None, 0);
    }

    /// The highest requirement that can be met now.
    pub fn serves(&self) -> Needs {
        match (&self.clock, self.minter) {
            (_, Some(_)) => Needs::Ids,
            (Some(_), None) => Needs::Time,
            (None, None) => Needs::Node,
        }
    }

    pub fn minted(&self) -> Option<Minted> {
        self.minter.map(|minter| Minted { minter, time_ms_last: self.time_ms_last })
    }

    /// The server's wall clock.
    pub fn server_time_ms(&self, now_us: u64) -> Option<u64> {
        self.clock.as_ref().map(|clock| clock.wall.after(clock.elapsed_ms(now_us)))
    }

    /// Earliest time of a new id, which may be ahead of the clock for a while.
    fn id_time_ms(&self, now_us: u64) -> Option<u64> {
        self.clock.as_ref().map(|clock| clock.lent.after(clock.elapsed_ms(now_us)))
    }

    /// Generates the next id: above every id that this session generated before, except those of a discarded loan. Needs a loan.
    pub fn generate(&mut self, now_us: u64, tag: u32) -> TaskId {
        let minter = self.minter.expect("calls that mint wait for a loan");
        let server_ms = self.id_time_ms(now_us).expect("there is a clock");
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
