//! Periods of validity of certificates.

use rustls::pki_types::CertificateDer;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};
use time::OffsetDateTime;
use x509_parser::certificate::X509CertificateParser;
use x509_parser::nom::Parser;

/// The period in which a certificate is valid: seconds since 1970, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub from_s: i64,
    /// The last second.
    pub until_s: i64,
}

impl Validity {
    /// Reads the period from a certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Validity, String> {
        let mut parser = X509CertificateParser::new().with_deep_parse_extensions(false);
        let (_, parsed) = parser.parse(certificate.as_ref()).map_err(|error| error.to_string())?;
        let validity = parsed.validity();
        Ok(Validity { from_s: validity.not_before.timestamp(), until_s: validity.not_after.timestamp() })
    }

    /// The intersection of two periods.
    #[must_use]
    pub fn and(self, other: Validity) -> Validity {
        Validity { from_s: self.from_s.max(other.from_s), until_s: self.until_s.min(other.until_s) }
    }
}

/// A time in seconds since 1970, displayed for people to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Date(pub i64);

impl fmt::Display for Date {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(date) = OffsetDateTime::from_unix_timestamp(self.0) else {
            return write!(formatter, "second {} of 1970", self.0);
        };
        let (year, month, day) = date.to_calendar_date();
        write!(formatter, "{year:04}-{:02}-{day:02} {:02}:{:02} UTC", u8::from(month), date.hour(), date.minute())
    }
}

/// The current second by the machine's clock.
pub(crate) fn now_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
