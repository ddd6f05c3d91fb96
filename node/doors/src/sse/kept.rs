//! Cursors of watches as ids of events, and those that are too long for it.

use crate::problem::Problem;
use norn_client::api::{watch_cursor, watch_cursor_text};
use norn_wire::WatchCursor;
use norn_wire::limits::WATCH_KEPT_MS;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest cursor that stands in an event itself.
const TEXT_BYTES_MAX: usize = 2 << 10;
/// How long a cursor is kept: as long as nodes keep the events behind it.
const KEPT: Duration = Duration::from_millis(WATCH_KEPT_MS);
/// Memory for cursors. The oldest give way.
const KEPT_BYTES_MAX: usize = 8 << 20;
/// First character of a handle. No cursor begins so.
const HANDLE: char = '~';

/// Long cursors, by handles that stand for them. A handle that is not known any more, or is of another node, leads nowhere: its watch
/// begins anew.
#[derive(Debug, Default)]
pub struct Kept(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// The oldest first.
    cursors: VecDeque<(u128, Instant, String)>,
    bytes: usize,
}

impl Table {
    fn forget(&mut self, now: Instant) {
        let is_over = |(_, since, _): &(u128, Instant, String)| now.saturating_duration_since(*since) > KEPT;
        while self.bytes > KEPT_BYTES_MAX || self.cursors.front().is_some_and(is_over) {
            match self.cursors.pop_front() {
                Some((_, _, text)) => self.bytes -= text.len(),
                None => return,
            }
        }
    }
}

impl Kept {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A text for a cursor: its own if it is short, else a handle.
    pub fn keep(&self, cursor: &WatchCursor) -> String {
        let text = watch_cursor_text(cursor);
        if text.len() <= TEXT_BYTES_MAX {
            return text;
        }
        let (handle, now) = (rand::random::<u128>(), Instant::now());
        let mut table = self.table();
        table.bytes += text.len();
        table.cursors.push_back((handle, now, text));
        table.forget(now);
        format!("{HANDLE}{handle:032x}")
    }

    /// The cursor of a text; `None` for a handle that is not known.
    pub fn find(&self, text: &str) -> Result<Option<WatchCursor>, Problem> {
        let wrong = |error: norn_client::api::InputError| Problem::invalid(format!("cursor: {}", error.0));
        let Some(handle) = text.strip_prefix(HANDLE) else { return watch_cursor(text).map(Some).map_err(wrong) };
        let handle = u128::from_str_radix(handle, 16)
            .map_err(|_| Problem::invalid("cursor: this is no id of an event; give that of the last one"))?;
        let mut table = self.table();
        table.forget(Instant::now());
        let kept = table.cursors.iter().find(|(known, _, _)| *known == handle).map(|(_, _, text)| text.clone());
        drop(table);
        kept.map(|text| watch_cursor(&text).map_err(wrong)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use norn_wire::NodeId;
    use norn_wire::watch::WatchPlace;

    fn cursor(nodes: u64) -> WatchCursor {
        let place =
            |node: u64| WatchPlace { node: NodeId(node.into()), start: 1, number: node, whole: vec![7; 64].into() };
        WatchCursor { places: (0..nodes).map(place).collect() }
    }

    #[test]
    fn a_short_cursor_is_its_own_text_and_a_long_one_is_kept() {
        let kept = Kept::default();
        let (short, long) = (cursor(3), cursor(200));
        let (text, handle) = (kept.keep(&short), kept.keep(&long));
        assert!(text.len() <= TEXT_BYTES_MAX && !text.starts_with(HANDLE));
        assert_eq!(handle.len(), 33);
        assert_eq!(kept.find(&text).unwrap(), Some(short));
        assert_eq!(kept.find(&handle).unwrap(), Some(long));
        assert_eq!(Kept::default().find(&handle).unwrap(), None, "it is of another node");
        for wrong in ["~", "~x", "no cursor", "%"] {
            assert_eq!(kept.find(wrong).unwrap_err().code, "invalid", "{wrong}");
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let kept = Kept::default();
        let long = cursor(500);
        let first = kept.keep(&long);
        let bytes = watch_cursor_text(&long).len();
        for _ in 0..KEPT_BYTES_MAX / bytes + 1 {
            kept.keep(&long);
        }
        assert!(kept.table().bytes <= KEPT_BYTES_MAX);
        assert_eq!(kept.find(&first).unwrap(), None, "the oldest gives way");
    }
}
