//! `transact`: changes of several tasks at once, read from JSON.

use super::children::{self, Child, Object, Shape, decode};
use super::error::{Exit, Failure};
use super::parse::{self, DataArguments};
use super::runner::unexpected;
use super::{Call, Runner, Transport};
use clap::Args;
use norn_client::session::{ChangeDraft, Seen, TransactionDraft};
use norn_wire::limits::TRANSACTION_BYTES_MAX;
use norn_wire::transaction::{Delete, Depend, Expected, Refusal};
use norn_wire::{Error, ErrorCode, Response, Retry, TaskId, TaskVersion};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// Largest file: room for the fields besides the tasks' data, and for the encoding of the data.
const FILE_BYTES_MAX: usize = 4 * TRANSACTION_BYTES_MAX;

/// Arguments of `transact`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct TransactArguments {
    /// The transaction as JSON: lists `adds`, `changes`, `deletes` and `depends`
    #[command(flatten)]
    pub data: DataArguments,
}

/// Fields of a transaction. They are named as in taskstore, and those of tasks as in `enqueue` and `get --json`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    adds: Vec<Object<Child>>,
    #[serde(default)]
    changes: Vec<Object<ChangeFields>>,
    #[serde(default)]
    deletes: Vec<Object<DeleteFields>>,
    #[serde(default)]
    depends: Vec<Object<DependFields>>,
    near: Option<String>,
    id: Option<String>,
}

/// Task and its precondition.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DependFields {
    id: String,
    version: Option<String>,
    token: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeleteFields {
    id: String,
    version: Option<String>,
    token: Option<String>,
    result: Option<String>,
    result_encoding: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeFields {
    id: String,
    version: Option<String>,
    token: Option<String>,
    data: Option<String>,
    data_encoding: Option<String>,
    #[serde(default, deserialize_with = "headers")]
    headers: Option<BTreeMap<String, String>>,
    #[serde(default, deserialize_with = "children::priority")]
    priority: Option<i32>,
    delay: Option<String>,
    at: Option<String>,
    #[serde(default, alias = "attempts_max", deserialize_with = "children::attempts")]
    max_attempts: Option<u32>,
    #[serde(default)]
    release: bool,
}

impl Shape for File {
    const SHAPE: &'static str = "an object with lists `adds`, `changes`, `deletes` or `depends`";
}

impl Shape for DependFields {
    const SHAPE: &'static str = "an object with `id`, and `version` or `token`";
}

impl Shape for DeleteFields {
    const SHAPE: &'static str = "an object with `id`, and `version` or `token`";
}

impl Shape for ChangeFields {
    const SHAPE: &'static str = "an object with `id`, and what is to be changed";
}

fn headers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    /// Headers, if present.
    #[derive(Deserialize)]
    struct Headers(#[serde(deserialize_with = "children::headers")] BTreeMap<String, String>);
    Ok(Option::<Headers>::deserialize(deserializer)?.map(|headers| headers.0))
}

/// Parses a whole id: what a few characters of an id stand for may change.
fn whole_id(text: &str) -> Result<TaskId, String> {
    text.parse().map_err(|error| format!("{error}; in a transaction, each id is whole"))
}

fn seen(id: &str, version: Option<&str>, token: Option<&str>) -> Result<(TaskId, Expected), String> {
    let id = whole_id(id)?;
    let expected = match (version, token) {
        (None, None) => Expected::Present,
        (Some(version), None) => Expected::Version(version.parse().map_err(|error| format!("{error}"))?),
        (None, Some(token)) => Expected::Token(token.parse().map_err(|error| format!("{error}"))?),
        (Some(_), Some(_)) => return Err("a task is found by its version or by a token; leave one of them out".into()),
    };
    Ok((id, expected))
}

impl ChangeFields {
    fn draft(self) -> Result<ChangeDraft, String> {
        let mut draft = ChangeDraft::of(Seen::from(seen(&self.id, self.version.as_deref(), self.token.as_deref())?));
        if let Some(data) = self.data {
            draft = draft.payload(decode(data, self.data_encoding.as_deref(), "data")?);
        }
        draft.change.headers = self.headers.map(|headers| headers.into_iter().collect());
        draft.change.priority = self.priority;
        draft.change.attempts_max = self.max_attempts;
        draft.change.not_before_ms = self.at.as_deref().map(parse::instant_ms).transpose()?;
        draft.delay_ms = self.delay.as_deref().map(parse::duration_ms).transpose()?;
        draft.change.release = self.release;
        Ok(draft)
    }
}

impl DeleteFields {
    fn delete(self) -> Result<Delete, String> {
        let (id, expected) = seen(&self.id, self.version.as_deref(), self.token.as_deref())?;
        let encoding = self.result_encoding.as_deref();
        let result = self.result.map(|result| decode(result, encoding, "result")).transpose()?.map(Into::into);
        Ok(Delete { id, expected, result })
    }
}

/// Reads the transaction of a file.
fn read(bytes: &[u8]) -> Result<TransactionDraft, Failure> {
    let wrong = |error: serde_json::Error| Failure::invalid(format!("this is no transaction in JSON: {error}"));
    let Object(file): Object<File> = serde_json::from_slice(bytes).map_err(wrong)?;
    fn each<F, T>(
        what: &str,
        fields: Vec<Object<F>>,
        read: impl Fn(F) -> Result<T, String>,
    ) -> Result<Vec<T>, Failure> {
        let wrong = |place: usize, error: String| Failure::invalid(format!("{what}, number {}: {error}", place + 1));
        let read = |(place, Object(fields))| read(fields).map_err(|error| wrong(place, error));
        fields.into_iter().enumerate().map(read).collect()
    }
    let depend = |fields: DependFields| {
        let (id, expected) = seen(&fields.id, fields.version.as_deref(), fields.token.as_deref())?;
        Ok(Depend { id, expected })
    };
    let id = |what: &str, text: Option<String>| {
        let wrong = |error| Failure::invalid(format!("{what}: {error}"));
        text.map(|text| whole_id(&text).map_err(wrong)).transpose()
    };
    Ok(TransactionDraft {
        id: id("id", file.id)?,
        near: id("near", file.near)?,
        adds: each("adds", file.adds, children::draft)?,
        changes: each("changes", file.changes, ChangeFields::draft)?,
        deletes: each("deletes", file.deletes, DeleteFields::delete)?,
        depends: each("depends", file.depends, depend)?,
    })
}

/// Task and its version.
#[derive(Serialize)]
struct StampLine {
    id: String,
    version: String,
}

#[derive(Serialize)]
struct DoneLine {
    added: Vec<StampLine>,
    changed: Vec<StampLine>,
}

#[derive(Serialize)]
struct RefusedLine {
    error: RefusedBody,
}

#[derive(Serialize)]
struct RefusedBody {
    code: ErrorCode,
    message: String,
    retry: Retry,
    changes: Vec<String>,
    deletes: Vec<String>,
    depends: Vec<String>,
    owned: Vec<String>,
    bugs: Vec<String>,
}

fn refused_line(refusal: &Refusal) -> RefusedLine {
    let ids = |ids: &[TaskId]| ids.iter().map(TaskId::to_string).collect();
    let error = RefusedBody {
        code: ErrorCode::Conflict,
        message: refusal.to_string(),
        retry: Retry::Never,
        changes: ids(&refusal.changes),
        deletes: ids(&refusal.deletes),
        depends: ids(&refusal.depends),
        owned: ids(&refusal.owned),
        bugs: refusal.bugs.clone(),
    };
    RefusedLine { error }
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
                    runner.output.object(&refused_line(&refusal))?;
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
    let (adds, changes) = stamps.split_at(added.min(stamps.len()));
    if runner.output.json() {
        let line =
            |(id, version): &(TaskId, TaskVersion)| StampLine { id: id.to_string(), version: version.to_string() };
        let (added, changed) = (adds.iter().map(line).collect(), changes.iter().map(line).collect());
        return runner.output.object(&DoneLine { added, changed });
    }
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
    use norn_client::session::Draft;
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
