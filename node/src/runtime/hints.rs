//! Addresses of peers that an operator gives: after all nodes have moved, the addresses in the member list are stale, and no majority
//! can be reached to change it.
//!
//! A hint only says where to dial: the handshake shows which node is there. It takes precedence over the address that the member list
//! had when the node started. Any other address in a later list is newer, and takes precedence over the hint.

use norn_engine::Node;
use norn_wire::address::parse_address;
use norn_wire::membership::Member;
use norn_wire::{NodeId, membership::Roster};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::str::FromStr;

/// Fewest characters of an id prefix that identify a node.
const PREFIX_CHARACTERS_MIN: usize = 4;

/// A peer's address as given: `NODE=HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerAddress {
    /// A name, or the beginning of an id.
    node: String,
    address: String,
}

impl FromStr for PeerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = |why: &str| format!("NODE=HOST:PORT is wanted, not {text:?}: {why}");
        // An address never contains this character, but a name may.
        let (node, address) = text.rsplit_once('=').ok_or_else(|| wanted("it names no node"))?;
        let (node, address) = (node.trim(), address.trim());
        if node.is_empty() {
            return Err(wanted("it names no node"));
        }
        let parsed = parse_address(address)
            .ok_or_else(|| wanted("the address is a host, a colon and a port above 0, IPv6 in brackets"))?;
        if parsed.host.parse().is_ok_and(|ip: IpAddr| ip.is_unspecified()) {
            return Err(wanted("it names every address of a machine, and others reach none by it"));
        }
        Ok(PeerAddress { node: node.to_owned(), address: address.to_owned() })
    }
}

/// Parses `NODE=HOST:PORT,...`.
pub fn parse_peers(text: &str) -> Result<Vec<PeerAddress>, String> {
    text.split(',').map(str::trim).filter(|piece| !piece.is_empty()).map(str::parse).collect()
}

/// Why a given address is no hint.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum HintError {
    /// The node has no cluster yet, so it knows no peers.
    #[error(
        "peer {0}: this node has no cluster yet, and so no peers; `--join` makes it a member of one, and `norn cluster init` founds one"
    )]
    NoCluster(String),
    /// No member of this name or id.
    #[error("peer {node}: this node knows no member {node:?}; its peers are {known}")]
    Unknown {
        /// The given name or id.
        node: String,
        /// Names of peers.
        known: String,
    },
    /// More than one member matches.
    #[error("peer {0}: the ids of several members begin so; give more of it")]
    Several(String),
    /// The node itself.
    #[error("peer {0}: that is this node itself; where it is reached is said with --advertise")]
    Own(String),
    /// Two addresses for one peer.
    #[error("peer {0} is given twice")]
    Twice(String),
}

#[derive(Debug, Clone)]
struct Hint {
    address: String,
    /// The address in the member list when the node started.
    listed: String,
}

/// Addresses of peers that an operator gave.
#[derive(Debug, Clone, Default)]
pub struct Hints(BTreeMap<NodeId, Hint>);

impl Hints {
    /// Hints from the given addresses, for a node whose log is replayed. Addresses from a flag are meant for this very start, so an
    /// unknown peer is an error. A file or a variable may be older than the current cluster, so there an unknown peer is only a
    /// warning.
    pub fn of(given: &[PeerAddress], is_flag: bool, node: &Node, own: NodeId) -> Result<Hints, HintError> {
        match given {
            [] => Ok(Hints::default()),
            [first, ..] if node.genesis().is_none() => {
                passed_over(HintError::NoCluster(first.node.clone()), is_flag).map(|()| Hints::default())
            }
            _ => Hints::among(given, is_flag, node.roster(), own),
        }
    }

    fn among(given: &[PeerAddress], is_flag: bool, roster: &Roster, own: NodeId) -> Result<Hints, HintError> {
        let mut hints = Hints::default();
        for PeerAddress { node, address } in given {
            let member = match find(roster, node, own) {
                Ok(member) => member,
                Err(error) => {
                    passed_over(error, is_flag)?;
                    continue;
                }
            };
            if member.node == own {
                return Err(HintError::Own(node.clone()));
            }
            let hint = Hint { address: address.clone(), listed: member.address.clone() };
            if hints.0.insert(member.node, hint).is_some() {
                return Err(HintError::Twice(node.clone()));
            }
        }
        Ok(hints)
    }

    /// Addresses at which a member may be, the most likely first.
    pub fn addresses(&self, member: &Member) -> Vec<String> {
        let listed = member.address.clone();
        match self.0.get(&member.node) {
            None => vec![listed],
            Some(hint) if hint.address == listed => vec![listed],
            Some(hint) if hint.listed == listed => vec![hint.address.clone(), listed],
            Some(hint) => vec![listed, hint.address.clone()],
        }
    }
}

/// Warns of an address that names no member, or fails if it was given by a flag.
fn passed_over(error: HintError, is_flag: bool) -> Result<(), HintError> {
    if is_flag {
        return Err(error);
    }
    tracing::warn!(reason = %error, "an address of a peer in the settings is passed over");
    Ok(())
}

/// The member with this name, or with this id prefix; a member that is gone only if no other matches.
fn find<'a>(roster: &'a Roster, text: &str, own: NodeId) -> Result<&'a Member, HintError> {
    let members = || roster.members.values();
    let named = |member: &&Member| member.name == text;
    if let Some(member) = members().filter(|member| member.state.is_present()).find(named) {
        return Ok(member);
    }
    let begins = |member: &&Member| text.len() >= PREFIX_CHARACTERS_MIN && member.node.to_string().starts_with(text);
    match members().filter(begins).collect::<Vec<_>>()[..] {
        [member] => return Ok(member),
        [] => {}
        _ => return Err(HintError::Several(text.to_owned())),
    }
    members().find(named).ok_or_else(|| {
        let peers = members().filter(|member| member.state.is_present() && member.node != own);
        let known: Vec<&str> = peers.map(|member| member.name.as_str()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        HintError::Unknown { node: text.to_owned(), known }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use norn_wire::membership::MemberState;

    const OWN: NodeId = NodeId(0xaaaa_0000_0000_0000_0000_0000_0000_0001);

    fn member(node: u128, name: &str, address: &str, state: MemberState) -> Member {
        let (name, address) = (name.to_owned(), address.to_owned());
        Member { node: NodeId(node), incarnation: 1, name, address, zone: String::new(), weight: 1, state }
    }

    fn roster() -> Roster {
        let members = [
            member(OWN.0, "n1", "n1:1", MemberState::Up),
            member(0xbbbb << 112, "n2", "n2:1", MemberState::Up),
            member(0xcccc << 112, "n3", "n3:1", MemberState::Gone),
            member((0xcccc << 112) + 1, "n3", "n3:1", MemberState::Joining),
        ];
        Roster { version: 3, members: (0..).zip(members).collect(), policies: BTreeMap::new() }
    }

    fn hints(text: &str) -> Result<Hints, HintError> {
        Hints::among(&parse_peers(text).unwrap(), true, &roster(), OWN)
    }

    #[test]
    fn forms_that_are_no_peer_are_refused() {
        let read = parse_peers(" n2 = h:1, a=b=[::1]:2,").unwrap();
        let pairs: Vec<(&str, &str)> = read.iter().map(|peer| (peer.node.as_str(), peer.address.as_str())).collect();
        assert_eq!(pairs, [("n2", "h:1"), ("a=b", "[::1]:2")]);
        assert!(parse_peers("").unwrap().is_empty());
        for bad in ["n2", "n2=", "=h:1", "n2=h", "n2=h:0", "n2=:1", "n2=::1:7", "n2=0.0.0.0:1", "n2=[::]:1"] {
            assert!(parse_peers(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_hint_is_for_a_member_that_is_known_and_another() {
        let fails = |text: &str| hints(text).unwrap_err();
        assert_eq!(fails("n1=h:1"), HintError::Own("n1".to_owned()));
        assert_eq!(fails("n4=h:1"), HintError::Unknown { node: "n4".to_owned(), known: "n2, n3".to_owned() });
        assert_eq!(fails("n2=h:1,bbbb=h:2"), HintError::Twice("bbbb".to_owned()));
        assert_eq!(fails("cccc=h:1"), HintError::Several("cccc".to_owned()));
        let of_name = hints("n3=h:1").unwrap();
        assert_eq!(
            of_name.0.keys().collect::<Vec<_>>(),
            [&NodeId((0xcccc << 112) + 1)],
            "the one that is no more is not meant"
        );
    }

    /// A member may be gone by the time a node restarts with the same file.
    #[test]
    fn a_file_may_name_what_is_no_member_but_not_the_node_itself_nor_a_peer_twice() {
        let hints = |text: &str| Hints::among(&parse_peers(text).unwrap(), false, &roster(), OWN);
        let known = hints("n4=h:1,cccc=h:2,n2=h:3").unwrap();
        assert_eq!(known.0.keys().collect::<Vec<_>>(), [&NodeId(0xbbbb << 112)]);
        assert_eq!(hints("n1=h:1").unwrap_err(), HintError::Own("n1".to_owned()));
        assert_eq!(hints("n2=h:1,bbbb=h:2").unwrap_err(), HintError::Twice("bbbb".to_owned()));
    }

    #[test]
    fn a_hint_goes_before_what_was_listed_at_the_start_and_behind_what_is_newer() {
        let hints = hints("n2=moved:1").unwrap();
        let addresses = |address: &str| hints.addresses(&member(0xbbbb << 112, "n2", address, MemberState::Up));
        assert_eq!(addresses("n2:1"), ["moved:1", "n2:1"]);
        assert_eq!(addresses("newer:1"), ["newer:1", "moved:1"]);
        assert_eq!(addresses("moved:1"), ["moved:1"]);
        let other = member((0xcccc << 112) + 1, "n3", "n3:1", MemberState::Up);
        assert_eq!(hints.addresses(&other), ["n3:1"]);
    }
}
