//! `transact`: changes of several tasks at once, read from JSON.

use super::error::{Exit, Failure};
use super::parse::DataArguments;
use super::runner::unexpected;
use super::{Call, Runner, Transport};
use clap::Args;
use norn_client::api::{RefusalReport, TransactionAck, TransactionInput};
use norn_client::session::TransactionDraft;
use norn_wire::limits::TRANSACTION_BYTES_MAX;
use norn_wire::transaction::Refusal;
use norn_wire::{Error, ErrorCode, Response, TaskId, TaskVersion};

/// Largest file: room for the fields besides the tasks' data, and for the encoding of the data.
const FILE_BYTES_MAX: usize = 4 * TRANSACTION_BYTES_MAX;

/// Arguments of `transact`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct TransactArguments {
    /// The transaction as JSON: lists `adds`, `changes`, `deletes` and `depends`
    #[command(flatten)]
    pub data: DataArguments,
}

/// Reads the transaction of a file.
fn read(bytes: &[u8]) -> Result<TransactionDraft, Failure> {
    let wrong = |error: serde_json::Error| Failure::invalid(format!("this is no transaction in JSON: {error}"));
    let input: TransactionInput = serde_json::from_slice(bytes).map_err(wrong)?;
    TransactionDraft::try_from(input).map_err(|error| Failure::invalid(error.to_string()))
}

/// Explains an unknown outcome. The id of a transaction is not that of a task, so `get` would not find it: it serves for a repeat.
fn explain(failure: Failure, json: bool) -> Failure {
    match failure {
        Failure::Call(error) if error.code == ErrorCode::Unknown && !json => match error.id {
            Some(id) => {
                let message =
                    format!("{}; with \"id\": \"{id}\" in its JSON, it is repeated as the same one", error.message);
                Failure::Call(Error { message, id: None, ..error })
            }
            None => Failure::Call(error),
        },
        other => other,
    }
}

impl TransactArguments {
    pub(super) async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        let data = runner.read_data(self.data.data.as_deref(), self.data.file.as_ref(), FILE_BYTES_MAX).await?;
        let Some(data) = data else {
            let message = "say what is to be done: as JSON, with --file FILE, or with - on standard input";
            return Err(Failure::Usage(message.into()));
        };
        let draft = read(&data)?;
        let added = draft.adds.len();
        let outcome = runner.call(Call::Transact { draft: Box::new(draft) }).await;
        let Response::Transacted(told) = outcome.map_err(|failure| explain(failure, runner.output.json()))? else {
            return Err(unexpected("transact"));
        };
        match told {
            Ok(stamps) => {
                stamps.iter().for_each(|(id, _)| runner.recent().see(*id));
                print_done(runner, &stamps, added)?;
                Ok(Exit::Done)
            }
            Err(refusal) => {
                let Refusal { changes, deletes, depends, owned, .. } = &*refusal;
                let named = [changes, deletes, depends, owned].into_iter().flatten();
                named.for_each(|id| runner.recent().see(*id));
                if runner.output.json() {
                    runner.output.object(&RefusalReport::from(&*refusal))?;
                } else {
                    let message = refusal.to_string().replace("; ", "\n");
                    runner.output.error(&Error::new(ErrorCode::Conflict, message))?;
                }
                Ok(Exit::Refused)
            }
        }
    }
}

fn print_done<T: Transport>(
    runner: &mut Runner<T>,
    stamps: &[(TaskId, TaskVersion)],
    added: usize,
) -> Result<(), Failure> {
    if runner.output.json() {
        return runner.output.object(&TransactionAck::new(stamps, added));
    }
    let (adds, changes) = stamps.split_at(added.min(stamps.len()));
    for (what, stamps) in [("added", adds), ("changed", changes)] {
        for (id, version) in stamps {
            runner.output.line(&format!("{what} {id}, version {version}"))?;
        }
    }
    if stamps.is_empty() {
        runner.output.line("done")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Place;
    use super::super::tests::{run, run_at};
    use super::*;
    use norn_client::session::{ChangeDraft, Draft};
    use norn_wire::{QueueName, Token};

    const ID: &str = "000038g2m4d7kq9rjscg0080000w3n5t";

    fn id() -> TaskId {
        ID.parse().unwrap()
    }

    fn queue() -> QueueName {
        QueueName::new("mail").unwrap()
    }

    #[test]
    fn everything_that_a_transaction_does_can_be_said() {
        let text = format!(
            r#"{{"adds": [{{"queue": "mail", "data": "AAE=", "data_encoding": "base64"}}],
                "changes": [{{"id": "{ID}", "token": "7.42", "data": "half", "priority": 3, "delay": "10s", "release": true}}],
                "deletes": [{{"id": "{ID}", "version": "00000000000000ff"}}, {{"id": "{ID}", "token": "7.42", "result": "x"}}],
                "depends": [{{"id": "{ID}"}}], "near": "{ID}"}}"#
        );
        let token = Token { epoch: 7, number: 42 };
        let change = ChangeDraft::of((id(), token)).payload("half").priority(3).delay_ms(10_000).release();
        let expected = TransactionDraft::new()
            .enqueue(Draft::new(queue(), [0, 1]))
            .change(change)
            .delete((id(), TaskVersion(255)))
            .complete(id(), token, "x")
            .depend(id())
            .near(id());
        assert_eq!(read(text.as_bytes()).unwrap(), expected);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (text, what) in [
            ("nonsense".to_owned(), "no transaction in JSON"),
            (r#"{"adds": [], "removes": []}"#.to_owned(), "removes"),
            (r#"{"adds": [{"queue": "a"}, {"queue": "a b"}]}"#.to_owned(), "adds, number 2"),
            (r#"{"deletes": [{"id": "x"}]}"#.to_owned(), "deletes, number 1"),
            (r#"{"adds": [{"queue": "a", "headers": {"h": "1", "h": "2"}}]}"#.to_owned(), "\"h\" is given twice"),
            (
                format!(r#"{{"changes": [{{"id": "{ID}", "headers": {{"h": "1", "h": "1"}}}}]}}"#),
                "\"h\" is given twice",
            ),
            (format!(r#"{{"changes": [{{"id": "{ID}", "version": "z"}}]}}"#), "16 hexadecimal digits"),
            (
                format!(r#"{{"depends": [{{"id": "{ID}", "version": "00000000000000ff", "token": "1.1"}}]}}"#),
                "leave one",
            ),
        ] {
            let Err(Failure::Call(error)) = read(text.as_bytes()) else { panic!("{text}") };
            assert!(error.message.contains(what), "{text}: {}", error.message);
        }
    }

    // T35, T42, T43, T44
    #[tokio::test]
    async fn what_was_done_and_what_stood_against_it_is_told() {
        let done = || Ok(Response::Transacted(Ok(vec![(id(), TaskVersion(1)), (id(), TaskVersion(2))])));
        let line = r#"transact '{"adds": [{"queue": "mail"}]}'"#;
        let outcome = run(line, [done()]).await;
        let [(Call::Transact { draft }, None)] = &outcome.calls[..] else { panic!("{:?}", outcome.calls) };
        assert_eq!(draft.adds, [Draft::new(queue(), "")]);
        let added = format!("added {ID}, version 0000000000000001\nchanged {ID}, version 0000000000000002\n");
        assert_eq!((outcome.printed, outcome.exit), (added, Exit::Done));
        let outcome = run(&format!("{line} --json"), [done()]).await;
        let stamp = |number| format!(r#"{{"id":"{ID}","version":"000000000000000{number}"}}"#);
        assert_eq!(outcome.printed, format!("{{\"added\":[{}],\"changed\":[{}]}}\n", stamp(1), stamp(2)));
        let refusal = || Refusal { owned: vec![id()], ..Refusal::default() };
        let refused = || Ok(Response::Transacted(Err(Box::new(refusal()))));
        let outcome = run(line, [refused()]).await;
        assert_eq!((outcome.exit, outcome.printed.as_str()), (Exit::Refused, ""));
        let outcome = run(&format!("{line} --json"), [refused()]).await;
        assert!(outcome.printed.contains(&format!(r#""owned":["{ID}"]"#)), "{}", outcome.printed);
        let outcome = run("transact", []).await;
        assert_eq!(outcome.exit, Exit::Usage);
        let unknown = || Err(Error::new(ErrorCode::Unknown, "no answer in time").about(id()));
        let outcome = run(line, [unknown()]).await;
        assert!(outcome.noted.contains(&format!("with \"id\": \"{ID}\"")), "{}", outcome.noted);
        assert!(!outcome.noted.contains("`get "), "a transaction is no task: {}", outcome.noted);
        let outcome = run(&format!("{line} --json"), [unknown()]).await;
        assert!(outcome.printed.contains(&format!(r#""id":"{ID}""#)), "{}", outcome.printed);
    }

    #[test]
    fn what_is_no_transaction_is_told_what_one_is() {
        for (text, wanted) in [
            ("[]", "an object with lists `adds`, `changes`, `deletes` or `depends`"),
            ("3", "an object with lists"),
            ("[[], [], [], []]", "invalid type: sequence, expected an object with lists"),
            (r#"{"changes": [["x", 1]]}"#, "an object with `id`, and what is to be changed"),
            (r#"{"adds": [{"queue": "a", "max_attempts": -1}]}"#, "a whole number from 0 to 4294967295"),
            (r#"{"changes": [{"id": "x", "priority": "high"}]}"#, "a whole number from -2147483648 to 2147483647"),
            (r#"{"deletes": [[]]}"#, "an object with `id`, and `version` or `token`"),
            (r#"{"adds": [[]]}"#, "a task as an object with `queue`"),
        ] {
            let Err(Failure::Call(error)) = read(text.as_bytes()) else { panic!("{text}") };
            assert!(error.message.contains(wanted) && !error.message.contains("struct"), "{text}: {}", error.message);
        }
    }

    #[tokio::test]
    async fn a_transaction_comes_from_standard_input() {
        let done = Ok(Response::Transacted(Ok(Vec::new())));
        let input = br#"{"deletes": [{"id": "000038g2m4d7kq9rjscg0080000w3n5t"}]}"#;
        let outcome = run_at(Place::CommandLine, "transact -", input, [done]).await;
        assert_eq!((outcome.printed.as_str(), outcome.exit), ("done\n", Exit::Done));
    }
}
