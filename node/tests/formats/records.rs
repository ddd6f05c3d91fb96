//! Records of earlier versions, without the fields that were added since.
//!
//! `old-log.txt` is never rewritten: each line has the kind of a record and its body.

use crate::samples::{of_digests, of_tables};
use norn_model::record::Record;
use std::fmt::Write;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

fn line(record: &Record) -> String {
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    format!("{} {}", record.kind(), hex(&bytes))
}

fn lines() -> impl Iterator<Item = &'static str> {
    include_str!("old-log.txt").lines()
}

/// Goal: a record of an earlier version is read with its meaning, and again after it is written in the current form.
#[test]
fn records_of_before_are_read() {
    let expected = [of_digests(), of_tables()].concat();
    assert_eq!(lines().count(), expected.len());
    for (line, expected) in lines().zip(&expected) {
        let (kind, text) = line.split_once(' ').expect("a kind and a body");
        let byte = |place: usize| u8::from_str_radix(&text[2 * place..2 * place + 2], 16).expect("hexadecimal");
        let old: Vec<u8> = (0..text.len() / 2).map(byte).collect();
        assert_eq!(Record::decode(&old).expect("it is read"), *expected, "{kind}");
        let mut new = Vec::new();
        expected.encode(&mut new);
        assert_eq!(Record::decode(&new).expect("it is read"), *expected, "{kind}");
    }
}

/// Goal: replicas, and logs of earlier versions, agree on digests of facts and of the metadata group. Method: the digests' input has
/// the same bytes.
#[test]
fn what_digests_go_over_has_the_same_bytes() {
    for (expected, record) in lines().zip(&of_digests()) {
        assert_eq!(line(record), expected);
    }
}
