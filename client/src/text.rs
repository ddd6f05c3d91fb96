//! Values in words, for people. Shared by the library and the command line.

use std::borrow::Cow;

const SECOND_MS: u64 = 1_000;
const MINUTE_MS: u64 = 60 * SECOND_MS;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

/// Formats a duration in at most two units.
pub fn duration(ms: u64) -> String {
    let two = |large: u64, large_unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large}{large_unit}"),
        small => format!("{large}{large_unit} {small}{small_unit}"),
    };
    match ms {
        0..SECOND_MS => format!("{ms}ms"),
        SECOND_MS..10_000 if ms % SECOND_MS / 100 != 0 => format!("{}.{}s", ms / SECOND_MS, ms % SECOND_MS / 100),
        SECOND_MS..MINUTE_MS => format!("{}s", ms / SECOND_MS),
        MINUTE_MS..HOUR_MS => two(ms / MINUTE_MS, "m", ms % MINUTE_MS / SECOND_MS, "s"),
        HOUR_MS..DAY_MS => two(ms / HOUR_MS, "h", ms % HOUR_MS / MINUTE_MS, "m"),
        DAY_MS.. => two(ms / DAY_MS, "d", ms % DAY_MS / HOUR_MS, "h"),
    }
}

/// Formats a time relative to now: `in 9.8s`, `3s ago`.
pub fn relative(now_ms: u64, then_ms: u64) -> String {
    match then_ms.checked_sub(now_ms) {
        Some(0) => "now".to_owned(),
        Some(ahead_ms) => format!("in {}", duration(ahead_ms)),
        None => format!("{} ago", duration(now_ms - then_ms)),
    }
}

/// Characters of the general category Cf, and the separators of lines and paragraphs: invisible by themselves, they can reverse the order
/// of the text beside them, or hide in a name.
const FORMATS: [(char, char); 21] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{180e}', '\u{180e}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{2064}'),
    ('\u{2066}', '\u{206f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{fff9}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0001}', '\u{e0001}'),
    ('\u{e0020}', '\u{e007f}'),
];

/// Whether a character is invisible by itself.
pub fn is_format(character: char) -> bool {
    !character.is_ascii() && FORMATS.iter().any(|(first, last)| (*first..=*last).contains(&character))
}

/// Escapes the odd characters of a text.
pub fn escaped(text: &str, is_odd: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&is_odd) {
        return text.into();
    }
    let clean = text.chars().fold(String::with_capacity(text.len()), |mut clean, character| {
        match is_odd(character) {
            true => clean.extend(character.escape_default()),
            false => clean.push(character),
        }
        clean
    });
    clean.into()
}

/// Escapes text of another client: makes everything visible that could control a terminal.
pub fn clean(text: &str) -> String {
    escaped(text, |character| character.is_control() || is_format(character)).into_owned()
}

/// `1 task`, `2 tasks`.
pub fn number(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// Formats the number of partitions that could not be asked.
pub fn unasked(partitions: u32) -> String {
    format!("{} could not be asked", number(u64::from(partitions), "partition"))
}
