//! Goal: certificates are used only while they are valid, and new files are used as a whole or not at all. Method: files of small
//! authorities, checked at given times.

use super::{CertificateFiles, Credentials, Date, Look, Renewal, TlsError, Validity};
use norn_wire::Versions;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, HandshakeKind, ServerConnection};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use time::OffsetDateTime;

/// 2030-01-01.
const START_S: i64 = 1_893_456_000;
const DAY_S: i64 = 86_400;
const YEAR: Validity = Validity { from_s: START_S, until_s: START_S + 365 * DAY_S };

/// An authority that can sign; all authorities have the same name.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

fn params(validity: Validity) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, "authority");
    params.not_before = OffsetDateTime::from_unix_timestamp(validity.from_s).unwrap();
    params.not_after = OffsetDateTime::from_unix_timestamp(validity.until_s).unwrap();
    params
}

impl Authority {
    fn new(validity: Validity) -> Authority {
        let (key, mut params) = (KeyPair::generate().unwrap(), params(validity));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate and its key, PEM.
    fn sign(&self, validity: Validity) -> (String, String) {
        let (key, mut params) = (KeyPair::generate().unwrap(), params(validity));
        params.distinguished_name.push(DnType::CommonName, "own");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

struct Place {
    _directory: TempDir,
    files: CertificateFiles,
}

impl Place {
    fn new(authority: &str, (certificate, key): &(String, String)) -> Place {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        let files = CertificateFiles { authority: file("ca.crt"), certificate: file("own.crt"), key: file("own.key") };
        let place = Place { files, _directory: directory };
        for (path, text) in
            [(&place.files.authority, authority), (&place.files.certificate, certificate), (&place.files.key, key)]
        {
            write(path, text);
        }
        place
    }

    fn load(&self, now_s: i64) -> Result<Credentials, TlsError> {
        Credentials::load(&self.files, now_s)
    }
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

fn look(renewal: &mut Renewal, now_s: i64) -> Look<()> {
    renewal.look(now_s, |_| Ok::<(), TlsError>(()))
}

fn refusal(look: Look<()>) -> String {
    match look {
        Look::Refused(reason) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn dates_are_those_of_the_calendar() {
    for (second, text) in [
        (START_S, "2030-01-01 00:00 UTC"),
        (951_782_399, "2000-02-28 23:59 UTC"),
        (951_782_400, "2000-02-29 00:00 UTC"),
        (i64::MAX, "second 9223372036854775807 of 1970"),
    ] {
        assert_eq!(Date(second).to_string(), text);
    }
}

/// The own certificate and the authority are used from their first to their last second.
#[test]
fn a_certificate_is_refused_outside_of_its_time_with_file_and_date() {
    let longer = Validity { from_s: START_S - 9 * DAY_S, until_s: START_S + 3_650 * DAY_S };
    for (authority, own, file) in [(longer, YEAR, "own.crt"), (YEAR, longer, "ca.crt")] {
        let authority = Authority::new(authority);
        let place = Place::new(&authority.pem, &authority.sign(own));
        for good in [YEAR.from_s, YEAR.until_s] {
            place.load(good).unwrap();
        }
        let early = place.load(YEAR.from_s - 1).unwrap_err();
        assert!(matches!(&early, TlsError::NotYetValid { path, .. } if path.ends_with(file)), "{early}");
        assert!(early.to_string().contains("valid from 2030-01-01 00:00 UTC"), "{early}");
        let late = place.load(YEAR.until_s + 1).unwrap_err();
        assert!(matches!(&late, TlsError::Expired { path, .. } if path.ends_with(file)), "{late}");
        let text = late.to_string();
        assert!(text.contains("expired on 2031-01-01 00:00 UTC") && text.contains("norn cert"), "{text}");
    }
}

/// While one authority replaces another, the file has both, and an old one in it does no harm.
#[test]
fn one_authority_of_several_is_enough() {
    let until = Validity { from_s: START_S - 365 * DAY_S, until_s: START_S + DAY_S };
    let (old, new) = (Authority::new(until), Authority::new(YEAR));
    let both = format!("{}{}", old.pem, new.pem);
    for signer in [&old, &new] {
        let place = Place::new(&both, &signer.sign(YEAR));
        let credentials = place.load(START_S).unwrap();
        assert_eq!(credentials.roots().len(), 2);
        credentials.check_chain(START_S).unwrap();
        assert_eq!(credentials.warnings(START_S), Vec::<String>::new(), "the new one lasts");
    }
    let later = Place::new(&both, &new.sign(YEAR)).load(START_S + 2 * DAY_S).unwrap();
    assert_eq!(later.roots().len(), 1, "what has expired is not trusted");
    let warnings = later.warnings(START_S + 2 * DAY_S);
    assert!(
        warnings.len() == 1 && warnings[0].contains("ca.crt") && warnings[0].contains("take it out"),
        "{warnings:?}"
    );
    // A foreign certificate that is used with an old authority.
    Place::new(&both, &old.sign(YEAR)).load(START_S + 2 * DAY_S).unwrap().check_chain(START_S + 2 * DAY_S).unwrap_err();
}

#[test]
fn warnings_begin_thirty_days_before_the_end() {
    let authority = Authority::new(Validity { until_s: START_S + 3_650 * DAY_S, ..YEAR });
    let credentials = Place::new(&authority.pem, &authority.sign(YEAR)).load(START_S).unwrap();
    let warnings = |before_s: i64| credentials.warnings(YEAR.until_s - before_s);
    assert_eq!(warnings(30 * DAY_S + 1), Vec::<String>::new());
    for (before_s, words) in [(30 * DAY_S, "in 30 days"), (2 * DAY_S - 1, "in 1 day;"), (DAY_S - 1, "within a day")] {
        let said = warnings(before_s);
        assert_eq!(said.len(), 1, "{said:?}");
        for words in [words, "own.crt", "2031-01-01 00:00 UTC", "norn cert"] {
            assert!(said[0].contains(words), "{words}: {said:?}");
        }
    }
    let said = credentials.warnings(START_S + 3_649 * DAY_S);
    assert!(said.len() == 1 && said[0].contains("ca.crt") && said[0].contains("norn cert ca"), "{said:?}");
}

/// An expired certificate is no longer a warning; it is reported when it expires.
#[test]
fn the_end_of_a_certificate_in_use_is_known_with_file_and_date() {
    let authority = Authority::new(Validity { until_s: START_S + 3_650 * DAY_S, ..YEAR });
    let credentials = Place::new(&authority.pem, &authority.sign(YEAR)).load(START_S).unwrap();
    assert_eq!(credentials.next_end_s(START_S), Some(YEAR.until_s + 1));
    assert_eq!(credentials.expired(YEAR.until_s), Vec::<String>::new());
    let end_s = YEAR.until_s + 1;
    assert_eq!(
        (credentials.next_end_s(end_s), credentials.warnings(end_s)),
        (Some(START_S + 3_650 * DAY_S + 1), vec![])
    );
    let said = credentials.expired(end_s);
    assert_eq!(said.len(), 1, "{said:?}");
    for words in ["has expired on 2031-01-01 00:00 UTC", "own.crt", "norn cert", "no new connection"] {
        assert!(said[0].contains(words), "{words}: {said:?}");
    }
    let end_s = START_S + 3_650 * DAY_S + 1;
    let said = credentials.expired(end_s);
    assert!(said.len() == 2 && said[1].contains("ca.crt: the certificate has expired on 20"), "{said:?}");
    assert_eq!(credentials.next_end_s(end_s), None);
}

/// Each step of an operator who replaces one file after the other: the previous set stays until all three match.
#[test]
fn files_are_taken_as_a_whole_or_not_at_all() {
    let (old, new) = (Authority::new(YEAR), Authority::new(YEAR));
    let place = Place::new(&old.pem, &old.sign(YEAR));
    let mut renewal = Renewal::start(place.files.clone(), START_S).unwrap();
    assert_eq!(look(&mut renewal, START_S), Look::Same);
    let before = renewal.current().chain().to_vec();
    let (certificate, key) = new.sign(YEAR);

    write(&place.files.certificate, &certificate);
    let reason = refusal(look(&mut renewal, START_S));
    assert!(reason.contains("own.crt") && reason.contains("own.key"), "the key is another's: {reason}");
    assert_eq!(look(&mut renewal, START_S), Look::Same, "it is said once");
    renewal.report_again();
    assert_eq!(refusal(look(&mut renewal, START_S)), reason, "unless it is asked for");
    write(&place.files.key, &key);
    let reason = refusal(look(&mut renewal, START_S));
    assert!(reason.contains("own.crt: it is not of the authority in") && reason.contains("ca.crt"), "{reason}");
    std::fs::remove_file(&place.files.authority).unwrap();
    assert!(refusal(look(&mut renewal, START_S)).contains("ca.crt: "));
    assert_eq!(renewal.current().chain(), before);

    write(&place.files.authority, &new.pem);
    let failing = renewal.look(START_S, |_| Err::<(), _>("of no use"));
    assert_eq!(failing, Look::Refused("of no use".to_owned()));
    assert_eq!(renewal.current().chain(), before);
    assert_eq!(look(&mut renewal, START_S), Look::Renewed(()));
    assert_ne!(renewal.current().chain(), before);
    assert_eq!(look(&mut renewal, START_S), Look::Same);
}

#[test]
fn broken_and_expired_files_are_refused_and_early_ones_are_taken_in_time() {
    let authority = Authority::new(Validity { from_s: START_S, until_s: START_S + 3_650 * DAY_S });
    let place = Place::new(&authority.pem, &authority.sign(YEAR));
    let mut renewal = Renewal::start(place.files.clone(), START_S).unwrap();
    let good = std::fs::read_to_string(&place.files.certificate).unwrap();
    for broken in
        ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", &good[..good.len() / 2]]
    {
        write(&place.files.certificate, broken);
        let reason = refusal(look(&mut renewal, START_S));
        assert!(reason.contains("own.crt: "), "{broken:?}: {reason}");
    }
    write(&place.files.certificate, &good[..good.len() / 2]);
    renewal.report_again();
    let reason = refusal(look(&mut renewal, START_S));
    assert!(reason.contains("own.crt: it ends in the middle of a section"), "{reason}");
    // Line breaks get lost when files are passed in variables.
    let (of_key, good_key) = (place.files.key.clone(), std::fs::read_to_string(&place.files.key).unwrap());
    write(&place.files.certificate, &good);
    for broken in [good_key.replace('\n', " "), good_key.replace('\n', "\\n"), good_key.replace("-----\n", "\n")] {
        write(&of_key, &broken);
        renewal.report_again();
        let reason = refusal(look(&mut renewal, START_S));
        let shown =
            good_key.lines().skip(1).filter(|line| !line.starts_with('-')).any(|line| reason.contains(&line[..8]));
        assert!(!shown && reason.contains("own.key: "), "{reason}");
    }
    write(&of_key, &good_key);
    let next = Validity { from_s: YEAR.until_s, until_s: YEAR.until_s + DAY_S };
    let (certificate, key) = authority.sign(next);
    write(&place.files.certificate, &certificate);
    write(&place.files.key, &key);
    assert!(refusal(look(&mut renewal, next.until_s + 1)).contains("has expired on"));
    assert!(refusal(look(&mut renewal, START_S)).contains("valid from"));
    assert_eq!(look(&mut renewal, START_S + 60), Look::Same, "it is said once, and not once a minute");
    // Its first day has come, and the files have not changed.
    assert_eq!(look(&mut renewal, next.from_s), Look::Renewed(()));
    // The certificate in use has expired by now, and is replaced all the same.
    let (certificate, key) = authority.sign(Validity { from_s: next.from_s, until_s: next.until_s + 9 * DAY_S });
    write(&place.files.certificate, &certificate);
    write(&place.files.key, &key);
    assert_eq!(look(&mut renewal, next.until_s + DAY_S), Look::Renewed(()));
}

/// A file with the whole chain may have an intermediate certificate that no verifier needs any more.
#[test]
fn an_expired_certificate_behind_the_own_one_prevents_no_start() {
    let authority = Authority::new(YEAR);
    let (certificate, key) = authority.sign(YEAR);
    let old = Authority::new(Validity { from_s: START_S - 9 * DAY_S, until_s: START_S - DAY_S });
    let credentials = Place::new(&authority.pem, &(format!("{certificate}{}", old.pem), key)).load(START_S).unwrap();
    assert_eq!((credentials.chain().len(), credentials.validity()), (2, YEAR));
    credentials.check_chain(START_S).unwrap();
}

fn carry(from: &mut Connection, to: &mut Connection) {
    let mut bytes = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut bytes).unwrap();
    }
    let mut left = bytes.as_slice();
    while !left.is_empty() {
        to.read_tls(&mut left).unwrap();
        to.process_new_packets().unwrap();
    }
}

/// The kind of the second handshake of a client with one configuration.
fn second_handshake(client: rustls::ClientConfig, server: rustls::ServerConfig) -> Option<HandshakeKind> {
    let (client, server) = (Arc::new(client), Arc::new(server));
    let name = || ServerName::try_from("own.node.norn").unwrap();
    let mut kind = None;
    for _ in 0..2 {
        let mut left = Connection::from(ClientConnection::new(Arc::clone(&client), name()).unwrap());
        let mut right = Connection::from(ServerConnection::new(Arc::clone(&server)).unwrap());
        while left.wants_write() || right.wants_write() {
            carry(&mut left, &mut right);
            carry(&mut right, &mut left);
        }
        kind = left.handshake_kind();
    }
    kind
}

/// A resumed session is not verified again, and would outlast the certificates.
#[test]
fn each_connection_makes_a_full_handshake_though_the_node_offers_tickets() {
    let directory = tempfile::tempdir().unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["own.node.norn".to_owned()]).unwrap();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
    let pem = params.self_signed(&key).unwrap().pem();
    let file = |name: &str| directory.path().join(name);
    let files = CertificateFiles { authority: file("ca.crt"), certificate: file("own.crt"), key: file("own.key") };
    for (path, text) in [(&files.authority, &pem), (&files.certificate, &pem), (&files.key, &key.serialize_pem())] {
        write(path, text);
    }
    let own = Credentials::load(&files, super::validity::now_s()).unwrap();
    let mut server = rustls::ServerConfig::builder_with_provider(super::provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(own.chain().to_vec(), own.key())
        .unwrap();
    server.alpn_protocols = Versions::SPOKEN.protocols();
    let client = || own.client(Versions::SPOKEN).unwrap();
    assert_eq!(second_handshake(client(), server.clone()), Some(HandshakeKind::Full));
    let mut resuming = client();
    resuming.resumption = rustls::client::Resumption::default();
    assert_eq!(second_handshake(resuming, server), Some(HandshakeKind::Resumed), "the node does offer them");
}

/// Clients may be of another authority than nodes: then their new files are not checked against the trusted one.
#[test]
fn a_certificate_of_another_authority_is_renewed_as_well() {
    let (of_nodes, of_clients) = (Authority::new(YEAR), Authority::new(YEAR));
    let place = Place::new(&of_nodes.pem, &of_clients.sign(YEAR));
    let mut renewal = Renewal::start(place.files.clone(), START_S).unwrap();
    let (certificate, key) = of_clients.sign(YEAR);
    write(&place.files.certificate, &certificate);
    write(&place.files.key, &key);
    assert_eq!(look(&mut renewal, START_S), Look::Renewed(()));
}
