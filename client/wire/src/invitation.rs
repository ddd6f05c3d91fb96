//! Invitation: what a new machine needs to become a member of a cluster.

use super::address::parse_address;
use super::ids::{ClusterId, ParseError};
use std::fmt;
use std::str::FromStr;

/// Prefix of an invitation's text.
const PREFIX: &str = "norn:";
/// Separator between cluster and addresses.
const AT: char = '@';
/// Most addresses in one invitation.
const ADDRESSES_MAX: usize = 64;

/// Names a cluster and its addresses. It is no secret: a machine is admitted by its certificate.
///
/// Its text is `norn:CLUSTER@HOST:PORT,HOST:PORT`. Addresses alone are a valid invitation too, to whatever cluster answers there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invitation {
    /// The cluster; `None` means any.
    pub cluster: Option<ClusterId>,
    /// Addresses of some members, at least one.
    pub addresses: Vec<String>,
}

impl fmt::Display for Invitation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(cluster) = self.cluster {
            write!(formatter, "{PREFIX}{cluster}{AT}")?;
        }
        formatter.write_str(&self.addresses.join(","))
    }
}

impl FromStr for Invitation {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (cluster, addresses) = match text.strip_prefix(PREFIX) {
            None => (None, text),
            Some(rest) => {
                let wrong = || ParseError(format!("a token is {PREFIX}CLUSTER{AT}HOST:PORT,..., not {text:?}"));
                let (cluster, addresses) = rest.split_once(AT).ok_or_else(wrong)?;
                (Some(cluster.parse().map_err(|_| wrong())?), addresses)
            }
        };
        let addresses: Vec<String> = addresses.split(',').map(|address| address.trim().to_owned()).collect();
        if addresses.len() > ADDRESSES_MAX {
            return Err(ParseError(format!("{ADDRESSES_MAX} addresses are enough, not {}", addresses.len())));
        }
        match addresses.iter().find(|address| parse_address(address).is_none()) {
            Some(address) => Err(ParseError(format!("an address is HOST:PORT, not {address:?}"))),
            None => Ok(Invitation { cluster, addresses }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_says_it_all() {
        let addresses = vec!["alpha.example.com:7400".to_owned(), "[::1]:7401".to_owned()];
        for cluster in [None, Some(ClusterId(7))] {
            let invitation = Invitation { cluster, addresses: addresses.clone() };
            assert_eq!(invitation.to_string().parse(), Ok(invitation));
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        let many = vec!["h:1"; 65].join(",");
        for wrong in ["", "h", "h:0", "h:1,", "norn:", "norn:h:1", "norn:1234@h:1", "norn:@h:1", &many] {
            assert!(wrong.parse::<Invitation>().is_err(), "{wrong:?}");
        }
    }
}
