//! Why a node was not reached, or a connection to it ended, and whether that passes by itself.

use crate::tls::{Date, now_s};
use quinn::ConnectionError;
use std::fmt;
use std::path::PathBuf;

/// A node closes so where the certificate of the other side does not say who that is.
pub const CLOSE_IDENTITY: u32 = 3;
/// A node closes so where both sides have no protocol version in common.
pub const CLOSE_VERSION: u32 = 8;

/// QUIC's codes of the alerts of TLS begin here.
const ALERTS: u64 = 0x100;
/// Alert of TLS: `certificate_expired`, which is also given for one that is not valid yet.
const EXPIRED: u64 = 45;
/// Alert of TLS: `unknown_ca`.
const UNKNOWN_AUTHORITY: u64 = 48;
/// Alert of TLS: `decrypt_error`. An authority that is called like the trusted one has another key.
const BAD_SIGNATURE: u64 = 51;
/// Alert of TLS: `no_application_protocol`.
const NO_VERSION: u64 = 120;
/// Other alerts of TLS that are about certificates, such as `bad_certificate`, and of access that is denied.
const OF_CERTIFICATES: [u64; 6] = [42, 43, 44, 46, 49, 116];

/// What this side shows in a handshake, for the words of a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// File of the authorities that are trusted.
    pub authority: PathBuf,
    /// File of the own certificate.
    pub certificate: PathBuf,
    /// Its last second.
    pub until: Date,
}

/// Why an attempt failed, or a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// For people.
    pub text: String,
    /// Another attempt fails as well, until an operator changes something.
    pub lasting: bool,
    /// A node was heard.
    pub answered: bool,
}

impl Reason {
    /// One that may pass by itself. No node was heard.
    pub fn passing(text: impl fmt::Display) -> Reason {
        Reason { text: text.to_string(), lasting: false, answered: false }
    }

    /// One that may pass by itself, where a node was heard.
    pub fn answered(text: impl fmt::Display) -> Reason {
        Reason { answered: true, ..Reason::passing(text) }
    }

    fn lasting(text: impl Into<String>) -> Reason {
        Reason { text: text.into(), lasting: true, answered: true }
    }

    /// Of a connection that failed or ended. The text is the same each time: the libraries' own names the present second.
    pub fn of(error: &ConnectionError, shown: Option<&Shown>) -> Reason {
        match error {
            ConnectionError::TransportError(error) => {
                let alert = u64::from(error.code).wrapping_sub(ALERTS);
                refusing(alert, &error.reason, shown).map_or_else(|| Reason::answered(error), Reason::lasting)
            }
            ConnectionError::ConnectionClosed(close) => {
                let alert = u64::from(close.error_code).wrapping_sub(ALERTS);
                refused(alert, shown).map_or_else(|| Reason::answered(error), Reason::lasting)
            }
            ConnectionError::ApplicationClosed(close)
                if [CLOSE_IDENTITY, CLOSE_VERSION].map(Into::into).contains(&close.error_code) =>
            {
                Reason::lasting(format!("the node refuses: {}", String::from_utf8_lossy(&close.reason)))
            }
            ConnectionError::TimedOut => Reason::passing("no answer in time"),
            other @ (ConnectionError::LocallyClosed | ConnectionError::CidsExhausted) => Reason::passing(other),
            other @ (ConnectionError::ApplicationClosed(_)
            | ConnectionError::VersionMismatch
            | ConnectionError::Reset) => Reason::answered(other),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

/// What this side has against the other one. The library's words hold the end of the certificate that the node has shown, and the
/// present second, which is left out.
pub(super) fn refusing(alert: u64, words: &str, shown: Option<&Shown>) -> Option<String> {
    let trusted = shown.map_or_else(|| "trusted here".to_owned(), |shown| format!("in {}", shown.authority.display()));
    Some(match alert {
        EXPIRED => {
            let what = match (date_behind(words, "not valid after "), date_behind(words, "not valid before ")) {
                (Some(until), _) => format!("has expired on {until}"),
                (None, Some(from)) => format!("is valid from {from} on"),
                (None, None) => "has expired or is not valid yet".to_owned(),
            };
            format!(
                "the node shows a certificate that {what}, by the clock of this machine; renew it there with \
                 `norn cert node NAME --renew`, or set the clock"
            )
        }
        UNKNOWN_AUTHORITY | BAD_SIGNATURE => {
            format!(
                "the node's certificate is not of the authority {trusted}: the node is of another cluster, or one of both \
                 sides has old files"
            )
        }
        NO_VERSION => no_version(),
        alert if OF_CERTIFICATES.contains(&alert) => match shown_name(words) {
            Some(name) => format!(
                "node {name} answers there, and its certificate is not one for this address: name that of the node that is meant, or \
                 make the certificate anew with `norn cert node {name} --host HOST`"
            ),
            None => "the node's certificate is not one for this address, or none of a node; make it anew with \
                     `norn cert node NAME --host HOST`"
                .to_owned(),
        },
        _ => return None,
    })
}

/// Which node's certificate it is that is not one for the name that was asked for, in the library's words.
fn shown_name(words: &str) -> Option<&str> {
    let (_, presented) = words.split_once("only valid for ")?;
    let (before, _) = presented.split_once(".node.norn")?;
    before.rsplit(|character: char| !character.is_ascii_alphanumeric() && character != '-').next()
}

/// The second since 1970 that stands behind some words.
fn date_behind(text: &str, words: &str) -> Option<Date> {
    let (_, behind) = text.split_once(words)?;
    let digits = behind.find(|character: char| !character.is_ascii_digit()).map_or(behind, |end| &behind[..end]);
    digits.parse().ok().map(Date)
}

/// What the other side has against this one.
fn refused(alert: u64, shown: Option<&Shown>) -> Option<String> {
    let certificate = shown.map_or_else(
        || "the certificate of this side".to_owned(),
        |shown| format!("the certificate {}", shown.certificate.display()),
    );
    Some(match alert {
        EXPIRED if shown.is_some_and(|shown| shown.until.0 < now_s()) => {
            let until = shown.map_or_else(String::new, |shown| format!(" on {}", shown.until));
            format!(
                "the node refuses {certificate}, which has expired{until}; make a new one with `norn cert`, with `--renew`"
            )
        }
        EXPIRED => {
            let until = shown.map_or_else(String::new, |shown| format!(" (it is valid until {})", shown.until));
            format!("the node refuses {certificate}: by the clock there it has expired or is not valid yet{until}")
        }
        UNKNOWN_AUTHORITY | BAD_SIGNATURE => {
            format!("the node refuses {certificate}: it is of an authority that the node does not trust")
        }
        NO_VERSION => no_version(),
        alert if OF_CERTIFICATES.contains(&alert) => format!("the node refuses {certificate}"),
        _ => return None,
    })
}

fn no_version() -> String {
    "both sides speak no common version of the protocol; upgrade the program on the older of the two".to_owned()
}
