//! Formats values for people.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
pub use norn_client::text::{clean, duration, number, relative, unasked};
use norn_client::text::{escaped, is_format};
use std::borrow::Cow;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Formats a time in RFC 3339.
pub fn instant(ms: u64) -> String {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000)
        .ok()
        .and_then(|time| time.format(&Rfc3339).ok())
        .unwrap_or_else(|| format!("{ms} ms since 1970"))
}

/// Escapes text of several lines in the same way.
pub fn clean_lines(text: &str) -> String {
    let is_odd = |character: char| character.is_control() && !matches!(character, '\n' | '\t') || is_format(character);
    escaped(text, is_odd).into_owned()
}

/// Escapes invisible characters in text for a terminal, which may contain colours and whose parts were escaped already.
pub(super) fn without_formats(text: &str) -> Cow<'_, str> {
    escaped(text, is_format)
}

/// Formats bytes in full: as text if printable, with invisible characters escaped, otherwise in base64.
pub fn data(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(|character| character.is_control() && !matches!(character, '\n' | '\t')) => {
            clean_lines(text)
        }
        _ => format!("base64:{}", STANDARD.encode(bytes)),
    }
}

/// Shown in place of data that every replica that answered has lost.
pub const LOST: &str = "(lost)";

/// Formats bytes for one table cell: their beginning if printable, otherwise their number.
pub fn preview(bytes: &[u8], characters_max: usize) -> String {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return format!("<{}>", size(bytes.len()));
    };
    let mut characters = text.chars();
    let start: String = characters.by_ref().take(characters_max).collect();
    let more = if characters.next().is_some() { "…" } else { "" };
    format!("{}{more}", clean(&start))
}

/// Wraps words into lines of a limited length; a longer word gets a longer line.
pub fn wrapped(text: &str, characters_max: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= characters_max => {
                *line += &format!(" {word}")
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Formats a number of bytes.
pub fn size(bytes: usize) -> String {
    match bytes {
        1 => "1 byte".to_owned(),
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_have_at_most_two_units() {
        let cases = [
            (0, "0ms"),
            (250, "250ms"),
            (1_000, "1s"),
            (9_870, "9.8s"),
            (30_000, "30s"),
            (59_999, "59s"),
            (60_000, "1m"),
            (303_000, "5m 3s"),
            (3_600_000, "1h"),
            (90_000_000, "1d 1h"),
        ];
        for (ms, text) in cases {
            assert_eq!(duration(ms), text);
        }
        assert_eq!(relative(1_000, 10_800), "in 9.8s");
        assert_eq!(relative(4_000, 1_000), "3s ago");
        assert_eq!(relative(5, 5), "now");
        assert!(!duration(u64::MAX).is_empty());
    }

    #[test]
    fn instants_are_rfc_3339() {
        assert_eq!(instant(0), "1970-01-01T00:00:00Z");
        assert_eq!(instant(1_700_000_000_500), "2023-11-14T22:13:20.5Z");
        assert_eq!(instant(u64::MAX), "18446744073709551615 ms since 1970");
    }

    #[test]
    fn nothing_that_steers_a_terminal_gets_through() {
        assert_eq!(clean("a\x1b[31mb"), "a\\u{1b}[31mb");
        assert_eq!(data(b"a\nb"), "a\nb");
        assert_eq!(data(b"\x1b[2J"), "base64:G1sySg==");
        assert_eq!(data(&[0xff, 0]), "base64:/wA=");
        assert_eq!(preview(&[0xff, 0], 9), "<2 bytes>");
        assert_eq!(preview(b"a\nbcdef", 4), "a\\nbc…");
        assert_eq!(preview("ééé".as_bytes(), 3), "ééé");
        let hidden = "a\u{202e}b\u{2066}\u{200f}\u{feff}\u{61c}\u{ad}\u{e0041}é😀";
        let seen = "a\\u{202e}b\\u{2066}\\u{200f}\\u{feff}\\u{61c}\\u{ad}\\u{e0041}é😀";
        assert_eq!(clean(hidden), seen);
        assert_eq!((data(hidden.as_bytes()), preview(hidden.as_bytes(), 99)), (seen.to_owned(), seen.to_owned()));
        assert_eq!(clean_lines("a\n\tb\x1b\u{200b}"), "a\n\tb\\u{1b}\\u{200b}");
        assert_eq!(without_formats("\x1b[31ma\u{202e}\x1b[0m"), "\x1b[31ma\\u{202e}\x1b[0m");
    }

    #[test]
    fn words_go_on_in_the_next_line() {
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        assert_eq!(wrapped("one two three", 13), ["one two three"]);
        assert_eq!(wrapped("one two three", 2), ["one", "two", "three"]);
    }

    #[test]
    fn sizes_and_numbers() {
        assert_eq!((size(1), size(17), size(1536)), ("1 byte".into(), "17 bytes".into(), "1.5 KiB".into()));
        assert_eq!((number(1, "task"), number(0, "task")), ("1 task".into(), "0 tasks".into()));
    }
}
