//! Invariants that every run must satisfy, one file each. Those that look at a single event come first, those that keep a history
//! last.
//!
//! To add a property: a file with a type that implements [`Property`], a line in [`all`], and a test with a history that the property
//! refuses.

mod ages;
mod changes;
mod children;
mod completion;
mod contents;
mod convergence;
mod dead_letters;
mod dependencies;
mod durability;
mod earned;
mod exclusion;
mod fairness;
mod fenced;
mod forgotten;
mod groups;
mod known;
mod leaders;
mod lending;
mod limits;
mod logs;
mod lost;
mod merging;
mod nothing;
mod order;
mod policies;
mod purged;
mod rank;
mod reached;
mod room;
mod schedules;
mod sealed;
mod serial;
mod succession;
mod tokens;
mod transactions;
mod turns;
mod unique;
mod viewstamps;
mod watching;

use crate::history::{Happening, History, Moment};
pub use convergence::{is_open, unsettled};

/// An invariant of every run.
pub trait Property {
    /// Name for reports.
    fn name(&self) -> &'static str;
    /// Takes in an event. An error is the evidence that the property does not hold.
    fn see(&mut self, history: &History, moment: Moment, happening: &Happening<'_>) -> Result<(), String>;
}

/// Every property.
pub fn all() -> Vec<Box<dyn Property>> {
    vec![
        Box::<contents::Contents>::default(),
        Box::<logs::Logs>::default(),
        Box::<merging::Merging>::default(),
        Box::<leaders::Leaders>::default(),
        Box::<fenced::Fenced>::default(),
        Box::<viewstamps::Viewstamps>::default(),
        Box::<succession::Succession>::default(),
        Box::<tokens::Tokens>::default(),
        Box::<exclusion::Exclusion>::default(),
        Box::<ages::LeaseAges>::default(),
        Box::<turns::Turns>::default(),
        Box::<unique::Unique>::default(),
        Box::<transactions::Transactions>::default(),
        Box::<serial::Serial>::default(),
        Box::<completion::Completion>::default(),
        Box::<dependencies::Dependencies>::default(),
        Box::<groups::Groups>::default(),
        Box::<nothing::Nothing>::default(),
        Box::<lending::Lending>::default(),
        Box::<changes::Changes>::default(),
        Box::<policies::Policies>::default(),
        Box::<order::Order>::default(),
        Box::<rank::Rank>::default(),
        Box::<limits::Limits>::default(),
        Box::<earned::Earned>::default(),
        Box::<room::Room>::default(),
        Box::<reached::Reached>::default(),
        Box::<fairness::Fairness>::default(),
        Box::<schedules::Schedules>::default(),
        Box::<sealed::Sealed>::default(),
        Box::<children::Children>::default(),
        Box::<dead_letters::DeadLetters>::default(),
        Box::<forgotten::Forgotten>::default(),
        Box::<purged::Purged>::default(),
        Box::<durability::Durability>::default(),
        Box::<lost::Lost>::default(),
        Box::<watching::Watching>::default(),
        Box::<convergence::Convergence>::default(),
    ]
}

/// Feeds synthetic histories to one property.
#[cfg(test)]
pub mod check {
    use super::Property;
    use crate::adapter::Call;
    pub use crate::history::Terms;
    use crate::history::{Finished, Happening, History, Moment};
    use norn_wire::request::{Acks, Claim, NewTask, Request, Spec};
    use norn_wire::response::{Acked, Genesis, Granted, Guarantee, Member, Response};
    use norn_wire::{ClaimId, ClusterId, Error, NodeId, QueueName, TaskId, Token};

    /// One property with the history it sees.
    pub struct Bench<P> {
        pub property: P,
        pub history: History,
        sequence: u64,
    }

    pub fn id(number: u32) -> TaskId {
        TaskId::new(1, number, 0, 0)
    }

    pub fn token(epoch: u64, number: u64) -> Token {
        Token { epoch, number }
    }

    pub fn spec() -> Spec {
        let queue = QueueName::new("q").unwrap();
        Spec::new(queue, vec![1])
    }

    pub fn enqueue(number: u32) -> Request {
        Request::Enqueue { tasks: vec![NewTask { id: id(number), spec: spec() }], acks: Acks::Quorum }
    }

    pub fn cancel(number: u32) -> Request {
        Request::Cancel { id: id(number), reason: String::new(), at_ms: 0, acks: Acks::Quorum }
    }

    pub fn acked(number: u32, acks: u32, guarantee: Guarantee) -> Acked {
        Acked { id: id(number), acks, replicas: 3, guarantee }
    }

    pub fn granted(number: u32, token: Token) -> Response {
        let spec = spec();
        let task = Granted {
            id: id(number),
            token,
            queue: spec.queue,
            payload: spec.payload,
            priority: 0,
            headers: Vec::new(),
            attempt: 1,
            lease_ms: 1_000,
            updates: Vec::new(),
            grouping: None,
            group: None,
        };
        Response::Claimed { tasks: vec![task], unavailable: 0, left: 0 }
    }

    pub fn claim() -> Request {
        Request::Claim(Claim {
            claim: ClaimId(0),
            repeated: false,
            queues: vec![spec().queue],
            lease_ms: 1_000,
            wait_ms: 0,
            max: 1,
            worker: String::new(),
            lease_open: false,
            session: None,
            depends: Vec::new(),
            confirms: false,
        })
    }

    impl<P: Property + Default> Bench<P> {
        /// A cluster of three nodes and one partition.
        pub fn new() -> Self {
            let member = |node: u128| Member {
                node: NodeId(node),
                incarnation: 1,
                address: String::new(),
                name: String::new(),
                zone: String::new(),
            };
            let genesis = Genesis {
                cluster: ClusterId(1),
                name: String::new(),
                partitions: 1,
                replicas: 3,
                members: (0..3).map(member).collect(),
                assignment: vec![vec![0, 1, 2]],
            };
            let mut history = History::default();
            history.found(genesis);
            (0..3).for_each(|place| history.place(NodeId(place as u128), place));
            Bench { property: P::default(), history, sequence: 0 }
        }

        /// Lets virtual time pass.
        pub fn pass(&mut self, time_us: u64) {
            self.sequence += time_us / 1_000;
        }

        pub fn now(&self) -> Moment {
            Moment { time_us: self.sequence * 1_000, sequence: self.sequence }
        }

        pub fn see(&mut self, happening: Happening<'_>) -> Result<(), String> {
            self.sequence += 1;
            let moment = self.now();
            self.history.see(moment, &happening)?;
            self.property.see(&self.history, moment, &happening)
        }

        pub fn finish(&mut self, request: Request, submitted: Moment, response: Response) -> Result<(), String> {
            self.finish_call(Call::Request(request), submitted, Ok(response))
        }

        pub fn finish_call(
            &mut self,
            call: Call,
            submitted: Moment,
            result: Result<Response, Error>,
        ) -> Result<(), String> {
            self.see(Happening::Finished(Finished { client: 0, call: &call, submitted, result: &result }))
        }

        /// Enqueues a task and acknowledges it strictly.
        pub fn enqueued(&mut self, number: u32) {
            self.see(Happening::Sent { request: &enqueue(number) }).unwrap();
            let call = Call::Enqueue { drafts: Vec::new(), acks: Acks::Quorum };
            let response = Response::Acked(vec![Ok(acked(number, 2, Guarantee::Strict))]);
            self.finish_call(call, self.now(), Ok(response)).unwrap();
        }

        /// Cancels a task and acknowledges that strictly.
        pub fn cancelled(&mut self, number: u32) {
            let response = Response::AckedOne(acked(number, 2, Guarantee::Strict));
            self.finish(cancel(number), self.now(), response).unwrap();
        }
    }
}
