//! Why a node was not reached, or a connection to it ended, and whether the cause is lasting.

use crate::tls::{Date, now_s};
use quinn::ConnectionError;
use std::fmt;
use std::path::PathBuf;

/// Close code of a node: the certificate of the other side does not identify it.
pub const CLOSE_IDENTITY: u32 = 3;
/// Close code of a node: the two sides have no protocol version in common.
pub const CLOSE_VERSION: u32 = 8;

/// Offset of TLS alerts in QUIC's error codes.
const ALERTS: u64 = 0x100;
/// TLS alert `certificate_expired`, also for one that is not valid yet.
const EXPIRED: u64 = 45;
/// TLS alert `unknown_ca`.
const UNKNOWN_AUTHORITY: u64 = 48;
/// TLS alert `decrypt_error`: an authority with the name of the trusted one has another key.
const BAD_SIGNATURE: u64 = 51;
/// TLS alert `no_application_protocol`.
const NO_VERSION: u64 = 120;
/// Further TLS alerts about certificates, such as `bad_certificate`, and about denied access.
const OF_CERTIFICATES: [u64; 6] = [42, 43, 44, 46, 49, 116];

/// The files and the expiry that this side presents in a handshake, for error messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// File of the trusted authorities.
    pub authority: PathBuf,
    /// File of the own certificate.
    pub certificate: PathBuf,
    /// Last second of the own certificate.
    pub until: Date,
}

/// Why an attempt failed, or a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// Text for people to read.
    pub text: String,
    /// Whether further attempts fail too until an operator changes something.
    pub lasting: bool,
    /// Whether a node was heard.
    pub answered: bool,
}

impl Reason {
    /// A reason that may pass by itself. No node was heard.
    pub fn passing(text: impl fmt::Display) -> Reason {
        Reason { text: text.to_string(), lasting: false, answered: false }
    }

    /// A reason that may pass by itself, from a node that was heard.
    pub fn answered(text: impl fmt::Display) -> Reason {
        Reason { answered: true, ..Reason::passing(text) }
    }

    fn lasting(text: impl Into<String>) -> Reason {
        Reason { text: text.into(), lasting: true, answered: true }
    }

    /// Reason for the failure or end of a connection. The text is the same each time, whereas the libraries' own texts contain the
    /// current second.
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

/// Why this side refuses the node. The library's text holds the expiry of the node's certificate, and the current second, which is left
/// out.
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

/// Name of the node whose certificate does not match the requested name, from the library's text.
fn shown_name(words: &str) -> Option<&str> {
    let (_, presented) = words.split_once("only valid for ")?;
    let (before, _) = presented.split_once(".node.norn")?;
    before.rsplit(|character: char| !character.is_ascii_alphanumeric() && character != '-').next()
}

/// The seconds since 1970 that follow these words in a text.
fn date_behind(text: &str, words: &str) -> Option<Date> {
    let (_, behind) = text.split_once(words)?;
    let digits = behind.find(|character: char| !character.is_ascii_digit()).map_or(behind, |end| &behind[..end]);
    digits.parse().ok().map(Date)
}

/// Why the node refuses this side.
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
