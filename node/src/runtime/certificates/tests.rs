//! Goal: a certificate is valid for the requested time, never longer than its authority, and can be renewed without harm to existing
//! files.

use super::{
    AUTHORITY_DAYS, DAY_S, DAYS, Made, Present, Role, Validity, authority_key, authority_params, create,
    create_authority, lock, prolong_authority, set_validity, valid_until,
};
use crate::runtime::tls::load;
use norn_host::clock::unix_seconds;
use std::fs;
use std::path::Path;
use std::time::Duration;

fn make(directory: &Path, days: u32, present: Present) -> Made {
    create(directory, Role::Client, "c", &[], days, present).unwrap()
}

/// Whether a certificate made between two readings of the clock is valid for a number of days, and from an hour before.
fn lasts(made: &Made, days: u32, before_s: i64, after_s: i64) -> bool {
    let (from_s, until_s) = (made.validity.from_s + 3_600, made.validity.until_s - i64::from(days) * DAY_S);
    (before_s..=after_s).contains(&from_s) && (before_s..=after_s).contains(&until_s)
}

#[test]
fn an_authority_lasts_for_ten_years_and_what_it_signs_for_one_unless_said_otherwise() {
    assert_eq!((AUTHORITY_DAYS, DAYS), (3_650, 365));
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let before_s = unix_seconds();
    let authority = create_authority(place, AUTHORITY_DAYS).unwrap();
    let own = make(place, DAYS, Present::Kept);
    let after_s = unix_seconds();
    assert!(lasts(&authority, 3_650, before_s, after_s), "{authority:?}");
    // A clock that is an hour slow does not refuse it.
    assert!(lasts(&own, 365, before_s, after_s) && !own.shortened, "{own:?}");
    assert_eq!(load(&own.files).unwrap().validity(), own.validity, "the file says the same");
    assert_eq!(valid_until(&authority.files.certificate).unwrap(), authority.validity.until_s);
}

#[test]
fn a_certificate_ends_with_its_authority() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let authority = create_authority(place, 100).unwrap();
    let own = make(place, 100_000, Present::Kept);
    assert_eq!((own.validity.until_s, own.shortened), (authority.validity.until_s, true));
    assert_eq!(load(&own.files).unwrap().validity().until_s, authority.validity.until_s);

    // An authority that has expired signs nothing.
    fs::remove_file(place.join("ca.crt")).unwrap();
    fs::remove_file(place.join("ca.key")).unwrap();
    create_authority(place, 0).unwrap();
    let error = create(place, Role::Client, "d", &[], 1, Present::Kept).unwrap_err().to_string();
    assert!(error.contains("ca.crt: the authority has expired on"), "{error}");
    assert!(!place.join("client-d.crt").exists() && !place.join("client-d.key").exists());
}

/// The key beside a file with several authorities determines which of them signs.
#[test]
fn of_several_authorities_in_the_file_the_one_with_the_key_signs() {
    let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    create_authority(old.path(), 1_000).unwrap();
    let authority = create_authority(new.path(), 30).unwrap();
    let read = |directory: &Path| fs::read_to_string(directory.join("ca.crt")).unwrap();
    let both = format!("{}{}", read(old.path()), read(new.path()));
    fs::write(new.path().join("ca.crt"), &both).unwrap();
    let own = make(new.path(), 365, Present::Kept);
    assert_eq!((own.validity.until_s, own.shortened), (authority.validity.until_s, true), "{own:?}");
    load(&own.files).unwrap().check_chain(unix_seconds()).unwrap();

    fs::copy(old.path().join("ca.crt"), new.path().join("ca.crt")).unwrap();
    let error = create(new.path(), Role::Client, "d", &[], 1, Present::Kept).unwrap_err().to_string();
    assert!(error.contains("no certificate of the key in ca.key"), "{error}");
}

#[test]
fn a_renewed_certificate_takes_the_place_of_the_old_one_and_a_prolonged_authority_keeps_its_key() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    create_authority(place, 10).unwrap();
    let first = make(place, 365, Present::Kept);
    let chain = load(&first.files).unwrap().chain().to_vec();
    prolong_authority(place, 1_000).unwrap();
    load(&first.files).unwrap().check_chain(unix_seconds()).unwrap();
    let second = make(place, 365, Present::Replaced);
    assert!(!second.shortened && second.files == first.files, "{second:?}");
    let credentials = load(&second.files).unwrap();
    assert_ne!(credentials.chain(), chain);
    credentials.check_chain(unix_seconds()).unwrap();
    let names: Vec<_> = fs::read_dir(place).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 4, "no half of a file is left: {names:?}");
}

/// Nothing can be signed if the authority's validity is unknown, or lies in the future because its clock was far ahead.
#[test]
fn an_authority_without_its_certificate_or_of_a_later_time_signs_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    create_authority(place, DAYS).unwrap();
    let file = place.join("ca.crt");
    fs::remove_file(&file).unwrap();
    let fails = || create(place, Role::Client, "c", &[], 1, Present::Kept).unwrap_err().to_string();
    let error = fails();
    assert!(
        error.contains("ca.crt: the authority's certificate is missing") && error.contains("until when"),
        "{error}"
    );
    let key = authority_key(place).unwrap();
    let mut params = authority_params();
    let later = Validity { from_s: unix_seconds() + 2 * DAY_S, until_s: unix_seconds() + 9 * DAY_S };
    set_validity(&mut params, later, &file).unwrap();
    fs::write(&file, params.self_signed(&key).unwrap().pem()).unwrap();
    let error = fails();
    assert!(error.contains("ca.crt: the authority is valid from") && error.contains("clock"), "{error}");
    assert!(!place.join("client-c.crt").exists() && !place.join("client-c.key").exists());
}

/// A process may end between the two renames of a pair. The next one completes it, and overwrites no key that an operator may need.
#[test]
fn a_pair_that_was_begun_is_made_anew_and_a_key_that_lost_its_certificate_stays() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let begun = |certificate: &Path| fs::rename(certificate, certificate.with_added_extension("new")).unwrap();
    let authority = create_authority(place, DAYS).unwrap().files;
    begun(&authority.certificate);
    create_authority(place, DAYS).unwrap();
    let own = make(place, DAYS, Present::Kept).files;
    begun(&own.certificate);
    let own = make(place, DAYS, Present::Kept).files;
    load(&own).unwrap().check_chain(unix_seconds()).unwrap();
    let left = fs::read_dir(place).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(left.filter(|name| name.ends_with(".new")).count(), 0);

    let key = fs::read(&own.key).unwrap();
    let again = || create(place, Role::Client, "c", &[], DAYS, Present::Kept).unwrap_err().to_string();
    assert!(again().contains("client-c.crt exists already and is not overwritten; `--renew`"), "{}", again());
    // The temporary file beside it belongs to another key.
    fs::copy(&authority.certificate, own.certificate.with_added_extension("new")).unwrap();
    fs::remove_file(&own.certificate).unwrap();
    assert!(again().contains("client-c.key exists already and is not overwritten; its certificate"), "{}", again());
    assert_eq!(fs::read(&own.key).unwrap(), key);
    make(place, DAYS, Present::Replaced);
    fs::remove_file(&authority.certificate).unwrap();
    let refusal = create_authority(place, DAYS).unwrap_err().to_string();
    assert!(refusal.contains("ca.key exists already and is not overwritten; its ca.crt is missing"), "{refusal}");
}

/// Goal: a process that hangs does not block others for ever, and a process that waits in vain names the cause.
#[test]
fn the_lock_of_a_directory_is_not_waited_for_without_a_bound() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let open = || fs::File::open(place).unwrap();
    let holder = open();
    holder.lock().unwrap();
    let refusal = lock(&open(), place, Duration::ZERO).unwrap_err().to_string();
    assert!(refusal.contains("held the lock of this directory") && refusal.contains("try again"), "{refusal}");
    assert!(refusal.contains(&place.display().to_string()), "{refusal}");
    drop(holder);
    lock(&open(), place, Duration::ZERO).unwrap();
}
