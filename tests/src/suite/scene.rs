//! The verbs of a scene. A verb that must succeed panics if it fails, and names the scene.

use super::Host;
use norn_client::session::{Call, Draft, Finish};
use norn_wire::membership::{ClusterChange, QueueSetting};
use norn_wire::request::{Acks, Claim, Completion, Request};
use norn_wire::response::{Acked, Granted, State, TaskView};
use norn_wire::{ClaimId, Error, ErrorCode, QueueName, Response, TaskId, Token};
use std::rc::Rc;
use std::time::Duration;

/// A lease that does not expire during a scene.
pub const LONG: Duration = Duration::from_secs(180);
/// Time between two checks.
const INTERVAL: Duration = Duration::from_millis(100);
/// Maximal difference between two correct wall clocks: what is due by one clock may be this much early by another.
pub const CLOCKS: Duration = Duration::from_secs(1);

/// A scene on a host.
pub struct Scene<H> {
    name: &'static str,
    host: Rc<H>,
}

/// A time in whole milliseconds.
pub fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).expect("no scene takes that long")
}

impl<H: Host> Scene<H> {
    /// A scene with this name.
    pub fn new(name: &'static str, host: Rc<H>) -> Self {
        Scene { name, host }
    }

    /// A queue that only this scene uses.
    pub fn queue(&self, word: &str) -> QueueName {
        QueueName::new(&format!("{}/{word}", self.name)).expect("a good name")
    }

    /// A name that only this scene uses.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The host's clock.
    pub fn now(&self) -> Duration {
        self.host.now()
    }

    /// Time limit for anything that is expected to happen.
    pub fn patience(&self) -> Duration {
        self.host.patience()
    }

    /// A length of time in which calls are made, scaled up where calls take longer than on an idle machine.
    pub fn scaled(&self, length: Duration) -> Duration {
        self.host.scaled(length)
    }

    /// Completes after this length of time.
    pub async fn pass(&self, length: Duration) {
        self.host.pass(length).await;
    }

    /// Completes at this time, or at once if the time has passed.
    pub async fn pass_until(&self, time: Duration) {
        self.pass(time.saturating_sub(self.now())).await;
    }

    /// Kills a node at once.
    pub fn kill(&self, node: usize) {
        self.host.kill(node);
    }

    /// Restarts a killed node.
    pub fn restart(&self, node: usize) {
        self.host.restart(node);
    }

    /// Makes any call; returns its answer or refusal.
    pub async fn ask(&self, client: usize, call: Call) -> Result<Response, Error> {
        self.host.call(client, call, self.host.patience()).await
    }

    /// Makes any request; returns its answer or refusal.
    pub async fn request(&self, client: usize, request: Request) -> Result<Response, Error> {
        self.ask(client, Call::Request(request)).await
    }

    /// Error code with which a request is refused.
    pub async fn refused(&self, client: usize, request: Request) -> ErrorCode {
        let text = format!("{request:?}");
        match self.request(client, request).await.map(first) {
            Err(error) | Ok(Err(error)) => error.code,
            Ok(Ok(())) => panic!("{}: {text} is not refused", self.name),
        }
    }

    fn must<T>(&self, what: &str, result: Result<T, Error>) -> T {
        result.unwrap_or_else(|error| panic!("{}: {what}: {:?}: {error}", self.name, error.code))
    }

    /// Stores a task with `acks=quorum`.
    pub async fn enqueue(&self, client: usize, draft: Draft) -> TaskId {
        let result = self.try_enqueue(client, draft, self.host.patience()).await;
        self.must("enqueue", result).id
    }

    /// Stores a task with `acks=all`, for scenes in which each leader must know it.
    pub async fn enqueue_at_all(&self, client: usize, draft: Draft) -> TaskId {
        let call = Call::Enqueue { drafts: vec![draft], acks: Acks::All };
        let result = self.ask(client, call).await.and_then(acked);
        self.must("enqueue", result).id
    }

    /// Stores a task with `acks=quorum`, unless it is refused.
    pub async fn try_enqueue(&self, client: usize, draft: Draft, patience: Duration) -> Result<Acked, Error> {
        let call = Call::Enqueue { drafts: vec![draft], acks: Acks::Quorum };
        acked(self.host.call(client, call, patience).await?)
    }

    /// Stores a task unless an open one has its key; returns whether one existed.
    pub async fn enqueue_unique(&self, client: usize, draft: Draft) -> (TaskId, bool) {
        match self.ask(client, Call::EnqueueUnique { draft: Box::new(draft) }).await {
            Ok(Response::AckedUnique { acked, existing }) => (acked.id, existing),
            other => panic!("{}: {other:?}", self.name),
        }
    }

    /// A claim request as a worker sends it.
    pub fn claim(&self, queue: &str, lease: Duration) -> Claim {
        Claim {
            claim: ClaimId(0),
            repeated: false,
            queues: vec![self.queue(queue)],
            lease_ms: millis(lease),
            wait_ms: 0,
            max: 1,
            worker: self.name.to_owned(),
            lease_open: false,
            session: None,
            depends: Vec::new(),
            confirms: false,
        }
    }

    /// Grants of a claim. Repeats the claim until some task is granted or no partition is unavailable.
    pub async fn claimed(&self, client: usize, claim: &Claim) -> Vec<Granted> {
        let end = self.now() + self.host.patience();
        loop {
            match self.request(client, Request::Claim(claim.clone())).await {
                Ok(Response::Claimed { tasks, unavailable, .. }) if unavailable == 0 || !tasks.is_empty() => {
                    return tasks;
                }
                Ok(Response::Claimed { .. }) => {}
                other => panic!("{}: claim: {other:?}", self.name),
            }
            assert!(self.now() < end, "{}: some partition is never led", self.name);
            self.pass(INTERVAL).await;
        }
    }

    /// Claims one task of a queue without waiting, if there is one.
    pub async fn look(&self, client: usize, queue: &str) -> Option<Granted> {
        self.claimed(client, &self.claim(queue, LONG)).await.pop()
    }

    /// Asserts that no client can claim a task of the queue.
    pub async fn nothing(&self, queue: &str) {
        for client in 0..super::CLIENTS {
            let got = self.look(client, queue).await;
            assert!(got.is_none(), "{}: {got:?} of {queue}", self.name);
        }
    }

    /// Asserts that no task of the queue can be claimed until that time.
    pub async fn nothing_until(&self, queue: &str, time: Duration) {
        while self.now() < time {
            let got = self.look(0, queue).await;
            assert!(got.is_none() || self.now() >= time, "{}: {got:?} of {queue} too early", self.name);
            if let Some(granted) = got {
                return self.release(0, &granted).await;
            }
            self.pass_until((self.now() + INTERVAL).min(time)).await;
        }
    }

    /// Claims one task, and waits until there is one.
    pub async fn take(&self, client: usize, queue: &str) -> Granted {
        self.take_for(client, queue, LONG).await
    }

    /// The same with a lease that may expire.
    pub async fn take_for(&self, client: usize, queue: &str, lease: Duration) -> Granted {
        self.take_as(client, &self.claim(queue, lease)).await.remove(0)
    }

    /// The same with any claim; returns at least one task.
    pub async fn take_as(&self, client: usize, claim: &Claim) -> Vec<Granted> {
        let wait_ms = (claim.lease_ms / 4).min(1_000);
        let end = self.now() + self.host.patience();
        loop {
            let tasks = self.claimed(client, &Claim { wait_ms, ..claim.clone() }).await;
            if !tasks.is_empty() {
                return tasks;
            }
            if self.now() >= end {
                let queue = claim.queues.first().cloned();
                let list = Request::List { queue, state: None, after: None, from: None, to: None, limit: 20 };
                panic!("{}: nothing to claim; there is {:?}", self.name, self.done(client, list).await);
            }
        }
    }

    /// Claims this many tasks of a queue, with the clients in turn.
    pub async fn take_all(&self, queue: &str, count: usize) -> Vec<Granted> {
        let mut tasks = Vec::new();
        while tasks.len() < count {
            tasks.push(self.take(tasks.len() % super::CLIENTS, queue).await);
        }
        tasks
    }

    /// A worker's completion. Each call stamps it with its own time.
    pub fn finish(claim: &Granted, result: &str) -> Finish {
        let completion = Completion {
            id: claim.id,
            token: claim.token,
            sequence: None,
            result: Some(result.as_bytes().to_vec().into()),
            at_ms: 0,
            children: Vec::new(),
        };
        Finish { completion, children: Vec::new() }
    }

    /// Completes a task.
    pub async fn complete(&self, client: usize, claim: &Granted, result: &str) {
        let result = self.try_complete(client, Self::finish(claim, result)).await;
        self.must("complete", result);
    }

    /// Completes a task, perhaps with children. The completion may be refused.
    pub async fn try_complete(&self, client: usize, finish: Finish) -> Result<Acked, Error> {
        acked(self.ask(client, Call::Complete { items: vec![finish], acks: Acks::Quorum }).await?)
    }

    /// Releases a claim.
    pub async fn release(&self, client: usize, claim: &Granted) {
        let request = Request::Release { id: claim.id, token: claim.token };
        let result = self.request(client, request).await;
        assert_eq!(self.must("release", result), Response::Done);
    }

    /// Renews a claim; returns the length of its lease in milliseconds, counted from when the call was first sent.
    pub async fn renew(&self, client: usize, id: TaskId, token: Token, lease: Option<Duration>) -> Result<u64, Error> {
        let request = Request::Renew { items: vec![(id, token)], lease_ms: lease.map(millis) };
        match self.request(client, request).await? {
            Response::Renewed(mut items) => items.remove(0),
            other => panic!("{}: renew: {other:?}", self.name),
        }
    }

    /// Error code of a claim that is over. Waits until the claim's leader knows: it may not yet have facts that other replicas have on
    /// disk.
    pub async fn over(&self, client: usize, id: TaskId, token: Token) -> ErrorCode {
        let end = self.now() + self.patience();
        loop {
            match self.renew(client, id, token, None).await {
                Err(error) => return error.code,
                Ok(_) => assert!(self.now() < end, "{}: {id} has ended, and is renewed", self.name),
            }
            self.pass(INTERVAL).await;
        }
    }

    /// Appends to a claim's log.
    pub async fn update(&self, client: usize, claim: &Granted, sequence: u32, data: &str) {
        self.update_with(client, claim, (sequence, data), Acks::Quorum).await;
    }

    /// Appends to a claim's log, durable on as many disks as `acks` requires.
    pub async fn update_with(&self, client: usize, claim: &Granted, (sequence, data): (u32, &str), acks: Acks) {
        let (id, token, data) = (claim.id, claim.token, data.as_bytes().to_vec());
        let result = self.request(client, Request::Update { id, token, sequence, data, acks }).await;
        self.must("update", result);
    }

    /// A failed attempt. Without `retry_in`, the queue's setting determines the delay.
    pub fn failure(claim: &Granted, retry_in: Option<Duration>) -> Request {
        Request::Fail {
            id: claim.id,
            token: claim.token,
            reason: "of no use".to_owned(),
            retry_in_ms: retry_in.map_or(0, millis),
            invalid: false,
            retry_open: retry_in.is_none(),
        }
    }

    /// The report that a task is invalid.
    pub fn invalidity(claim: &Granted) -> Request {
        let (id, token, reason) = (claim.id, claim.token, "blank".to_owned());
        Request::Fail { id, token, reason, retry_in_ms: 0, invalid: true, retry_open: false }
    }

    /// Makes a request that must succeed.
    pub async fn done(&self, client: usize, request: Request) -> Response {
        let what = request.verb();
        let result = self.request(client, request).await;
        self.must(what, result)
    }

    /// Cancels a task, so that no worker runs it any more.
    pub async fn cancel(&self, client: usize, id: TaskId) {
        self.done(client, Request::Cancel { id, reason: "not needed".to_owned(), at_ms: 0, acks: Acks::Quorum }).await;
    }

    /// Reads a task.
    pub async fn get(&self, client: usize, id: TaskId) -> TaskView {
        match self.done(client, Request::Get { id, minimum: None, minimum_sequence: None }).await {
            Response::Task(view) => *view,
            other => panic!("{}: get: {other:?}", self.name),
        }
    }

    /// Reads a task repeatedly until it satisfies `wanted`.
    pub async fn get_when(&self, id: TaskId, what: &str, wanted: impl Fn(&TaskView) -> bool) -> TaskView {
        let end = self.now() + self.host.patience();
        loop {
            let view = self.get(0, id).await;
            if wanted(&view) {
                return view;
            }
            assert!(self.now() < end, "{}: in vain: {what}; at last: {view:?}", self.name);
            self.pass(INTERVAL).await;
        }
    }

    /// Waits until no majority knows the task any more.
    pub async fn gone(&self, id: TaskId) {
        let end = self.now() + self.host.patience();
        loop {
            match self.request(0, Request::Get { id, minimum: None, minimum_sequence: None }).await {
                Err(error) if error.code == ErrorCode::NotFound => return,
                result => drop(self.must("get", result)),
            }
            assert!(self.now() < end, "{}: task {id} is still there", self.name);
            self.pass(INTERVAL).await;
        }
    }

    /// Number of tasks in a queue.
    pub async fn count(&self, queue: &str, state: Option<State>) -> u64 {
        match self.done(0, Request::Count { queue: Some(self.queue(queue)), state }).await {
            Response::Count(count) => count,
            other => panic!("{}: count: {other:?}", self.name),
        }
    }

    /// All tasks of a queue.
    pub async fn list(&self, queue: &str, state: Option<State>) -> Vec<TaskView> {
        let request =
            Request::List { queue: Some(self.queue(queue)), state, after: None, from: None, to: None, limit: 1_000 };
        match self.done(1, request).await {
            Response::Page(page) => page.tasks,
            other => panic!("{}: list: {other:?}", self.name),
        }
    }

    /// Changes a setting of a queue, and waits until all nodes have heard of it.
    pub async fn set(&self, queue: &str, setting: QueueSetting) {
        self.set_at_once(queue, setting).await;
        self.host.heard().await;
    }

    /// The same without the wait, so that some nodes may not have heard of it.
    pub async fn set_at_once(&self, queue: &str, setting: QueueSetting) {
        let change = Box::new(ClusterChange::Queue { queue: self.queue(queue), setting });
        self.done(0, Request::Change { change, dry_run: false }).await;
    }

    /// Ids in one partition, in ascending order.
    pub async fn neighbours(&self, count: u32) -> Vec<TaskId> {
        let model = self.enqueue(0, Draft::new(self.queue("models"), "")).await;
        self.cancel(0, model).await;
        let id = |number| TaskId::new(model.time_ms(), number, model.minter(), model.tag());
        // The session draws its counter at random. These counters exceed all that it used, or will use, in that millisecond.
        (0..count).map(|number| id(u32::MAX - count + number)).collect()
    }

    /// Cancels all open tasks, of any scene.
    pub async fn clear(self) {
        let mut after = None;
        loop {
            let request = Request::List { queue: None, state: None, after, from: None, to: None, limit: 1_000 };
            let Response::Page(page) = self.done(0, request).await else { panic!("{}: no page", self.name) };
            for view in page.tasks.iter().filter(|view| is_open(view.state)) {
                self.cancel(0, view.id).await;
            }
            after = page.next;
            if after.is_none() {
                return;
            }
        }
    }
}

/// Whether a task is open.
pub fn is_open(state: State) -> bool {
    matches!(state, State::Waiting | State::Ready | State::Claimed)
}

/// The only item of an answer.
fn acked(response: Response) -> Result<Acked, Error> {
    match response {
        Response::Acked(mut items) if items.len() == 1 => items.remove(0),
        other => panic!("one item is answered {other:?}"),
    }
}

/// The refusal of the first item, if the answer has items.
fn first(response: Response) -> Result<(), Error> {
    match response {
        Response::Acked(items) => items.into_iter().next().map_or(Ok(()), |item| item.map(|_| ())),
        Response::Renewed(items) => items.into_iter().next().map_or(Ok(()), |item| item.map(|_| ())),
        _ => Ok(()),
    }
}
