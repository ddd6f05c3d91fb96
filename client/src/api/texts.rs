//! Values in text, as they stand in queries and headers.

use super::InputError;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use norn_wire::codec::{decode_value, write_value_compact};
use norn_wire::{Acks, WatchCursor};

/// Longest text of a cursor: the places of as many nodes as one may have, with room for their encoding.
const CURSOR_BYTES_MAX: usize = 512 << 10;

/// Parses the durability of a write: `one`, `quorum`, `all`, or a number of replicas.
///
/// ```
/// use norn_client::wire::Acks;
/// assert_eq!(norn_client::api::acks("all"), Ok(Acks::All));
/// assert!(norn_client::api::acks("most").is_err());
/// ```
pub fn acks(text: &str) -> Result<Acks, InputError> {
    text.parse().map_err(InputError)
}

/// Formats the cursor of a watch as text without spaces, of the URL-safe alphabet of base64. Programs pass it on as it is.
///
/// ```
/// use norn_client::api::{watch_cursor, watch_cursor_text};
/// use norn_client::wire::WatchCursor;
/// let cursor = WatchCursor::default();
/// assert_eq!(watch_cursor(&watch_cursor_text(&cursor)), Ok(cursor));
/// ```
#[must_use]
pub fn watch_cursor_text(cursor: &WatchCursor) -> String {
    let mut bytes = Vec::new();
    write_value_compact(cursor, &mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Parses the cursor of a watch. Whether it fits the watch, the nodes decide.
pub fn watch_cursor(text: &str) -> Result<WatchCursor, InputError> {
    let wrong =
        || InputError("this is no cursor of a watch; give the one of the last answer, or none to begin".to_owned());
    if text.len() > CURSOR_BYTES_MAX {
        return Err(wrong());
    }
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| wrong())?;
    decode_value(&bytes).map_err(|_| wrong())
}
