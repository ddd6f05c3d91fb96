//! Goal: every address of a name is a candidate, and no candidate spoils the attempt. Method: scripted resolvers and attempts.

use super::{
    CANDIDATES_MAX, CLOSE_IDENTITY, CLOSE_VERSION, Candidates, HEAD_START, Reach, Reason, Shown, Unreached, dial_with,
    distinct,
};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// Ends by itself only if the test has failed.
const LONG: Duration = Duration::from_secs(60);
const V4: &str = "127.0.0.1:7400";
const V6: &str = "[::1]:7400";

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Result of an attempt at an address.
#[derive(Clone, Copy)]
enum Then {
    Good,
    Bad(&'static str),
    Silent,
}

/// Dials names that are resolved by a script, from a socket at `local`. Returns the result and the attempts made.
async fn run(
    names: &[(&str, Option<&[&str]>)],
    local: IpAddr,
    within: impl Into<Option<Duration>>,
    then: impl Fn(SocketAddr) -> Then,
) -> (Result<SocketAddr, Unreached>, Vec<SocketAddr>) {
    let script: Vec<(String, Option<Vec<SocketAddr>>)> = names
        .iter()
        .map(|(name, found)| ((*name).to_owned(), found.map(|found| found.iter().map(|text| address(text)).collect())))
        .collect();
    let lookup = |name: String| {
        let found = script.iter().find(|(known, _)| *known == name).expect("no other name is asked for").1.clone();
        async move {
            match found {
                Some(found) if found.is_empty() => Err(io::Error::other("no such name")),
                Some(found) => Ok(found),
                None => std::future::pending().await,
            }
        }
    };
    let made = Arc::new(Mutex::new(Vec::new()));
    let attempt = |address: SocketAddr| {
        made.lock().unwrap().push(address);
        let then = then(address);
        async move {
            match then {
                Then::Good => Ok(()),
                Then::Bad(text) => Err(Reason { lasting: text.contains("certificate"), ..Reason::answered(text) }),
                Then::Silent => std::future::pending().await,
            }
        }
    };
    let names: Vec<String> = names.iter().map(|(name, _)| (*name).to_owned()).collect();
    let reach = |remote: SocketAddr| Reach::of(local, remote.ip());
    let reached = dial_with(lookup, &names, within.into(), reach, attempt).await;
    let made = made.lock().unwrap().clone();
    (reached.map(|(address, ())| address), made)
}

const ON_V4: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
const ON_BOTH: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
const ON_V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

#[tokio::test]
async fn an_address_that_the_socket_cannot_reach_is_passed_over() {
    let names: &[(&str, Option<&[&str]>)] = &[("name:7400", Some(&[V6, V4]))];
    let (reached, made) = run(names, ON_V4, LONG, |_| Then::Good).await;
    assert_eq!((reached.unwrap(), made), (address(V4), vec![address(V4)]));
    let (reached, _) = run(names, ON_BOTH, LONG, |_| Then::Good).await;
    assert_eq!(reached.unwrap(), address(V6), "the first is preferred where it is reached");
    let (reached, made) = run(&[("name:7400", Some(&[V4, V6]))], ON_V6, LONG, |_| Then::Good).await;
    assert_eq!((reached.unwrap(), made), (address(V6), vec![address(V6)]));
}

#[tokio::test]
async fn a_name_without_a_reachable_address_says_why() {
    let (reached, made) = run(&[("name:7400", Some(&[V6]))], ON_V4, LONG, |_| Then::Good).await;
    let unreached = reached.unwrap_err();
    assert_eq!(unreached.to_string(), format!("{V6} is of IPv6, and the socket is of IPv4 alone"));
    assert!(made.is_empty() && !unreached.is_silence());
    let (reached, made) = run(&[("name:7400", Some(&[V4]))], ON_V6, LONG, |_| Then::Good).await;
    assert_eq!(reached.unwrap_err().to_string(), format!("{V4} is of IPv4, and the socket is of IPv6 alone"));
    assert!(made.is_empty());
    let (reached, _) = run(&[("name:7400", Some(&[]))], ON_V4, LONG, |_| Then::Good).await;
    assert_eq!(reached.unwrap_err().to_string(), "no such name");
}

#[tokio::test]
async fn an_address_that_fails_or_is_silent_leads_to_the_next() {
    for first in [Then::Bad("certificate"), Then::Silent] {
        // Less time than the usual head start: the last address still has its turn.
        for within in [LONG, HEAD_START / 2] {
            let then = |at| if at == address(V6) { first } else { Then::Good };
            let (reached, made) = run(&[("name:7400", Some(&[V6, V4]))], ON_BOTH, within, then).await;
            assert_eq!((reached.unwrap(), made), (address(V4), vec![address(V6), address(V4)]));
        }
    }
}

#[tokio::test]
async fn a_resolver_that_is_silent_for_one_name_holds_up_no_other() {
    let names: &[(&str, Option<&[&str]>)] = &[("lost:1", None), ("name:7400", Some(&[V4]))];
    let (reached, _) = run(names, ON_V4, LONG, |_| Then::Good).await;
    assert_eq!(reached.unwrap(), address(V4));
    let (reached, _) = run(names, ON_V4, HEAD_START, |_| Then::Bad("refused")).await;
    assert_eq!(reached.unwrap_err().to_string(), format!("lost:1: no answer in time; {V4}: refused"));
}

#[tokio::test]
async fn names_are_tried_in_order_and_no_address_twice() {
    let names: &[(&str, Option<&[&str]>)] =
        &[("hint:1", Some(&["10.0.0.1:1"])), ("gone:1", Some(&[])), ("listed:1", Some(&["10.0.0.2:1", "10.0.0.1:1"]))];
    let (reached, made) = run(names, ON_V4, LONG, |_| Then::Bad("no")).await;
    assert_eq!(made, [address("10.0.0.1:1"), address("10.0.0.2:1")]);
    assert_eq!(reached.unwrap_err().to_string(), "10.0.0.1:1: no; gone:1: no such name; 10.0.0.2:1: no");
}

#[tokio::test]
async fn one_answer_of_a_kind_does_not_stand_for_all() {
    let then = |at| if at == address(V4) { Then::Bad("bad certificate") } else { Then::Silent };
    let (reached, _) = run(&[("name:7400", Some(&[V6, V4]))], ON_BOTH, HEAD_START, then).await;
    let unreached = reached.unwrap_err();
    assert!(!unreached.is_lasting() && !unreached.is_silence(), "{unreached}");
    let (reached, _) = run(&[("name:7400", Some(&[V6, V4]))], ON_V4, LONG, then).await;
    assert!(reached.unwrap_err().is_lasting(), "what is not tried says nothing");
    let (reached, _) = run(&[("name:7400", Some(&[V6, V4]))], ON_BOTH, HEAD_START, |_| Then::Silent).await;
    assert!(reached.unwrap_err().is_silence());
}

/// A node often listens in one address family alone: the other address stays silent, and hides no refusal.
#[tokio::test]
async fn a_name_refuses_for_good_where_one_address_does_and_no_other_is_heard() {
    for silent in [V6, V4] {
        let then = |at| if at == address(silent) { Then::Silent } else { Then::Bad("bad certificate") };
        let run = run(&[("name:7400", Some(&[V6, V4]))], ON_BOTH, None, then);
        let (reached, _) =
            tokio::time::timeout(LONG, run).await.expect("a silent address is not waited for without end");
        let unreached = reached.unwrap_err();
        assert!(unreached.is_refused() && unreached.is_answered() && !unreached.is_lasting(), "{unreached}");
        assert!(unreached.to_string().contains("bad certificate"), "{unreached}");
    }
    let then = |at| if at == address(V4) { Then::Bad("bad certificate") } else { Then::Bad("busy") };
    let (reached, _) = run(&[("name:7400", Some(&[V6, V4]))], ON_BOTH, None, then).await;
    assert!(!reached.unwrap_err().is_refused(), "the other one may serve later");
    let (reached, _) = run(&[("name:7400", Some(&[V6, V4]))], ON_BOTH, HEAD_START, |_| Then::Silent).await;
    let unreached = reached.unwrap_err();
    assert!(!unreached.is_refused() && !unreached.is_answered(), "{unreached}");
}

/// After an address has refused for good, the later ones are still tried.
#[tokio::test]
async fn an_address_that_refuses_for_good_keeps_no_other_from_being_reached() {
    let names: &[(&str, Option<&[&str]>)] =
        &[("name:7400", Some(&["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1"]))];
    let then = |at| match at {
        at if at == address("10.0.0.1:1") => Then::Bad("bad certificate"),
        at if at == address("10.0.0.4:1") => Then::Good,
        _ => Then::Silent,
    };
    assert_eq!(run(names, ON_V4, None, then).await.0.unwrap(), address("10.0.0.4:1"));
}

#[test]
fn an_address_of_both_families_counts_once() {
    let found = ["[::ffff:10.0.0.1]:1", "10.0.0.1:1", "[::1]:1", "10.0.0.1:1"].map(address).to_vec();
    assert_eq!(distinct(found), [address("10.0.0.1:1"), address("[::1]:1")]);
}

/// The name that is resolved first takes no more than its share, and the other one the rest.
#[tokio::test]
async fn a_name_with_many_addresses_leaves_room_for_the_other_name() {
    let many: Vec<SocketAddr> = (1..=40).map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))).collect();
    let names = ["late:1".to_owned(), "many:1".to_owned()];
    let mut candidates = Candidates::new(&names, Some(LONG));
    candidates.found(1, Ok(many.clone()), |_| Reach::Well);
    assert_eq!(candidates.known.len(), CANDIDATES_MAX / 2);
    candidates.found(0, Ok(vec![address("192.0.2.1:7400")]), |_| Reach::Well);
    let (_, first) = candidates.next(Instant::now()).expect("an address waits");
    assert_eq!(first, address("192.0.2.1:7400"));
    let mut alone = Candidates::new(&names[..1], Some(LONG));
    alone.found(0, Ok(many), |_| Reach::Well);
    assert_eq!(alone.known.len(), CANDIDATES_MAX);
}

/// Goal: the reason for an invalid certificate of a node names the day on which it ended or begins, as the library knows it. Method:
/// the library's own errors.
#[test]
fn a_certificate_of_a_node_that_is_not_valid_is_told_of_with_its_date() {
    use rustls::CertificateError::{Expired, ExpiredContext, NotValidForNameContext, NotValidYetContext};
    let at = |second| rustls::pki_types::UnixTime::since_unix_epoch(Duration::from_secs(second));
    let refusing =
        |alert, error| super::reason::refusing(alert, &rustls::Error::InvalidCertificate(error).to_string(), None);
    let words = |error| refusing(45, error).unwrap();
    let expired = |now| words(ExpiredContext { time: at(now), not_after: at(1_583_366_400) });
    assert_eq!(expired(1_700_000_000), expired(1_700_000_001), "the same each time");
    assert!(expired(1_700_000_000).contains("shows a certificate that has expired on 2020-03-05 00:00 UTC"));
    let early = words(NotValidYetContext { time: at(1_500_000_000), not_before: at(1_583_366_400) });
    assert!(early.contains("is valid from 2020-03-05 00:00 UTC on"), "{early}");
    assert!(words(Expired).contains("has expired or is not valid yet"));
    let presented = ["IpAddress(127.0.0.1)", "DnsName(\"beta.node.norn\")"].map(str::to_owned).to_vec();
    let expected = rustls::pki_types::ServerName::try_from("gamma.node.norn").unwrap();
    let of_another = refusing(42, NotValidForNameContext { expected, presented }).unwrap();
    assert!(of_another.starts_with("node beta answers there, and its certificate is not one for "), "{of_another}");
}

/// The libraries' text for an expired certificate contains the current second: a log that shows each reason once would show it every time.
#[test]
fn a_reason_that_lasts_reads_the_same_each_time_and_names_the_files() {
    let until = crate::tls::Date(1_583_366_400);
    let shown = Shown { authority: "certs/ca.crt".into(), certificate: "certs/client-me.crt".into(), until };
    let closed = |alert: u8, reason: &'static str| {
        let (error_code, reason) = (quinn::TransportErrorCode::crypto(alert), reason.as_bytes().into());
        quinn::ConnectionError::ConnectionClosed(quinn::ConnectionClose { error_code, frame_type: None, reason })
    };
    let (early, late) = (Reason::of(&closed(45, "at 1"), Some(&shown)), Reason::of(&closed(45, "at 2"), Some(&shown)));
    assert!(early == late && early.lasting, "{early:?} {late:?}");
    for words in ["refuses", "certs/client-me.crt", "expired", "2020-03-05 00:00 UTC"] {
        assert!(early.text.contains(words), "{early}");
    }
    assert!(early.text.contains("has expired on"), "by the own clock, too: {early}");
    let later = Shown { until: crate::tls::Date(i64::MAX), ..shown.clone() };
    let differs = Reason::of(&closed(45, "at 1"), Some(&later));
    assert!(differs.text.contains("by the clock there") && differs.text.contains("certs/client-me.crt"), "{differs}");
    let stranger = Reason::of(&closed(48, "unknown"), Some(&shown));
    assert!(stranger.lasting && stranger.text.contains("authority"), "{stranger}");
    // A node that is out of resources, and one that stops.
    let broken = Reason::of(&closed(80, "internal error"), Some(&shown));
    assert!(!broken.lasting && broken.answered, "{broken:?}");
    let silent = Reason::of(&quinn::ConnectionError::TimedOut, None);
    assert!(!silent.lasting && !silent.answered, "{silent:?}");
    let application = |code: u32| {
        let close = quinn::ApplicationClose { error_code: code.into(), reason: b"no name".as_slice().into() };
        Reason::of(&quinn::ConnectionError::ApplicationClosed(close), None)
    };
    assert!(application(CLOSE_IDENTITY).lasting && application(CLOSE_VERSION).lasting && !application(5).lasting);
    assert!(application(5).answered && early.answered);
}
