//! The fate of every task, according to the answers that producers and workers got: total-queue accounting, and the intervals in which
//! workers held tasks, all on the one monotonic clock of this machine.

use norn_client::client::Claimed;
use norn_wire::response::TaskView;
use norn_wire::{State, TaskId, Token};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The books. Producers and workers record events as they happen; [`Ledger::judge`] checks them at the end.
#[derive(Debug, Default)]
pub struct Ledger {
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    /// Payloads that a producer has tried to enqueue.
    attempted: BTreeSet<Vec<u8>>,
    /// Payloads whose producer got the answer that the enqueue had no effect.
    refused: BTreeSet<Vec<u8>>,
    /// Attempts whose outcome the producer does not know.
    unknown: u64,
    tasks: BTreeMap<TaskId, Account>,
}

#[derive(Debug, Default)]
struct Account {
    payload: Option<Vec<u8>>,
    acknowledged: bool,
    holds: Vec<Hold>,
    /// When a worker first got the acknowledgement of a durable completion.
    completed: Option<Instant>,
    /// Claims whose completion was acknowledged to a worker as durable.
    completions: BTreeSet<Token>,
    /// The result that workers sent under each claim, whatever the answer was.
    results: BTreeMap<Token, Vec<u8>>,
}

/// One claim, from its answer until the worker stops holding it.
#[derive(Debug, Clone, Copy)]
struct Hold {
    token: Token,
    asked: Instant,
    from: Instant,
    until: Instant,
}

impl Hold {
    fn is_empty(&self) -> bool {
        self.from >= self.until
    }
}

/// Totals of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sums {
    /// Payloads that producers tried to enqueue.
    pub attempted: u64,
    /// Tasks whose enqueue was acknowledged.
    pub acknowledged: u64,
    /// Attempts without effect, according to the answers that producers got.
    pub refused: u64,
    /// Attempts of unknown outcome.
    pub unknown: u64,
    /// Claims that reached a worker.
    pub delivered: u64,
    /// Tasks whose completion was acknowledged.
    pub completed: u64,
    /// Tasks that were delivered although their enqueue was not acknowledged.
    pub recovered: u64,
    /// Deliveries of a task beyond its first.
    pub duplicated: u64,
    /// Further tasks with the payload of another task: the producer repeated an attempt under another id.
    pub copies: u64,
    /// Acknowledged tasks that are not done at the end.
    pub lost: u64,
    /// Descriptions of everything that must not happen.
    pub violations: Vec<String>,
}

impl fmt::Display for Sums {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sums { attempted, acknowledged, refused, unknown, delivered, .. } = self;
        let Sums { completed, recovered, duplicated, copies, lost, violations, .. } = self;
        write!(
            formatter,
            "attempted {attempted}, acknowledged {acknowledged}, refused {refused}, unknown {unknown}, \
             delivered {delivered}, completed {completed}, recovered {recovered}, duplicated {duplicated}, copies {copies}, \
             lost {lost}, violations {}",
            violations.len()
        )?;
        violations.iter().take(20).try_for_each(|violation| write!(formatter, "\n  {violation}"))
    }
}

impl Ledger {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a producer is about to enqueue this payload. No two tasks have the same payload.
    pub fn attempted(&self, payload: &[u8]) {
        self.books().attempted.insert(payload.to_owned());
    }

    /// Records that the enqueue was acknowledged.
    pub fn acknowledged(&self, payload: &[u8], id: TaskId) {
        let mut books = self.books();
        let account = books.tasks.entry(id).or_default();
        account.acknowledged = true;
        account.payload = Some(payload.to_owned());
    }

    /// Records the answer to a producer that this payload was not and will not be enqueued.
    pub fn refused(&self, payload: &[u8]) {
        self.books().refused.insert(payload.to_owned());
    }

    /// Records an enqueue whose outcome the producer does not know.
    pub fn unknown(&self) {
        self.books().unknown += 1;
    }

    /// Records that a worker has the answer to a claim call that it began at `asked`.
    pub fn delivered(&self, asked: Instant, claimed: &Claimed) {
        let from = Instant::now();
        let granted = &claimed.granted;
        let mut books = self.books();
        let account = books.tasks.entry(granted.id).or_default();
        account.payload.get_or_insert_with(|| granted.payload.clone());
        account.holds.push(Hold { token: granted.token, asked, from, until: claimed.expires });
    }

    /// Whether some task was delivered more than once.
    pub fn has_repeats(&self) -> bool {
        self.books().tasks.values().any(|account| account.holds.len() > 1)
    }

    /// Records a renewal, which extends a claim.
    pub fn renewed(&self, id: TaskId, token: Token, until: Instant) {
        self.with_hold(id, token, |hold| hold.until = hold.until.max(until));
    }

    /// Records that a worker stops working on a task because it is about to complete or return it.
    pub fn stopped(&self, id: TaskId, token: Token) {
        let now = Instant::now();
        self.with_hold(id, token, |hold| hold.until = hold.until.min(now));
    }

    fn with_hold(&self, id: TaskId, token: Token, change: impl FnOnce(&mut Hold)) {
        let mut books = self.books();
        let account = books.tasks.get_mut(&id).expect("what is held was delivered");
        change(account.holds.iter_mut().find(|hold| hold.token == token).expect("by this claim"));
    }

    /// Records that a worker is about to complete a task with this result.
    pub fn completing(&self, id: TaskId, token: Token, result: &[u8]) {
        self.stopped(id, token);
        let mut books = self.books();
        let account = books.tasks.get_mut(&id).expect("what is completed was delivered");
        account.results.insert(token, result.to_owned());
    }

    /// Records that a worker got the acknowledgement that its completion is on a majority of disks.
    pub fn completed(&self, id: TaskId, token: Token) {
        let mut books = self.books();
        let account = books.tasks.get_mut(&id).expect("what is completed was delivered");
        account.completed.get_or_insert_with(Instant::now);
        account.completions.insert(token);
    }

    /// Number of acknowledged tasks.
    pub fn acknowledged_count(&self) -> usize {
        self.books().tasks.values().filter(|account| account.acknowledged).count()
    }

    /// Number of tasks whose completion was acknowledged to a worker.
    pub fn completed_count(&self) -> usize {
        self.books().tasks.values().filter(|account| account.completed.is_some()).count()
    }

    /// Computes the totals and compares the books with the tasks that the cluster shows at the end.
    pub fn judge(&self, tasks: &[TaskView]) -> Sums {
        let books = self.books();
        let (attempted, refused) = (books.attempted.len() as u64, books.refused.len() as u64);
        let mut sums = Sums { attempted, refused, unknown: books.unknown, ..Sums::default() };
        let (mut shown, mut payloads) = (BTreeMap::new(), BTreeSet::new());
        for task in tasks {
            if shown.insert(task.id, task).is_some() {
                sums.violations.push(format!("{} is shown twice", task.id));
            }
            sums.copies += u64::from(!payloads.insert(&task.spec.payload));
            if !books.attempted.contains(&task.spec.payload) {
                sums.violations.push(format!("{} was enqueued by nobody", task.id));
            }
            if books.refused.contains(&task.spec.payload) {
                sums.violations.push(format!("{} is there, and its producer was told that it is not", task.id));
            }
        }
        for (id, account) in &books.tasks {
            account.add(*id, &mut sums);
            if let Some(violation) = account.compare(shown.get(id).copied()) {
                sums.lost += u64::from(account.acknowledged || account.completed.is_some());
                sums.violations.push(format!("{id}: {violation}"));
            }
        }
        sums
    }
}

impl Account {
    fn add(&self, id: TaskId, sums: &mut Sums) {
        let delivered = self.holds.len() as u64;
        sums.acknowledged += u64::from(self.acknowledged);
        sums.delivered += delivered;
        sums.completed += u64::from(self.completed.is_some());
        sums.recovered += u64::from(!self.acknowledged && delivered > 0);
        sums.duplicated += delivered.saturating_sub(1);
        let tokens: BTreeSet<Token> = self.holds.iter().map(|hold| hold.token).collect();
        if tokens.len() < self.holds.len() {
            sums.violations.push(format!("{id}: one token was given twice"));
        }
        // An answer that arrives after its lease has expired creates no holder.
        let mut holds: Vec<&Hold> = self.holds.iter().filter(|hold| !hold.is_empty()).collect();
        holds.sort_by_key(|hold| hold.from);
        for pair in holds.windows(2) {
            let [before, after] = pair else { unreachable!("windows of two") };
            if after.from < before.until {
                let both = before.until - after.from;
                let (one, other) = (before.token, after.token);
                sums.violations.push(format!("{id}: held under {one} and {other} at once, for {both:?}"));
            }
            if after.token <= before.token {
                sums.violations.push(format!("{id}: token {} came after {}", after.token, before.token));
            }
        }
        if let Some(completed) = self.completed
            && let Some(late) = self.holds.iter().find(|hold| hold.asked > completed)
        {
            sums.violations.push(format!("{id}: claimed under {} after its completion was confirmed", late.token));
        }
    }

    /// What is wrong with the task as the cluster shows it, if anything.
    fn compare(&self, shown: Option<&TaskView>) -> Option<String> {
        let Some(shown) = shown else {
            return Some("it is gone".to_owned());
        };
        if shown.state != State::Done {
            return Some(format!("it is {} in the end", shown.state));
        }
        if self.payload.as_ref() != Some(&shown.spec.payload) {
            return Some("its payload has changed".to_owned());
        }
        let completed = shown.claims.iter().filter(|claim| claim.completed_ms.is_some());
        let completed: BTreeSet<Token> = completed.map(|claim| claim.token).collect();
        let Some(last) = completed.last() else {
            return Some("it is done and no claim shows a completion".to_owned());
        };
        if let Some(token) = completed.iter().find(|token| self.holds.iter().all(|hold| hold.token != **token)) {
            return Some(format!("claim {token} has completed it, which no worker ever had"));
        }
        // The view shows a limited number of claims, but no task of a test has that many.
        if let Some(token) = self.completions.difference(&completed).next() {
            return Some(format!("the completion under {token} was acknowledged and is gone"));
        }
        let shown = shown.result.as_ref().map(|result| result.as_slice());
        match self.results.get(last) {
            Some(result) if shown != Some(result) => Some(format!("its result is not that of claim {last}")),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use norn_wire::QueueName;
    use norn_wire::request::Spec;
    use norn_wire::response::{ClaimView, Granted};
    use std::time::Duration;

    /// Longer than any test stalls, so no lease in these tests expires by itself.
    const HOUR: Duration = Duration::from_secs(3_600);

    fn token(number: u64) -> Token {
        Token { epoch: 1, number }
    }

    fn claimed(number: u64, expires: Instant) -> Claimed {
        let granted = Granted {
            id: TaskId::MIN,
            token: token(number),
            queue: QueueName::new("q").unwrap(),
            payload: b"a".to_vec(),
            priority: 0,
            headers: Vec::new(),
            attempt: 1,
            lease_ms: 1_000,
            updates: Vec::new(),
            grouping: None,
            group: None,
        };
        Claimed { granted, expires }
    }

    fn shown(state: State, completed_by: u64) -> TaskView {
        let queue = QueueName::new("q").unwrap();
        let spec = Spec::new(queue, b"a".to_vec());
        let claim = ClaimView {
            token: token(completed_by),
            start_ms: 0,
            end_ms: None,
            completed_ms: Some(1),
            rejected: None,
            superseded: None,
            end: None,
            session: None,
            worker: String::new(),
        };
        TaskView {
            id: TaskId::MIN,
            state,
            spec,
            claims: vec![claim],
            updates: Vec::new(),
            result: Some(b"r".to_vec().into()),
            reason: None,
            log_incomplete: false,
            conflict: false,
            waits_for: Vec::new(),
            children: Vec::new(),
            children_open: false,
            version: None,
            ended_ms: None,
            next_attempt_ms: None,
            lost: None,
            redriven: Vec::new(),
            group: None,
        }
    }

    fn ledger() -> Ledger {
        let ledger = Ledger::default();
        ledger.attempted(b"a");
        ledger.acknowledged(b"a", TaskId::MIN);
        ledger
    }

    fn violation(ledger: &Ledger, tasks: &[TaskView]) -> String {
        ledger.judge(tasks).violations.join("; ")
    }

    #[test]
    fn a_plain_life_is_right() {
        let ledger = ledger();
        let now = Instant::now();
        ledger.delivered(now, &claimed(1, now + HOUR));
        ledger.completing(TaskId::MIN, token(1), b"r");
        ledger.completed(TaskId::MIN, token(1));
        let sums = ledger.judge(&[shown(State::Done, 1)]);
        assert_eq!((sums.acknowledged, sums.delivered, sums.completed, sums.lost), (1, 1, 1, 0));
        assert_eq!(sums.violations, Vec::<String>::new());
    }

    #[test]
    fn two_holders_at_once_are_found() {
        let ledger = ledger();
        let now = Instant::now();
        ledger.delivered(now, &claimed(1, now + HOUR));
        ledger.delivered(now, &claimed(2, now + HOUR));
        assert!(violation(&ledger, &[shown(State::Done, 2)]).contains("at once"));
    }

    #[test]
    fn a_late_answer_makes_no_holder() {
        let ledger = ledger();
        let now = Instant::now();
        ledger.delivered(now, &claimed(2, now + HOUR));
        ledger.delivered(now, &claimed(1, now));
        assert_eq!(violation(&ledger, &[shown(State::Done, 2)]), "");
    }

    #[test]
    fn tokens_that_fall_or_repeat_are_found() {
        for (second, words) in [(1, "came after"), (2, "twice")] {
            let ledger = ledger();
            let now = Instant::now();
            ledger.delivered(now, &claimed(2, now + HOUR));
            ledger.stopped(TaskId::MIN, token(2));
            ledger.delivered(now, &claimed(second, Instant::now() + HOUR));
            assert!(violation(&ledger, &[shown(State::Done, 2)]).contains(words), "{words}");
        }
    }

    #[test]
    fn what_is_lost_changed_or_claimed_after_its_end_is_found() {
        let lost = ledger();
        assert_eq!(lost.judge(&[]).lost, 1);
        assert!(violation(&lost, &[shown(State::Ready, 1)]).contains("ready in the end"));
        assert!(violation(&lost, &[shown(State::Done, 1)]).contains("no worker ever had"));
        let ended = ledger();
        let now = Instant::now();
        ended.delivered(now, &claimed(1, now));
        ended.completed(TaskId::MIN, token(1));
        ended.delivered(Instant::now() + HOUR, &claimed(2, now));
        assert!(violation(&ended, &[shown(State::Done, 1)]).contains("after its completion"));
    }

    #[test]
    fn what_was_refused_must_not_be_there() {
        let ledger = ledger();
        ledger.refused(b"a");
        assert!(violation(&ledger, &[shown(State::Done, 1)]).contains("told that it is not"));
    }

    #[test]
    fn completions_and_results_that_change_are_found() {
        let now = Instant::now();
        let gone = ledger();
        for number in [1, 2] {
            gone.delivered(now, &claimed(number, now));
        }
        gone.completed(TaskId::MIN, token(2));
        assert!(violation(&gone, &[shown(State::Done, 1)]).contains("under 1.2 was acknowledged and is gone"));
        let other = ledger();
        other.delivered(now, &claimed(1, now));
        other.completing(TaskId::MIN, token(1), b"s");
        assert!(violation(&other, &[shown(State::Done, 1)]).contains("not that of claim 1.1"));
    }

    #[test]
    fn a_third_holder_is_found_behind_a_short_second() {
        let ledger = ledger();
        let now = Instant::now();
        ledger.delivered(now, &claimed(1, now + 10 * HOUR));
        ledger.delivered(now, &claimed(2, Instant::now()));
        ledger.delivered(now, &claimed(3, now + HOUR));
        assert!(violation(&ledger, &[shown(State::Done, 3)]).contains("held under 1.1 and 1.3"));
    }
}
