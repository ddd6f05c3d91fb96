//! Members of a cluster, and the requirements for a node to become one.

use super::Reason;
use crate::limits::{ADDRESS_BYTES_MAX, NAME_BYTES_MAX, WEIGHT_MAX, ZONE_BYTES_MAX};
use norn_wire::membership::{Candidate, Member, MemberState};
use norn_wire::response;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The member for a founder in the founding record. Founders have equal weights.
pub(super) fn founding(founder: &response::Member) -> Member {
    let response::Member { node, incarnation, address, name, zone } = founder.clone();
    Member { node, incarnation, name, address, zone, weight: 1, state: MemberState::Up }
}

/// Checks the bounds of what is stored. The form of an address is checked only when it is set, so that a founder's address stands.
pub fn validate(member: &Member) -> Result<(), Reason> {
    check_length("name", &member.name, NAME_BYTES_MAX)?;
    check_length("zone", &member.zone, ZONE_BYTES_MAX)?;
    check_length("address", &member.address, ADDRESS_BYTES_MAX)?;
    check_weight(member.weight)
}

/// The member that a candidate becomes.
pub(super) fn joining(candidate: &Candidate) -> Member {
    let Candidate { cluster: _, node, incarnation, name, address, zone, weight } = candidate.clone();
    Member { node, incarnation, name, address, zone, weight, state: MemberState::Joining }
}

/// What is wrong with a candidate by itself, apart from the other members.
pub(super) fn flaws(candidate: &Candidate) -> Vec<Reason> {
    let Candidate { name, address, zone, weight, .. } = candidate;
    let checks = [check_name(name), check_address(address), check_zone(zone), check_weight(*weight)];
    checks.into_iter().filter_map(Result::err).collect()
}

fn check_length(what: &'static str, text: &str, most: usize) -> Result<(), Reason> {
    if text.len() > most {
        return Err(Reason::TooLong { what, bytes: text.len(), most });
    }
    Ok(())
}

pub(super) fn check_name(name: &str) -> Result<(), Reason> {
    check_length("name", name, NAME_BYTES_MAX)?;
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err(Reason::Name { name: name.to_owned() });
    }
    Ok(())
}

pub(super) fn check_zone(zone: &str) -> Result<(), Reason> {
    check_length("zone", zone, ZONE_BYTES_MAX)?;
    if zone.chars().any(char::is_control) {
        return Err(Reason::Zone { zone: zone.to_owned() });
    }
    Ok(())
}

pub(super) fn check_weight(weight: u32) -> Result<(), Reason> {
    if !(1..=WEIGHT_MAX).contains(&weight) {
        return Err(Reason::Weight { weight });
    }
    Ok(())
}

/// Checks that others can reach this `HOST:PORT`: a name or an IPv4 address, or an IPv6 address in brackets, and a port above 0.
pub(super) fn check_address(address: &str) -> Result<(), Reason> {
    check_length("address", address, ADDRESS_BYTES_MAX)?;
    let malformed = |wrong| Reason::Address { address: address.to_owned(), wrong };
    let (host, port) = address.rsplit_once(':').ok_or_else(|| malformed("it has no port"))?;
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || !port.parse::<u16>().is_ok_and(|port| port > 0) {
        return Err(malformed("the port is no number from 1 to 65535"));
    }
    if let Some(inside) = host.strip_prefix('[') {
        let inside = inside.strip_suffix(']').and_then(|text| text.parse::<Ipv6Addr>().ok());
        let reachable = inside.ok_or_else(|| malformed("no IPv6 address is between the brackets"))?;
        return match reachable.is_unspecified() {
            true => Err(malformed("it names every address of a machine, and others reach none by it")),
            false => Ok(()),
        };
    }
    let is_named = |host: &str| host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
    match host {
        "" => Err(malformed("it has no host")),
        _ if host.contains(':') => Err(malformed("an IPv6 address stands in brackets")),
        _ if !is_named(host) => Err(malformed("the host has characters that no name has")),
        _ if host.parse() == Ok(Ipv4Addr::UNSPECIFIED) => {
            Err(malformed("it names every address of a machine, and others reach none by it"))
        }
        _ => Ok(()),
    }
}
