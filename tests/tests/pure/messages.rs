//! Messages between nodes on the wire.

use norn_model::message::PeerMessage;
use norn_tests::binary;
use norn_tests::fuzz::messages::peer_messages;
use norn_wire::codec::Body;
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
