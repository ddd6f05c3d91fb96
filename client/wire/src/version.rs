//! Versions of the protocol, and how two sides agree on one.
//!
//! Every connection has one version: the highest that both sides speak. The TLS handshake (ALPN) settles it before the first frame: the
//! caller offers names of application protocols, and the other side takes the best. So both sides learn it at the same moment, and
//! nothing in between can lower it. A program from before there was a choice knows one name and takes part unchanged.

use std::fmt;

/// Application protocol of version 2, the only version when it got this name, and no longer spoken. All sides offer and accept it for
/// ever: two sides without a common version meet there, so that the refusal can be sent.
const FIRST: &[u8] = b"norn/1";
/// Prefix of the names of later versions.
const PREFIX: &str = "norn/";
/// Version that [`FIRST`] names.
const FIRST_VERSION: u8 = 2;

/// A range of versions, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    /// The oldest.
    pub oldest: u8,
    /// The newest.
    pub newest: u8,
}

impl Versions {
    /// First version with [`crate::codec::Kind::Envelope`] between nodes.
    pub const ENVELOPES: u8 = 4;
    /// First version with transactions that reach several partitions.
    pub const ACROSS: u8 = 5;
    /// Versions that this build speaks.
    pub const SPOKEN: Versions = Versions { oldest: 3, newest: 5 };

    /// Returns the versions that this build speaks, up to `newest`.
    #[must_use]
    pub fn up_to(newest: u8) -> Versions {
        let Versions { oldest, newest: most } = Versions::SPOKEN;
        Versions { oldest, newest: newest.clamp(oldest, most) }
    }

    /// Whether the range contains a version.
    #[must_use]
    pub fn contains(self, version: u8) -> bool {
        (self.oldest..=self.newest).contains(&version)
    }

    /// Returns the highest version in both ranges.
    #[must_use]
    pub fn common(self, other: Versions) -> Option<u8> {
        let newest = self.newest.min(other.newest);
        (newest >= self.oldest.max(other.oldest)).then_some(newest)
    }

    /// Returns the names of application protocols, best first.
    #[must_use]
    pub fn protocols(self) -> Vec<Vec<u8>> {
        let named = |version: u8| format!("{PREFIX}{version}").into_bytes();
        let later = self.oldest.max(FIRST_VERSION + 1)..=self.newest;
        later.rev().map(named).chain([FIRST.to_vec()]).collect()
    }

    /// Returns the version of a connection from the name of its application protocol, or `None` for a foreign name.
    #[must_use]
    pub fn of_protocol(protocol: &[u8]) -> Option<u8> {
        if protocol == FIRST {
            return Some(FIRST_VERSION);
        }
        let number = std::str::from_utf8(protocol).ok()?.strip_prefix(PREFIX)?;
        number.parse().ok().filter(|version| *version > FIRST_VERSION)
    }

    /// Returns the message for two sides without a common version: why, and which side to upgrade.
    #[must_use]
    pub fn refusal(self, other: Versions) -> String {
        let upgrade = if other.newest < self.oldest { "the other side" } else { "this side" };
        format!(
            "no common protocol version: this side speaks {self}, the other side {other}; upgrade the program on {upgrade}"
        )
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Versions { oldest, newest } if oldest == newest => write!(formatter, "{oldest}"),
            Versions { oldest, newest } => write!(formatter, "{oldest} to {newest}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(oldest: u8, newest: u8) -> Versions {
        Versions { oldest, newest }
    }

    /// TLS's choice: the first of the server's names that the client offers too.
    fn handshake(client: Versions, server: Versions) -> Option<u8> {
        let offered = client.protocols();
        let taken = server.protocols().into_iter().find(|name| offered.contains(name))?;
        Versions::of_protocol(&taken)
    }

    #[test]
    fn names_of_protocols_stay_as_they_are() {
        let names = |versions: Versions| {
            versions.protocols().iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(range(2, 2)), ["norn/1"]);
        assert_eq!(names(range(2, 4)), ["norn/4", "norn/3", "norn/1"]);
        assert_eq!(names(range(4, 5)), ["norn/5", "norn/4", "norn/1"]);
        for foreign in ["norn/2", "norn/0", "norn/", "norn/x", "h3", "norn/300"] {
            assert_eq!(Versions::of_protocol(foreign.as_bytes()), None, "{foreign}");
        }
    }

    #[test]
    fn a_cap_leaves_the_oldest_version() {
        assert_eq!(Versions::up_to(4), range(3, 4));
        assert_eq!(Versions::up_to(3), range(3, 3));
        assert_eq!(Versions::up_to(0), range(3, 3));
        assert_eq!(Versions::up_to(u8::MAX), Versions::SPOKEN);
    }

    #[test]
    fn whoever_is_too_old_is_told_to_upgrade() {
        let (new, old) = (range(4, 6), range(2, 3));
        assert_eq!(new.common(old), None);
        assert!(
            new.refusal(old)
                .contains("this side speaks 4 to 6, the other side 2 to 3; upgrade the program on the other")
        );
        assert!(old.refusal(new).contains("upgrade the program on this side"));
    }

    proptest! {
        /// The handshake finds the highest common version; without one, both sides meet in the first.
        #[test]
        fn a_handshake_finds_the_highest_common_version(a in 2u8..9, b in 0u8..4, c in 2u8..9, d in 0u8..4) {
            let (client, server) = (range(a, a + b), range(c, c + d));
            prop_assert_eq!(handshake(client, server), client.common(server).or(Some(FIRST_VERSION)));
            prop_assert_eq!(client.common(server), server.common(client));
        }
    }
}
