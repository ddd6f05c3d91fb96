//! Stand-ins for what other parts of the project deliver: a toy core with one fixed leader, a log without checks and a
//! session without finesse. Enough to run the simulator; to be deleted when the real ones are there.

/// `norn_node::protocol::ring`.
pub mod ring {
    use norn_client::wire::PartitionId;
    use norn_client::wire::response::Member;

    pub fn assign(members: &[Member], partitions: u32, replicas: u32) -> Vec<Vec<u16>> {
        assert!(replicas as usize <= members.len());
        (0..partitions).map(|_| (0..replicas as u16).collect()).collect()
    }

    pub fn partition_of(tag: u32, partitions: u32) -> PartitionId {
        PartitionId(((u64::from(tag) * u64::from(partitions)) >> 24) as u16)
    }
}

/// `norn_node::storage::log`.
pub mod log {
    use norn_client::wire::NodeId;
    use norn_node::protocol::Record;
    use norn_node::storage::disk::{Disk, DiskError};

    pub struct LogConfig {
        pub segment_bytes: u64,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Identity {
        pub node: NodeId,
        pub incarnation: u64,
    }

    pub struct Log<D> {
        disk: D,
        identity: Identity,
        segment: u64,
        config: LogConfig,
    }

    fn name(segment: u64) -> String {
        format!("{segment:08}")
    }

    fn records(bytes: &[u8]) -> (Vec<Record>, usize) {
        let (mut records, mut at) = (Vec::new(), 0);
        while let Some(head) = bytes.get(at..at + 4) {
            let length = u32::from_be_bytes(head.try_into().expect("four bytes")) as usize;
            let Some(record) = bytes.get(at + 4..at + 4 + length).and_then(|body| Record::decode(body).ok()) else {
                break;
            };
            records.push(record);
            at += 4 + length;
        }
        (records, at)
    }

    impl<D: Disk> Log<D> {
        pub fn open(mut disk: D, config: LogConfig, draw: impl FnOnce() -> Identity) -> Result<Log<D>, DiskError> {
            let segment = disk.list()?.len().max(1) as u64;
            let found = match disk.read(&name(1), 0, 1 << 30) {
                Ok(bytes) => match records(&bytes).0.first() {
                    Some(Record::Identity { node, incarnation }) => {
                        Some(Identity { node: *node, incarnation: *incarnation })
                    }
                    _ => {
                        disk.remove(&name(1))?;
                        None
                    }
                },
                Err(_) => None,
            };
            let identity = found.unwrap_or_else(draw);
            let mut log = Log { disk, identity, segment, config };
            if found.is_none() {
                log.append(&[Record::Identity { node: identity.node, incarnation: identity.incarnation }])?;
            }
            log.disk.sync(&name(log.segment))?;
            log.disk.sync_directory()?;
            Ok(log)
        }

        pub fn identity(&self) -> Identity {
            self.identity
        }

        pub fn replay(&mut self, mut visit: impl FnMut(Record) -> Result<(), String>) -> Result<(), DiskError> {
            for segment in 1..=self.segment {
                let bytes = self.disk.read(&name(segment), 0, 1 << 30)?;
                let (records, end) = records(&bytes);
                for record in records {
                    visit(record).expect("records fit");
                }
                if end < bytes.len() {
                    assert_eq!(segment, self.segment, "only the last segment is torn");
                    self.disk.truncate(&name(segment), end as u64)?;
                    self.disk.sync(&name(segment))?;
                }
            }
            Ok(())
        }

        pub fn append(&mut self, records: &[Record]) -> Result<(), DiskError> {
            let mut bytes = Vec::new();
            for record in records {
                let start = bytes.len();
                bytes.extend([0; 4]);
                record.encode(&mut bytes);
                let length = (bytes.len() - start - 4) as u32;
                bytes[start..start + 4].copy_from_slice(&length.to_be_bytes());
            }
            if self.disk.length(&name(self.segment)).is_ok_and(|length| length > self.config.segment_bytes) {
                self.disk.sync(&name(self.segment))?;
                self.segment += 1;
                self.disk.append(&name(self.segment), &[])?;
                self.disk.sync_directory()?;
            }
            self.disk.append(&name(self.segment), &bytes)
        }

        pub fn sync(&mut self) -> Result<(), DiskError> {
            self.disk.sync(&name(self.segment))
        }
    }
}

/// `norn_client::session`.
pub mod session {
    use norn_client::wire::request::{Acks, NewTask, Request, Spec};
    use norn_client::wire::response::Response;
    use norn_client::wire::{ClaimId, Error, ErrorCode, QueueName, Retry, TaskId};
    use norn_node::protocol::random::Random;
    use std::collections::BTreeMap;

    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct CallId(pub u64);

    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Draft {
        pub id: Option<TaskId>,
        pub spec: Spec,
        pub delay_ms: u64,
    }

    impl Draft {
        pub fn new(queue: QueueName, payload: impl Into<Vec<u8>>) -> Self {
            let payload = payload.into();
            let spec = Spec { queue, payload, priority: 0, not_before_ms: 0, headers: Vec::new(), attempts_max: 0 };
            Draft { id: None, spec, delay_ms: 0 }
        }

        pub fn priority(mut self, priority: i32) -> Self {
            self.spec.priority = priority;
            self
        }

        pub fn delay_ms(mut self, delay_ms: u64) -> Self {
            self.delay_ms = delay_ms;
            self
        }

        pub fn attempts_max(mut self, attempts_max: u32) -> Self {
            self.spec.attempts_max = attempts_max;
            self
        }
    }

    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Call {
        Enqueue { drafts: Vec<Draft>, acks: Acks },
        Request(Request),
    }

    #[derive(Debug, Clone)]
    pub enum Input {
        Submit { call: CallId, body: Call, deadline_us: u64 },
        Connected { endpoint: usize },
        Disconnected { endpoint: usize },
        Received { endpoint: usize, number: u64, response: Response },
        Wake,
    }

    #[derive(Debug, Clone)]
    pub enum Output {
        Connect { endpoint: usize },
        Disconnect { endpoint: usize },
        Send { endpoint: usize, number: u64, request: Request },
        Done { call: CallId, result: Result<Response, Error>, first_sent_us: Option<u64> },
    }

    #[derive(Default)]
    pub struct Config {}

    struct Pending {
        body: Option<Call>,
        request: Option<Request>,
        deadline_us: u64,
        first_sent_us: Option<u64>,
        sent_us: u64,
        attempts: u64,
    }

    pub struct Session {
        random: Random,
        endpoints: usize,
        endpoint: usize,
        up: bool,
        connecting: bool,
        ready: Option<(u64, u64, u64)>,
        counter: u32,
        calls: BTreeMap<CallId, Pending>,
        now_us: u64,
        retry_us: u64,
    }

    impl Session {
        pub fn new(_config: Config, endpoints: usize, seed: u64) -> Session {
            let mut random = Random::new(seed);
            let endpoint = random.below(endpoints as u64) as usize;
            let (up, connecting, ready) = (false, false, None);
            let (counter, calls, now_us, retry_us) = (0, BTreeMap::new(), 0, 0);
            Session { random, endpoints, endpoint, up, connecting, ready, counter, calls, now_us, retry_us }
        }

        pub fn check(&self) -> Result<(), String> {
            Ok(())
        }

        pub fn next_wake(&self) -> Option<u64> {
            if self.calls.is_empty() { None } else { Some(self.now_us + 50_000) }
        }

        pub fn step(&mut self, now_us: u64, input: Input, out: &mut Vec<Output>) {
            self.now_us = now_us;
            match input {
                Input::Submit { call, body, deadline_us } => {
                    let pending = Pending {
                        body: Some(body),
                        request: None,
                        deadline_us,
                        first_sent_us: None,
                        sent_us: 0,
                        attempts: 0,
                    };
                    self.calls.insert(call, pending);
                }
                Input::Connected { endpoint } => {
                    self.up = true;
                    self.retry_us = now_us + 1_000_000;
                    out.push(Output::Send { endpoint, number: 0, request: Request::Hello { name: "s".into() } });
                }
                Input::Disconnected { .. } => self.rotate(),
                Input::Received { number: 0, response, .. } => match response {
                    Response::Welcome(welcome) => self.ready = Some((welcome.time_ms, now_us, welcome.minter)),
                    _ => self.retry_us = now_us,
                },
                Input::Received { number, response, .. } => self.received(CallId(number / 1_000), response, out),
                Input::Wake => {}
            }
            self.pump(out);
        }

        fn rotate(&mut self) {
            (self.up, self.connecting, self.ready) = (false, false, None);
            self.endpoint = (self.endpoint + 1) % self.endpoints;
            self.calls.values_mut().for_each(|call| call.sent_us = 0);
        }

        fn received(&mut self, call: CallId, response: Response, out: &mut Vec<Output>) {
            if let Response::Error(error) = &response
                && error.retry != Retry::Never
            {
                return;
            }
            if let Some(pending) = self.calls.remove(&call) {
                let result = if let Response::Error(error) = response { Err(error) } else { Ok(response) };
                out.push(Output::Done { call, result, first_sent_us: pending.first_sent_us });
            }
        }

        fn resolve(&mut self, body: Call, (time_ms, at_us, minter): (u64, u64, u64)) -> Request {
            let time_ms = time_ms + (self.now_us - at_us) / 1_000;
            match body {
                Call::Enqueue { drafts, acks } => {
                    let tag = self.random.below(1 << 24) as u32;
                    let mut tasks = Vec::new();
                    for mut draft in drafts {
                        self.counter += 1;
                        let id = TaskId::new(time_ms, self.counter, minter, tag);
                        if draft.delay_ms > 0 {
                            draft.spec.not_before_ms = time_ms + draft.delay_ms;
                        }
                        tasks.push(NewTask { id, spec: draft.spec });
                    }
                    Request::Enqueue { tasks, acks }
                }
                Call::Request(Request::Claim(mut claim)) => {
                    claim.claim = ClaimId(self.random.wide());
                    Request::Claim(claim)
                }
                Call::Request(request) => request,
            }
        }

        fn pump(&mut self, out: &mut Vec<Output>) {
            let now_us = self.now_us;
            let late: Vec<CallId> =
                self.calls.iter().filter(|(_, call)| call.deadline_us <= now_us).map(|(id, _)| *id).collect();
            for call in late {
                let first_sent_us = self.calls.remove(&call).and_then(|pending| pending.first_sent_us);
                let result = Err(Error::new(ErrorCode::Unknown, "deadline"));
                out.push(Output::Done { call, result, first_sent_us });
            }
            if self.calls.is_empty() {
                return;
            }
            if !self.connecting {
                (self.connecting, self.retry_us) = (true, now_us + 3_000_000);
                out.push(Output::Connect { endpoint: self.endpoint });
            } else if self.ready.is_none() && self.retry_us <= now_us {
                out.push(Output::Disconnect { endpoint: self.endpoint });
                self.rotate();
            }
            let Some(ready) = self.ready else { return };
            let calls: Vec<CallId> = self.calls.keys().copied().collect();
            for id in calls {
                if let Some(body) = self.calls.get_mut(&id).and_then(|call| call.body.take()) {
                    let request = self.resolve(body, ready);
                    self.calls.get_mut(&id).expect("there").request = Some(request);
                }
                let call = self.calls.get_mut(&id).expect("there");
                if call.sent_us > 0 && call.sent_us + 1_000_000 > now_us {
                    continue;
                }
                call.sent_us = now_us;
                call.attempts += 1;
                call.first_sent_us.get_or_insert(now_us);
                let request = call.request.clone().expect("resolved");
                out.push(Output::Send { endpoint: self.endpoint, number: id.0 * 1_000 + call.attempts, request });
            }
        }
    }
}

/// `norn_node::protocol::Node`: the first member leads everything, for ever.
pub mod core;
