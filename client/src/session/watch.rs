//! Client-side state of a watch: the next call, and the news in its answer.

use norn_wire::request::Request;
use norn_wire::watch::{Subject, WatchCursor, WatchEvent, Watched};
use norn_wire::{State, TaskId};
use std::collections::{BTreeSet, VecDeque};

/// Number of remembered endings, so that each is reported once when several nodes report it.
const TOLD_MAX: usize = 4_096;

/// An item of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchNews {
    /// A task changed its state.
    Event(WatchEvent),
    /// Endings before this point may have been missed; none after it is. List the tasks to catch up.
    Lagged,
    /// Number of partitions for which no reachable node can report events; 0 once this is over. Events meanwhile are reported later, or
    /// the watch lags.
    Silent(u32),
}

/// A watch without its connection. It begins with the answer to its first call.
#[derive(Debug)]
pub struct WatchState {
    subject: Subject,
    cursor: Option<WatchCursor>,
    news: VecDeque<WatchNews>,
    told: BTreeSet<(TaskId, State)>,
    /// The remembered endings in order of arrival, to drop the oldest.
    told_order: VecDeque<(TaskId, State)>,
    silent: u32,
}

impl WatchState {
    /// Creates a watch that has not begun.
    pub fn new(subject: Subject) -> WatchState {
        WatchState {
            subject,
            cursor: None,
            news: VecDeque::new(),
            told: BTreeSet::new(),
            told_order: VecDeque::new(),
            silent: 0,
        }
    }

    /// Creates a watch that goes on behind an earlier one with this cursor. What that one has reported behind the cursor is reported
    /// again, and an ending from before it may be.
    pub fn resume(subject: Subject, cursor: WatchCursor) -> WatchState {
        WatchState { cursor: Some(cursor), ..WatchState::new(subject) }
    }

    /// Cursor behind all items that were taken in; absent before the first answer.
    pub fn cursor(&self) -> Option<&WatchCursor> {
        self.cursor.as_ref()
    }

    /// Whether all items have been taken out.
    pub fn is_told(&self) -> bool {
        self.news.is_empty()
    }

    /// The next call. After the first answer, it waits up to `wait_ms` for an event.
    pub fn request(&self, wait_ms: u64) -> Request {
        Request::Watch { subject: self.subject.clone(), cursor: self.cursor.clone(), wait_ms }
    }

    /// Takes the answer to the call.
    pub fn take(&mut self, watched: Watched) {
        let Watched { events, cursor, lagged, silent } = watched;
        self.cursor = Some(cursor);
        for event in events {
            if !is_ending(event.state) || self.is_news(event.id, event.state) {
                self.news.push_back(WatchNews::Event(event));
            }
        }
        if lagged {
            self.news.push_back(WatchNews::Lagged);
        }
        if silent != self.silent {
            self.silent = silent;
            self.news.push_back(WatchNews::Silent(silent));
        }
    }

    /// Removes and returns the oldest item.
    pub fn take_news(&mut self) -> Option<WatchNews> {
        self.news.pop_front()
    }

    /// Whether an ending is new. A completion overrides all other endings, so later ones from a node that lags behind are not.
    fn is_news(&mut self, id: TaskId, state: State) -> bool {
        if self.told.contains(&(id, State::Done)) || !self.told.insert((id, state)) {
            return false;
        }
        self.told_order.push_back((id, state));
        if self.told_order.len() > TOLD_MAX
            && let Some(oldest) = self.told_order.pop_front()
        {
            self.told.remove(&oldest);
        }
        true
    }
}

fn is_ending(state: State) -> bool {
    matches!(state, State::Done | State::Dead | State::Cancelled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use norn_wire::{NodeId, QueueName, watch::WatchPlace};

    fn event(number: u32, state: State) -> WatchEvent {
        let (id, queue) = (TaskId::new(1_700_000_000_000, number, 1, 7), QueueName::new("mail").unwrap());
        WatchEvent { id, queue, state, number: None, result: None, reason: None }
    }

    fn answer(number: u64, events: Vec<WatchEvent>) -> Watched {
        let place = WatchPlace { node: NodeId(1), start: 1, number, whole: vec![3].into() };
        Watched { events, cursor: WatchCursor { places: vec![place] }, lagged: false, silent: 0 }
    }

    fn drain(watch: &mut WatchState) -> Vec<WatchNews> {
        std::iter::from_fn(|| watch.take_news()).collect()
    }

    #[test]
    fn each_call_goes_on_where_the_last_answer_ended_and_each_ending_is_told_once() {
        let mut watch = WatchState::new(Subject::Queue(QueueName::new("mail").unwrap()));
        assert!(matches!(watch.request(5), Request::Watch { cursor: None, wait_ms: 5, .. }));
        let (ready, done) = (event(1, State::Ready), event(1, State::Done));
        watch.take(answer(3, vec![ready.clone(), done.clone(), done.clone()]));
        let cursor = answer(3, Vec::new()).cursor;
        assert!(matches!(watch.request(5), Request::Watch { cursor: Some(at), .. } if at == cursor));
        watch.take(answer(4, vec![done.clone(), ready.clone()]));
        let all = [&ready, &done, &ready].map(|event| WatchNews::Event(event.clone()));
        assert_eq!(drain(&mut watch), all, "a task may be ready again");
    }

    #[test]
    fn a_completion_that_stands_over_another_ending_is_told_and_the_other_one_not_behind_it() {
        let mut watch = WatchState::new(Subject::Queue(QueueName::new("mail").unwrap()));
        let endings = [State::Cancelled, State::Dead, State::Done].map(|state| event(1, state));
        let [cancelled, dead, done] = &endings;
        let answers = [cancelled, cancelled, dead, cancelled, done, dead, cancelled, done];
        answers.into_iter().for_each(|event| watch.take(answer(1, vec![event.clone()])));
        assert_eq!(drain(&mut watch), endings.clone().map(WatchNews::Event));
    }

    #[test]
    fn lag_comes_behind_what_is_known_and_silence_when_it_changes() {
        let mut watch = WatchState::new(Subject::Group(TaskId::MIN));
        let done = event(1, State::Done);
        watch.take(Watched { lagged: true, silent: 2, ..answer(1, vec![done.clone()]) });
        watch.take(Watched { silent: 2, ..answer(2, Vec::new()) });
        watch.take(answer(3, Vec::new()));
        let expected = [WatchNews::Event(done), WatchNews::Lagged, WatchNews::Silent(2), WatchNews::Silent(0)];
        assert_eq!(drain(&mut watch), expected);
    }

    #[test]
    fn a_watch_goes_on_at_the_cursor_of_an_earlier_one() {
        let subject = Subject::Group(TaskId::MIN);
        let mut first = WatchState::new(subject.clone());
        assert!(first.cursor().is_none());
        first.take(answer(3, vec![event(1, State::Done)]));
        assert!(!first.is_told());
        drain(&mut first);
        assert!(first.is_told());
        let cursor = first.cursor().unwrap().clone();
        let mut second = WatchState::resume(subject, cursor.clone());
        assert!(matches!(second.request(5), Request::Watch { cursor: Some(at), .. } if at == cursor));
        second.take(answer(4, vec![event(2, State::Done)]));
        assert_eq!(drain(&mut second), [WatchNews::Event(event(2, State::Done))]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut watch = WatchState::new(Subject::Group(TaskId::MIN));
        for number in 0..2 * TOLD_MAX as u32 {
            watch.take(answer(1, vec![event(number, State::Done)]));
        }
        assert_eq!((watch.told.len(), watch.told_order.len()), (TOLD_MAX, TOLD_MAX));
    }
}
