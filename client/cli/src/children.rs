//! Child tasks of a completion, as read from a JSON file.

use super::Draft;
use super::error::Failure;
use norn_client::api::TasksInput;
use norn_wire::limits::CHILDREN_BYTES_MAX;

/// Largest file: room for the fields besides the tasks' data, and for the encoding of the data.
pub(super) const FILE_BYTES_MAX: usize = 4 * CHILDREN_BYTES_MAX;

/// Reads the tasks of a file.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<Draft>, Failure> {
    let wrong = |error: serde_json::Error| Failure::invalid(format!("--then is no list of tasks in JSON: {error}"));
    let tasks: TasksInput = serde_json::from_slice(bytes).map_err(wrong)?;
    tasks.drafts("--then").map_err(|error| Failure::invalid(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use norn_wire::{QueueName, TaskId};

    #[test]
    fn one_task_or_a_list_is_read_with_all_that_enqueue_knows() {
        let one = read(br#"{"queue": "mail", "data": "hello"}"#).unwrap();
        assert_eq!(one, vec![Draft::new(QueueName::new("mail").unwrap(), "hello")]);
        let list = br#"[{"queue": "a/b", "data": "AAE=", "data_encoding": "base64", "priority": -2, "delay": "1m30s",
            "max_attempts": 3, "headers": {"k": "v"}}, {"queue": "c", "at": "2030-01-31T09:30:00Z"}]"#;
        let several = read(list).unwrap();
        assert_eq!(several[0].spec.payload, [0, 1]);
        assert_eq!((several[0].spec.priority, several[0].delay_ms, several[0].spec.attempts_max), (-2, 90_000, 3));
        assert_eq!(several[0].spec.headers, [("k".to_owned(), "v".to_owned())]);
        assert!(several[1].spec.not_before_ms > 0);
    }

    // O22
    #[test]
    fn a_group_comes_with_its_join() {
        let list = br#"[{"queue": "pages", "number": 2}, {"queue": "books", "join": {"total": 2, "fail_fast": true}},
            {"queue": "pages", "number": 1}, {"queue": "mail"}]"#;
        let drafts = read(list).unwrap();
        let pages = || Draft::new(QueueName::new("pages").unwrap(), "");
        assert_eq!(drafts[0], pages().member_of(TaskId::MIN, 2));
        assert_eq!(drafts[1], Draft::new(QueueName::new("books").unwrap(), "").join(Some(2), true));
        assert_eq!(drafts[2], pages().member_of(TaskId::MIN, 1));
        assert_eq!(drafts[3].spec.grouping, None);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let join = r#"{"queue": "a", "join": {"total": 2}}"#;
        for (text, what) in [
            (r#"[{"queue": "b"}, {"queue": "a", "number": 1}]"#.to_owned(), "task 2 of --then: it has a number"),
            (format!(r#"[{join}, {{"queue": "a", "number": 3}}]"#), "none of 1 to 2"),
            (format!(r#"[{join}, {{"queue": "a", "number": 0}}]"#), "a whole number from 1 to 10000"),
            (format!(r#"[{join}, {{"queue": "a", "number": 1}}, {{"queue": "a", "number": 1}}]"#), "task 3 of --then"),
            (r#"{"queue": "a", "number": 1, "join": {"total": 1}}"#.to_owned(), "not both"),
            (r#"{"queue": "a", "join": {"fail_fast": true}}"#.to_owned(), "total"),
        ] {
            let Err(Failure::Call(error)) = read(text.as_bytes()) else { panic!("{text}") };
            assert!(error.message.contains(what), "{text}: {}", error.message);
        }
        for (text, what) in [
            ("[{\"queue\": \"a\"}, {\"queue\": \"b\", \"dely\": \"1s\"}]", "task 2"),
            ("{\"data\": \"x\"}", "queue"),
            ("[{\"queue\": \"a\"}, {\"queue\": \"b\", \"queue\": \"c\"}]", "task 2: duplicate field `queue`"),
            ("[{\"queue\": \"b\", \"headers\": {\"h\": \"1\", \"h\": \"2\"}}]", "task 1: header \"h\" is given twice"),
            ("7", "a task or a list of tasks"),
            ("{\"queue\": \"a\", \"data\": \"%\", \"data_encoding\": \"base64\"}", "base64"),
            ("nonsense", "JSON"),
            ("[[\"a\", \"b\"]]", "task 1: invalid type: sequence, expected a task as an object with `queue`"),
            ("{\"queue\": \"a\", \"max_attempts\": -1}", "expected a whole number from 0 to 4294967295"),
            ("{\"queue\": \"a\", \"priority\": \"high\"}", "expected a whole number from -2147483648 to 2147483647"),
            ("{\"queue\": \"a\", \"priority\": 1.5}", "expected a whole number from -2147483648 to 2147483647"),
            ("{\"queue\": \"a\", \"number\": 10001}", "expected a whole number from 1 to 10000"),
            ("{\"queue\": \"a\", \"join\": {\"total\": -1}}", "expected a whole number from 0 to 10000"),
            ("{\"queue\": \"a\", \"join\": [1]}", "expected an object with `total`"),
        ] {
            let Err(Failure::Call(error)) = read(text.as_bytes()) else { panic!("{text}") };
            assert!(error.message.contains(what), "{text}: {}", error.message);
        }
    }
}
