//! Messages between nodes on the wire.

use norn_model::message::{LogPosition, PeerMessage};
use norn_tests::binary;
use norn_tests::fuzz::messages::peer_messages;
use norn_wire::codec::Body;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

/// File with the bytes of each sample, as the nodes of earlier commits wrote them: one line each, name and hexadecimal digits.
const GOLDEN: &str = "tests/tests/pure/messages.txt";

/// Goal: nodes of different commits that speak the same protocol version understand each other. Method: samples of all kinds are written
/// as the golden lines say, and those lines are read as the samples.
#[test]
fn messages_are_written_and_read_as_by_earlier_nodes() {
    let golden = fs::read_to_string(binary::workspace().join(GOLDEN)).unwrap_or_default();
    let mut lines = String::new();
    for message in peer_messages() {
        let mut bytes = Vec::new();
        message.write_compact(&mut bytes);
        assert_eq!(PeerMessage::read(&bytes).as_ref(), Ok(&message));
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(lines, "{} {digits}", message.name()).expect("a string takes all");
    }
    if lines != golden {
        let new = std::env::temp_dir().join("norn-messages.txt");
        fs::write(&new, &lines).expect("the directory for such files can be written");
        panic!("messages are written in another way than {GOLDEN} says; what is written now is in {}", new.display());
    }
}

/// Goal: a new kind of message has a sample, so that its bytes are kept and the fuzzers begin with it, and a row in the document.
#[test]
fn each_message_has_a_sample_and_a_row_in_the_document() {
    let names: BTreeSet<&str> = peer_messages().iter().map(PeerMessage::name).collect();
    assert_eq!(names.len(), PeerMessage::wire_names().len(), "kinds with a sample, and all kinds");
    let document = fs::read_to_string(binary::workspace().join("node/docs/messages.md")).expect("it is there");
    let missing = |name: &&&str| !document.contains(&format!("`{}`", camel_case(name)));
    let missing: Vec<&&str> = names.iter().filter(missing).collect();
    assert!(missing.is_empty(), "without a row: {missing:?}");
}

/// Goal: a message that rests on the sender's disk carries how far that is durable, in each family.
#[test]
fn a_log_position_that_is_filled_in_is_the_one_that_is_read() {
    let word = LogPosition { boot: 7, durable: 1_000, start: 3 };
    for mut message in peer_messages() {
        let has_one = message.log().is_some();
        message.set_log(word);
        let is_heartbeat = message.name() == "heartbeat";
        assert_eq!(message.log() == Some(word), has_one && !is_heartbeat, "{}", message.name());
    }
}

fn camel_case(name: &str) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    name.split('_').map(capital).collect()
}
