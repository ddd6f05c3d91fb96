//! Lengths and points of time in text.

use std::time::Duration;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Parses a duration: `250ms`, `10s`, `5m`, `1h`, `1h30m`.
fn duration(text: &str) -> Result<Duration, String> {
    let example = "a duration is, for example, 250ms, 10s, 5m or 1h30m";
    if text.starts_with('-') {
        return Err(format!("no duration is below 0; {example}"));
    }
    humantime::parse_duration(text).map_err(|error| format!("{error}; {example}"))
}

/// Parses a duration into whole milliseconds, rounded up so that a shorter one is not lost.
///
/// ```
/// use norn_client::api::duration_ms;
/// assert_eq!((duration_ms("1h30m"), duration_ms("1us")), (Ok(5_400_000), Ok(1)));
/// ```
pub fn duration_ms(text: &str) -> Result<u64, String> {
    let ms = duration(text)?.as_nanos().div_ceil(1_000_000);
    u64::try_from(ms).map_err(|_| "the duration is too long; even a delay is at most 10y".to_owned())
}

/// Parses an RFC 3339 time into milliseconds since the Unix epoch.
///
/// ```
/// assert_eq!(norn_client::api::instant_ms("2023-11-14T23:13:20+01:00"), Ok(1_700_000_000_000));
/// ```
pub fn instant_ms(text: &str) -> Result<u64, String> {
    let time = OffsetDateTime::parse(text, &Rfc3339)
        .map_err(|error| format!("{error}; a time is, for example, 2030-01-31T09:30:00Z"))?;
    u64::try_from(time.unix_timestamp_nanos().div_euclid(1_000_000))
        .map_err(|_| "the time is before 1970-01-01T00:00:00Z, the first that is taken".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let cases = [("250ms", 250), ("10s", 10_000), ("5m", 300_000), ("1h", 3_600_000), ("1h30m", 5_400_000)];
        for (text, ms) in cases {
            assert_eq!(duration_ms(text), Ok(ms), "{text}");
        }
        assert_eq!((duration_ms("0s"), duration_ms("1us")), (Ok(0), Ok(1)));
        for bad in ["", "10", "-1s", "s", "1x", "1.5.5s", "99999999999999999999s"] {
            assert!(duration_ms(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn instants() {
        assert_eq!(instant_ms("1970-01-01T00:00:01.5Z"), Ok(1_500));
        assert_eq!(instant_ms("2023-11-14T23:13:20+01:00"), Ok(1_700_000_000_000));
        for bad in ["", "tomorrow", "2023-11-14", "1969-12-31T23:59:59Z"] {
            assert!(instant_ms(bad).is_err(), "{bad}");
        }
    }

    /// Goal: a limit that is shown as ten years accepts ten years as typed.
    #[test]
    fn the_longest_delay_can_be_typed() {
        let typed = duration_ms("10y").unwrap();
        assert!(typed <= norn_wire::limits::DELAY_MS_MAX && duration_ms("3650d").unwrap() <= typed);
    }
}
