//! Requests and answers as taskstore writes them.

use super::ids::{NUMBER_MAX, number};
use super::names::Store;
use norn_client::client::calling::has_ended;
use norn_wire::TaskId;
use norn_wire::response::TaskView;
use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};

/// Header of a task with the client that added, updated or claimed it.
pub const OWNER_HEADER: &str = "taskstore-owner";

/// Body of `update`.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Update {
    /// Who asks.
    pub clientid: i64,
    /// Tasks to add.
    #[serde(default, deserialize_with = "list")]
    pub adds: Vec<Add>,
    /// Tasks to replace.
    #[serde(default, deserialize_with = "list")]
    pub updates: Vec<Renewal>,
    /// Tasks to delete.
    #[serde(default, deserialize_with = "list")]
    pub deletes: Vec<u64>,
    /// Tasks that must be there.
    #[serde(default, deserialize_with = "list")]
    pub depends: Vec<u64>,
}

/// A task to add. A client may send a whole task: its id and its owner are drawn and set here.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "AnyAdd")]
pub struct Add {
    /// Where to.
    pub group: String,
    /// Its data; empty if left out.
    pub data: String,
    /// When it becomes available.
    pub timespec: Option<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnyAdd {
    group: String,
    data: Option<String>,
    timespec: Option<i64>,
    #[serde(default, rename = "id")]
    _id: IgnoredAny,
    #[serde(default, rename = "ownerid")]
    _owner: IgnoredAny,
}

impl From<AnyAdd> for Add {
    fn from(AnyAdd { group, data, timespec, .. }: AnyAdd) -> Add {
        Add { group, data: data.unwrap_or_default(), timespec }
    }
}

/// A task to replace. A client may send a whole task: its group stays, and its owner is set here.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "AnyRenewal")]
pub struct Renewal {
    /// The task as it is.
    pub id: u64,
    /// Its new data; empty if left out.
    pub data: String,
    /// When the new task becomes available.
    pub timespec: Option<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnyRenewal {
    id: u64,
    data: Option<String>,
    timespec: Option<i64>,
    #[serde(default, rename = "group")]
    _group: IgnoredAny,
    #[serde(default, rename = "ownerid")]
    _owner: IgnoredAny,
}

impl From<AnyRenewal> for Renewal {
    fn from(AnyRenewal { id, data, timespec, .. }: AnyRenewal) -> Renewal {
        Renewal { id, data: data.unwrap_or_default(), timespec }
    }
}

/// Body of `claim`.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Who asks.
    pub clientid: i64,
    /// Where from.
    pub group: String,
    /// How long the task is to be owned, in milliseconds.
    pub duration: u64,
    /// Tasks that must be there.
    #[serde(default, deserialize_with = "list")]
    pub depends: Vec<u64>,
}

/// A list; `null` is an empty one, as some languages write it.
fn list<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Query of `group`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupQuery {
    /// Most tasks to list; 0: all.
    #[serde(default)]
    pub limit: u64,
    /// Whether owned tasks are listed, too.
    #[serde(default, deserialize_with = "yes_or_no")]
    pub owned: bool,
}

fn yes_or_no<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let text = String::deserialize(deserializer)?;
    match text.to_ascii_lowercase().as_str() {
        "1" | "yes" | "true" => Ok(true),
        "0" | "no" | "false" => Ok(false),
        _ => Err(D::Error::custom(format!("owned is 0, 1, yes, no, true or false, not {text:?}"))),
    }
}

/// Parses one number of a path.
pub fn parse_number(text: &str) -> Result<u64, String> {
    let wrong = || format!("an id is a whole number, not {text:?}");
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    // Digits beyond the range of numbers are an id that no task has.
    Ok(text.parse().unwrap_or(NUMBER_MAX + 1))
}

/// A task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Task {
    /// Its number.
    pub id: u64,
    /// Its group.
    pub group: String,
    /// Its data.
    pub data: String,
    /// When it becomes, or became, available, in milliseconds since the Unix epoch.
    pub timespec: u64,
    /// Who added, updated or claimed it.
    pub ownerid: i64,
}

impl Task {
    /// The task of the store that a view shows. `None`: it has ended, or is none of this service.
    pub fn of(store: &Store, view: &TaskView) -> Option<Task> {
        if has_ended(view.state) {
            return None;
        }
        let (id, group) = (number(view.id).filter(|_| view.id.tag() == store.tag)?, store.group(&view.spec.queue)?);
        let owner = view.spec.headers.iter().find(|(name, _)| name == OWNER_HEADER);
        Some(Task {
            id,
            group,
            data: String::from_utf8_lossy(&view.spec.payload).into_owned(),
            timespec: view.spec.not_before_ms,
            ownerid: owner.and_then(|(_, value)| value.parse().ok()).unwrap_or(0),
        })
    }

    /// Whether another client than this one owns it.
    pub fn is_kept_from(&self, client: i64, now_ms: u64) -> bool {
        self.timespec > now_ms && self.ownerid != client
    }
}

/// Answer of `update` and `claim`.
#[derive(Debug, Default, Serialize)]
pub struct Answer {
    /// What was added, then what was replaced.
    pub tasks: Vec<Task>,
    /// Why nothing was changed.
    pub error: Option<Refusal>,
}

/// Why nothing was changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// Tasks to replace that are not there.
    pub changes: Vec<u64>,
    /// Tasks to delete that are not there.
    pub deletes: Vec<u64>,
    /// Tasks depended on that are not there.
    pub depends: Vec<u64>,
    /// Tasks to replace or to delete that another client owns.
    pub owned: Vec<u64>,
    /// Anything else, for people.
    pub bugs: Vec<String>,
}

impl Refusal {
    /// A refusal for a reason that has no list.
    pub fn bug(text: impl Into<String>) -> Refusal {
        Refusal { bugs: vec![text.into()], ..Refusal::default() }
    }

    /// Whether there is no reason.
    pub fn is_empty(&self) -> bool {
        *self == Refusal::default()
    }
}

/// Numbers of tasks that a node has named.
pub fn numbers(ids: &[TaskId]) -> impl Iterator<Item = u64> + '_ {
    ids.iter().filter_map(|id| number(*id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // T34, T35, T36: only the group of an add and the id of an update are required
    #[test]
    fn what_may_be_left_out_may_be_null_and_whole_tasks_are_taken() {
        let read = |text: &str| serde_json::from_str::<Update>(text);
        let least = read(r#"{"clientid":1,"adds":[{"group":"map"}],"updates":[{"id":14}]}"#).unwrap();
        assert_eq!(least.adds, [Add { group: "map".into(), data: String::new(), timespec: None }]);
        assert_eq!(least.updates, [Renewal { id: 14, data: String::new(), timespec: None }]);
        let null = r#"{"clientid":1,"adds":null,"updates":[{"id":14,"data":null,"timespec":null}],"deletes":null}"#;
        assert_eq!(read(null).unwrap().updates, least.updates);
        let whole = r#"{"id":7,"group":"map","data":"","timespec":0,"ownerid":3}"#;
        let whole = read(&format!(r#"{{"clientid":1,"adds":[{whole}],"updates":[{whole}]}}"#)).unwrap();
        assert_eq!((whole.adds.len(), whole.updates[0].id), (1, 7));
        for wrong in [
            r#"{"adds":[]}"#,
            r#"{"clientid":"a"}"#,
            r#"{"clientid":1,"adds":[{"data":"x"}]}"#,
            r#"{"clientid":1,"updates":[{"data":"x"}]}"#,
            r#"{"clientid":1,"deletes":[-1]}"#,
            r#"{"clientid":1,"remove":[1]}"#,
            r#"{"clientid":1,"adds":[{"group":"map","priority":1}]}"#,
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    // T33
    #[test]
    fn owned_is_written_in_six_ways_and_is_no_by_default() {
        let read = |text: &str| serde_urlencoded::from_str::<GroupQuery>(text);
        assert_eq!(read("").unwrap(), GroupQuery { limit: 0, owned: false });
        for (text, owned) in [("1", true), ("yes", true), ("true", true), ("0", false), ("no", false), ("false", false)]
        {
            assert_eq!(read(&format!("limit=3&owned={text}")).unwrap(), GroupQuery { limit: 3, owned });
        }
        for wrong in ["owned=maybe", "owned=", "limit=-1", "limit=x", "order=id"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_a_parser_panic(text in "\\PC{0,60}") {
            let _ = serde_json::from_str::<Update>(&text);
            let _ = serde_json::from_str::<Claim>(&text);
            let _ = serde_urlencoded::from_str::<GroupQuery>(&text);
            let _ = parse_number(&text);
        }

        #[test]
        fn digits_are_ids(text in "[0-9]{1,40}") {
            let parsed = parse_number(&text).unwrap();
            prop_assert!(text.parse::<u64>().map_or(parsed > NUMBER_MAX, |number| number == parsed));
        }
    }
}
