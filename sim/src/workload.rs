//! Clients: applications with a real session each. Producers enqueue, cancel and read; workers claim.
//!
//! What a worker does with a task it was granted is in `jobs`; connections are in `links`.

use crate::adapter::{Call, CallId, Draft, Input, Output, Session, session};
use crate::clock::Monotonic;
use crate::history::{Fact, Finished, Happening, Moment, acks_of};
use crate::jobs::Job;
use crate::links::Link;
use crate::process::draw_rate;
use crate::sessions::{Held, queue_of_sessions};
use crate::transactions::queue_of_banks;
use crate::world::{Event, World};
use norn_wire::request::{Acks, Claim, Request};
use norn_wire::response::{Guarantee, Response};
use norn_wire::{ClaimId, Error, QueueName, TaskId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU8;

/// Acks that some writes ask for by their number, where there are more replicas.
const COUNTED: NonZeroU8 = NonZeroU8::new(2).expect("it is not zero");

/// Next action of an application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Enqueues something.
    Enqueue,
    /// Cancels a task.
    Cancel(TaskId),
    /// Reads something.
    Read(TaskId),
    /// Claims work.
    Claim,
    /// Gives a claim up.
    Leave(CallId),
    /// Changes several tasks in a transaction.
    Transact,
    /// Continues a job.
    Step(u64),
    /// Counts and lists everything.
    Audit(Option<TaskId>),
    /// Keeps its session alive.
    Heartbeat(TaskId),
    /// Enqueues members of a group from this number on, or sets how many there are.
    Members(TaskId, u32),
    /// Asks for news, as one of the client's watchers.
    Watch(usize),
}

/// Time within which a claim that does not wait is given up.
const LEFT_WITHIN_US: u64 = 50_000;
/// Time within which a claim must be answered, beside its wait.
const CLAIM_US: u64 = 8_000_000;

/// Kind of application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Enqueues.
    Producer,
    /// Works.
    Worker,
    /// Compares everything once all is settled.
    Auditor,
}

/// Purpose of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The call itself.
    Plain,
    /// A job.
    Job(u64),
    /// A worker's session.
    Session,
    /// A group, whose members from this number on come next.
    Group(TaskId, u32),
    /// One of a series of transactions.
    Banking,
    /// The comparison with what is there.
    Audit,
    /// A script, which takes the answer.
    ScriptHost,
    /// This watcher; whether all was settled before the call.
    Watch(usize, bool),
}

/// One of the queues that all kinds of work are in.
pub fn numbered_queue(number: u64) -> QueueName {
    QueueName::new(&format!("queue-{number}")).expect("a good name")
}

struct Pending {
    call: Call,
    submitted: Moment,
    purpose: Purpose,
}

/// A client.
pub struct Client {
    /// Number of its session. After one that vanished comes another.
    pub generation: u64,
    /// Its clock, which runs on in pauses.
    pub clock: Monotonic,
    /// Its links by endpoint.
    pub links: BTreeMap<usize, Link>,
    /// End of its present pause.
    pub paused_until_us: u64,
    /// Jobs in hand.
    pub jobs: BTreeMap<u64, Job>,
    /// Number of the latest job.
    pub next_job: u64,
    /// Number of the latest call.
    pub next_call: u64,
    session: Session,
    /// Session that its claims end with.
    pub held: Option<Held>,
    inbox: VecDeque<Input>,
    wake_us: Option<u64>,
    calls: BTreeMap<CallId, Pending>,
}

impl Client {
    /// Its unanswered claim calls, by when they were made.
    pub fn claiming(&self) -> Vec<Moment> {
        let claims = |pending: &&Pending| matches!(pending.call, Call::Request(Request::Claim(_)));
        self.calls.values().filter(claims).map(|pending| pending.submitted).collect()
    }

    /// Whether no call of it that writes is under way.
    pub fn is_idle(&self) -> bool {
        let reads = |pending: &Pending| match &pending.call {
            Call::Enqueue { .. }
            | Call::EnqueueUnique { .. }
            | Call::Transact { .. }
            | Call::Complete { .. }
            | Call::Redrive { .. } => false,
            Call::LendIds { .. } => true,
            // If it is refused for good, its task no longer exists anywhere.
            Call::Request(Request::CloseGroup { .. }) => true,
            Call::Request(request) => crate::history::writes_of(request).is_empty(),
        };
        self.jobs.is_empty() && self.calls.values().all(reads)
    }
}

impl World {
    /// Adds all producers and workers, and an auditor that waits for the end.
    pub fn populate_clients(&mut self) {
        let producers = (0..self.options.producers).map(|_| Kind::Producer);
        let workers = (0..self.options.workers).map(|_| Kind::Worker);
        let kinds: Vec<Kind> = producers.chain(workers).chain([Kind::Auditor]).collect();
        for kind in kinds {
            let client = self.add_client();
            let delay_us = self.randoms.workload.between(0, 2_000_000);
            match kind {
                Kind::Producer => {
                    self.act_in(client, delay_us, Act::Enqueue);
                    if self.options.transaction_percent > 0 {
                        self.act_in(client, delay_us, Act::Transact);
                    }
                }
                Kind::Worker => self.act_in(client, delay_us, Act::Claim),
                Kind::Auditor => {}
            }
        }
        self.begin_watches();
    }

    /// Adds a client that does nothing yet.
    pub fn add_client(&mut self) -> usize {
        let session = self.new_session();
        let rate_ppm = draw_rate(&self.options, &mut self.randoms.clocks);
        let reading_us = self.randoms.clocks.between(0, 1_000_000_000);
        self.clients.push(Client {
            generation: 1,
            clock: Monotonic::new(self.now_us, reading_us, rate_ppm),
            links: BTreeMap::new(),
            paused_until_us: 0,
            jobs: BTreeMap::new(),
            next_job: 0,
            next_call: 0,
            session,
            held: None,
            inbox: VecDeque::new(),
            wake_us: None,
            calls: BTreeMap::new(),
        });
        self.clients.len() - 1
    }

    fn new_session(&mut self) -> Session {
        Session::new(session::Config::default(), self.options.nodes as usize, self.randoms.identity.bits())
    }

    /// Schedules an action of a client, if its session is still the same by then.
    pub fn act_in(&mut self, client: usize, delay_us: u64, act: Act) {
        let generation = self.clients[client].generation;
        self.schedule_in(delay_us, Event::Act { client, generation, act });
    }

    /// Carries out an action of a client, now or when its pause is over.
    pub fn act(&mut self, client: usize, generation: u64, act: Act) {
        let state = &self.clients[client];
        if state.generation != generation {
            return;
        }
        if state.paused_until_us > self.now_us {
            let at_us = state.paused_until_us + 1;
            return self.schedule(at_us, Event::Act { client, generation, act });
        }
        match act {
            Act::Enqueue => self.act_enqueue(client),
            Act::Cancel(id) => {
                let acks = self.draw_acks();
                let reason = "not needed".to_owned();
                self.submit(client, Call::Request(Request::Cancel { id, reason, at_ms: 0, acks }), Purpose::Plain);
            }
            Act::Read(id) => self.act_read(client, id),
            Act::Claim => self.act_claim(client),
            Act::Leave(call) => self.act_leave(client, call),
            Act::Transact => self.act_transact(client),
            Act::Step(job) => self.job_step(client, job),
            Act::Audit(after) => self.act_audit(client, after),
            Act::Heartbeat(id) => self.act_heartbeat(client, id),
            Act::Members(group, from) => self.act_members(client, group, from),
            Act::Watch(number) => self.act_watch(client, number),
        }
    }

    /// Draws the durability that a write asks for.
    pub fn draw_acks(&mut self) -> Acks {
        let random = &mut self.randoms.workload;
        if !random.chance(self.options.strict_percent, 100) {
            return Acks::One;
        }
        match random.below(10) {
            0 => Acks::All,
            1 if self.options.replicas > u64::from(COUNTED.get()) => Acks::Count(COUNTED),
            _ => Acks::Quorum,
        }
    }

    pub fn draw_queue(&mut self) -> QueueName {
        let number = self.randoms.workload.below(self.options.queues);
        numbered_queue(number)
    }

    fn act_enqueue(&mut self, client: usize) {
        let done = *self.counters.get("tasks enqueued").unwrap_or(&0);
        if self.healed() || done >= self.options.tasks {
            return;
        }
        let batch = self.randoms.workload.chance(self.options.batch_percent, 100);
        let size = if batch { self.randoms.workload.between(2, 20).min(self.options.tasks - done).max(1) } else { 1 };
        let drafts: Vec<Draft> = (0..size).map(|number| self.draw_draft(done + number)).collect();
        *self.counters.entry("tasks enqueued".into()).or_default() += size;
        let acks = self.draw_acks();
        let call = self.draw_group().unwrap_or_else(|| self.draw_call(drafts, acks));
        self.submit(client, call, Purpose::Plain);
        let calls = self.options.tasks / (1 + self.options.batch_percent / 10) / self.options.producers;
        let pause_us = self.options.safety_ms * 1_000 / calls.max(1);
        let delay_us = self.randoms.workload.between(0, 2 * pause_us);
        self.act_in(client, delay_us, Act::Enqueue);
    }

    /// Draws the call: a task with a key may be enqueued as the only one.
    fn draw_call(&mut self, mut drafts: Vec<Draft>, acks: Acks) -> Call {
        let may = drafts.len() == 1 && drafts[0].spec.key.is_some() && self.options.unique_percent > 0;
        if !may || !self.randoms.uniques.chance(self.options.unique_percent, 100) {
            return Call::Enqueue { drafts, acks };
        }
        let draft = drafts.pop().expect("it is one");
        self.count("sometimes: enqueued to be unique");
        Call::EnqueueUnique { draft: Box::new(draft) }
    }

    /// Draws the tasks that a completion brings: none after healing, so that work comes to an end.
    pub fn draw_children(&mut self) -> Vec<Draft> {
        let percent = self.options.children_percent;
        let done = *self.counters.get("children drawn").unwrap_or(&0);
        let over = self.healed() || done >= self.options.tasks;
        if over || percent == 0 || !self.randoms.workload.chance(percent, 100) {
            return Vec::new();
        }
        let size = self.randoms.workload.between(1, 4);
        *self.counters.entry("children drawn".into()).or_default() += size;
        if let Some(group) = self.draw_child_group() {
            return group;
        }
        (0..size).map(|number| self.draw_draft(1_000_000 + done + number)).collect()
    }

    fn draw_draft(&mut self, number: u64) -> Draft {
        let queue = self.draw_queue();
        let random = &mut self.randoms.workload;
        let attempts_max = if random.chance(1, 10) { random.between(1, 5) as u32 } else { 0 };
        let mut draft =
            Draft::new(queue, format!("task {number}")).priority(random.below(4) as i32 - 1).attempts_max(attempts_max);
        // With wall clocks that are hours off, a delay may be hours.
        if random.chance(self.options.delay_percent, 100) && !self.options.wild_wall_clock {
            draft = draft.delay_ms(random.between(1, 5_000));
        }
        let draft = draft.after(self.draw_after());
        match self.randoms.keys.chance(self.options.key_percent, 100) {
            true => draft.key(format!("key {}", self.randoms.keys.below(3))),
            false => draft,
        }
    }

    /// Draws earlier tasks that a new one waits for, out of those that surely exist: one that was lost would never end.
    fn draw_after(&mut self) -> Vec<TaskId> {
        if !self.randoms.after.chance(self.options.after_percent, 100) {
            return Vec::new();
        }
        let there = self.history.strict.keys().filter(|(_, fact)| matches!(fact, Fact::Spec(_))).map(|(id, _)| *id);
        let there: Vec<TaskId> = there.collect();
        let mut after = BTreeSet::new();
        for _ in 0..self.randoms.after.between(1, 3).min(there.len() as u64) {
            after.insert(there[self.randoms.after.below(there.len() as u64) as usize]);
        }
        after.into_iter().collect()
    }

    fn act_read(&mut self, client: usize, id: TaskId) {
        let queue = self.draw_queue();
        let request = match self.randoms.workload.below(8) {
            0 => Request::Wait { id, timeout_ms: self.randoms.workload.between(1, 3_000) },
            1 => Request::Count { queue: Some(queue), state: None },
            2 => Request::List { queue: Some(queue), state: None, after: None, from: None, to: None, limit: 10 },
            3 => Request::Queues,
            4 => Request::Partitions,
            _ => Request::Get { id, minimum: None, minimum_sequence: None },
        };
        self.submit(client, Call::Request(request), Purpose::Plain);
    }

    fn act_claim(&mut self, client: usize) {
        if self.opens_session(client) {
            return;
        }
        let mut queues = vec![self.draw_queue()];
        let second = self.draw_queue();
        let healed = self.healed();
        let random = &mut self.randoms.workload;
        if healed {
            queues = (0..self.options.queues).map(numbered_queue).collect();
            if self.options.session_percent > 0 {
                queues.push(queue_of_sessions());
            }
        } else if random.chance(1, 3) && second != queues[0] {
            queues.push(second);
        }
        if self.claims_from_banks() {
            queues.push(queue_of_banks());
        }
        let random = &mut self.randoms.workload;
        let wait = random.chance(self.options.wait_percent, 100);
        let claim = Claim {
            claim: ClaimId(0),
            repeated: false,
            queues,
            lease_ms: random.between(self.options.lease_ms_min, self.options.lease_ms_max),
            wait_ms: if wait { random.between(1, 3_000) } else { 0 },
            max: if random.chance(1, 4) { random.between(2, 5) as u32 } else { 1 },
            worker: format!("worker-{client}"),
            lease_open: self.options.policy_mean_ms > 0 && random.chance(1, 2),
            session: None,
            depends: Vec::new(),
            confirms: false,
        };
        let claim = self.under_session(client, claim);
        let wait_us = claim.wait_ms * 1_000;
        let call = Call::Request(Request::Claim(claim));
        let call = self.submit_for(client, call, Purpose::Plain, CLAIM_US + wait_us);
        if self.randoms.leaves.chance(self.options.leave_percent, 100) {
            let answered_us = LEFT_WITHIN_US.max(6 * self.options.delay_us_max);
            let after_us = self.randoms.leaves.between(0, wait_us + answered_us);
            self.act_in(client, after_us, Act::Leave(call));
        }
    }

    /// Gives up a claim that is not answered yet, or ends the client's process.
    fn act_leave(&mut self, client: usize, call: CallId) {
        if self.healed() || !self.clients[client].calls.contains_key(&call) {
            return;
        }
        if self.randoms.leaves.chance(1, 2) {
            self.count("fault: claim given up");
            self.give_up(client, call);
        } else {
            self.vanish(client);
        }
    }

    /// Gives up a call.
    pub fn give_up(&mut self, client: usize, call: CallId) {
        if let Some(pending) = self.clients[client].calls.get(&call) {
            let call = pending.submitted;
            self.tell(Happening::GaveUp { call });
        }
        self.give_client(client, Input::Abandon { call });
    }

    /// Gives a call to the client's session.
    pub fn submit(&mut self, client: usize, call: Call, purpose: Purpose) {
        let length_us = match &call {
            Call::Request(Request::Claim(claim)) => CLAIM_US + claim.wait_ms * 1_000,
            _ => self.randoms.workload.between(1_000_000, 20_000_000),
        };
        self.submit_for(client, call, purpose, length_us);
    }

    /// Gives a call to the client's session, with the time within which it must be answered.
    pub fn submit_for(&mut self, client: usize, call: Call, purpose: Purpose, length_us: u64) -> CallId {
        let (id, submitted) = (self.next_call(client), self.moment());
        if let (Call::Request(Request::Change { change, .. }), Purpose::ScriptHost) = (&call, purpose) {
            self.tell(Happening::Wished { change });
        }
        let state = &mut self.clients[client];
        let deadline_us = state.clock.read_us(self.now_us) + length_us;
        state.calls.insert(id, Pending { call: call.clone(), submitted, purpose });
        self.give_client(client, Input::Submit { call: id, body: call, deadline_us });
        id
    }

    /// Hands an input to a session, now or when its pause is over.
    pub fn give_client(&mut self, client: usize, input: Input) {
        let state = &mut self.clients[client];
        if state.paused_until_us > self.now_us {
            return state.inbox.push_back(input);
        }
        let mut outputs = Vec::new();
        state.session.step(state.clock.read_us(self.now_us), input, &mut outputs);
        if let Err(reason) = state.session.check() {
            self.fail("check", format!("session of client {client}: {reason}"));
        }
        for output in outputs {
            match output {
                Output::Done { call, result, lease_from_us } => self.done(client, call, result, lease_from_us),
                output => {
                    if let Output::Send { endpoint, request, .. } = &output {
                        self.tell(Happening::Sent { request });
                        if let Request::Claim(claim) = request {
                            let node = self.losses.heir(*endpoint);
                            self.claim_sent(client, node, claim.claim);
                        }
                    }
                    self.link_output(client, output);
                }
            }
        }
        self.schedule_client_wake(client);
    }

    fn schedule_client_wake(&mut self, client: usize) {
        let now_us = self.now_us;
        let state = &mut self.clients[client];
        let Some(wake_us) = state.session.next_wake() else { return };
        let at_us = state.clock.true_time_us(now_us, wake_us).max(now_us + 1);
        if state.wake_us.is_some_and(|scheduled| scheduled > now_us && scheduled <= at_us) {
            return;
        }
        state.wake_us = Some(at_us);
        let generation = state.generation;
        self.schedule(at_us, Event::ClientWake { client, generation });
    }

    /// Handles a timer, which is the one that the session asked for or an earlier one.
    pub fn client_wake(&mut self, client: usize, generation: u64) {
        let now_us = self.now_us;
        let state = &mut self.clients[client];
        if state.generation != generation || state.paused_until_us > now_us {
            return;
        }
        state.wake_us = state.wake_us.filter(|at_us| *at_us > now_us);
        if state.session.next_wake().is_some_and(|wake_us| wake_us <= state.clock.read_us(now_us)) {
            self.give_client(client, Input::Wake);
        } else {
            self.schedule_client_wake(client);
        }
    }

    /// Pauses a client, application and session; its clock runs on.
    pub fn pause_client(&mut self, client: usize, length_us: u64) {
        self.count("fault: client pause");
        let generation = self.clients[client].generation;
        self.clients[client].paused_until_us = self.now_us + length_us;
        self.schedule_in(length_us, Event::ClientResume { client, generation });
    }

    /// Ends a client's pause: it handles what has come in meanwhile.
    pub fn resume_client(&mut self, client: usize, generation: u64) {
        let state = &mut self.clients[client];
        if state.generation != generation || state.paused_until_us > self.now_us {
            return;
        }
        state.paused_until_us = 0;
        while let Some(input) = self.clients[client].inbox.pop_front() {
            self.give_client(client, input);
        }
        self.give_client(client, Input::Wake);
    }

    /// Ends a client's process with its session; another one appears.
    pub fn vanish(&mut self, client: usize) {
        self.count("fault: client vanishes");
        self.line(format_args!("c{client} vanishes"));
        self.tell(Happening::Vanished { client });
        let links: Vec<u64> = self.clients[client].links.values().map(|link| link.attempt).collect();
        links.into_iter().for_each(|attempt| self.break_connection(attempt));
        for job in std::mem::take(&mut self.clients[client].jobs).into_values() {
            self.tell(Happening::Stops { client, id: job.id, token: job.token });
        }
        let session = self.new_session();
        let state = &mut self.clients[client];
        state.generation += 1;
        state.session = session;
        state.held = None;
        state.links.clear();
        state.inbox.clear();
        state.calls.clear();
        state.wake_us = None;
        let delay_us = self.randoms.workload.between(1_000, 500_000);
        self.act_in(client, delay_us, Act::Claim);
    }

    fn done(&mut self, client: usize, id: CallId, result: Result<Response, Error>, lease_from_us: Option<u64>) {
        let Some(pending) = self.clients[client].calls.remove(&id) else {
            return self.fail("answers", format!("the session of client {client} answers {id:?} twice"));
        };
        let Pending { call, submitted, purpose } = pending;
        self.line(format_args!("c{client} done {} {result:?}", id.0));
        self.count(match &result {
            Ok(_) => "calls answered",
            Err(_) => "calls failed",
        });
        self.tell(Happening::Finished(Finished { client, call: &call, submitted, result: &result }));
        match (&call, purpose) {
            (_, Purpose::Job(job)) => self.job_answered(client, job, &call, &result, lease_from_us),
            (_, Purpose::Watch(number, late)) => self.watch_answered(client, (number, late), &result),
            (_, Purpose::Audit) => self.audit_answered(client, &call, &result),
            (_, Purpose::ScriptHost) => {
                if let (Call::Request(request), Ok(response)) = (&call, &result) {
                    self.tell(Happening::Steered { request, asked: submitted, response });
                }
                self.answers.insert((client, id), result);
            }
            (_, Purpose::Session) => self.session_answered(client, &call, &result, lease_from_us),
            (_, Purpose::Group(group, next)) => self.members_answered(client, (group, next), &result),
            (Call::Enqueue { .. } | Call::EnqueueUnique { .. }, Purpose::Plain) => {
                self.begin_groups(client, &result);
                self.enqueued(client, &result);
            }
            (Call::Request(Request::Claim(claim)), Purpose::Plain) => {
                self.claimed(client, result, claim.session, lease_from_us);
            }
            (Call::Transact { .. }, Purpose::Plain) => self.transacted(&result),
            (_, Purpose::Banking) => {
                self.transacted(&result);
                self.go_on_banking(client);
            }
            (Call::Request(Request::Purge { .. }), Purpose::Plain) => {
                self.count(if result.is_ok() { "sometimes: purged" } else { "sometimes: purge refused" });
            }
            (
                Call::Request(_) | Call::Complete { .. } | Call::Redrive { .. } | Call::LendIds { .. },
                Purpose::Plain,
            ) => {}
        }
    }

    fn enqueued(&mut self, client: usize, result: &Result<Response, Error>) {
        let Ok(response) = result else { return };
        for (_, acked) in acks_of(response) {
            self.count(match acked.guarantee {
                Guarantee::Strict => "enqueued strictly",
                Guarantee::Sloppy => "enqueued sloppily",
            });
            let random = &mut self.randoms.workload;
            let delay_us = random.between(1_000, 3_000_000);
            if random.chance(self.options.cancel_percent, 100) {
                self.act_in(client, delay_us, Act::Cancel(acked.id));
            }
            if self.randoms.workload.chance(1, 5) {
                self.act_in(client, delay_us * 2, Act::Read(acked.id));
            }
        }
    }

    fn claimed(
        &mut self,
        client: usize,
        result: Result<Response, Error>,
        session: Option<TaskId>,
        lease_from_us: Option<u64>,
    ) {
        let tasks = match result {
            Ok(Response::Claimed { tasks, .. }) => tasks,
            Ok(_) | Err(_) => Vec::new(),
        };
        if tasks.is_empty() {
            let delay_us = self.randoms.workload.between(10_000, 300_000);
            return self.act_in(client, delay_us, Act::Claim);
        }
        let lease_from_us = lease_from_us.expect("what was answered was sent");
        let mut idle = true;
        for task in &tasks {
            self.count("tasks granted");
            if task.attempt > 1 {
                self.count("sometimes: granted again");
            }
            if !self.transact_granted(client, task) {
                idle = false;
                self.new_job(client, task, session, lease_from_us);
            }
        }
        if idle {
            self.act_in(client, 1_000, Act::Claim);
        }
    }

    /// Ends the pauses of all clients.
    pub fn heal_clients(&mut self) {
        for client in 0..self.clients.len() {
            let state = &mut self.clients[client];
            state.paused_until_us = state.paused_until_us.min(self.now_us);
            let generation = state.generation;
            self.schedule_in(1, Event::ClientResume { client, generation });
        }
        // On a stage the script decides what becomes of its groups.
        if self.options.producers > 0 {
            self.complete_groups();
        }
    }
}
