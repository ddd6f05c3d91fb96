//! Content of a log record: ids, times and claims. Payloads, results and log entries belong to the tasks, so only their lengths are
//! shown.

use norn_cli::{Part, text};
use norn_model::claim_table::entry::{ClaimEntry, ClaimState};
use norn_model::claim_table::ledger::Decided;
use norn_model::claim_table::operation::{Ended, Op};
use norn_model::claim_table::table::ClaimTable;
use norn_model::record::Record;
use norn_model::task::{Completed, Facts, Task};
use norn_model::viewstamp::Viewstamp;
use norn_wire::response::ClaimEnd;
use norn_wire::transaction::Expected;
use norn_wire::{Spec, TaskId, Token};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// Fields that are times, in milliseconds since the Unix epoch; other fields in milliseconds are durations.
const INSTANTS: [&str; 7] = ["at_ms", "granted_ms", "expires_ms", "start_ms", "end_ms", "since_ms", "time_ms"];

/// One statement of a record.
#[derive(Debug)]
pub struct Item {
    /// Tasks that it is about.
    tasks: Vec<TaskId>,
    what: Value,
}

/// Content of a record.
#[derive(Debug)]
pub struct Content {
    /// Content about the record as a whole.
    whole: Value,
    items: Vec<Item>,
}

impl Content {
    /// Returns the content of a record, restricted to the named tasks, if any are named; `None` if it says nothing about these.
    pub fn of(record: &Record, named: Option<&Part>) -> Option<Content> {
        let mut content = describe(record);
        if let Some(named) = named {
            content.items.retain(|item| item.tasks.iter().any(|task| named.is_in(*task)));
            if content.items.is_empty() {
                return None;
            }
        }
        Some(content)
    }

    /// Formats for programs.
    pub fn object(self) -> Value {
        let mut object = self.whole;
        if !self.items.is_empty() {
            object["items"] = self.items.into_iter().map(|item| item.what).collect();
        }
        object
    }

    /// Formats for people: a line about the whole, and one for each item.
    pub fn lines(&self) -> Vec<String> {
        let items = self.items.iter().map(|item| {
            let mut rest = item.what.as_object().cloned().unwrap_or_default();
            let first: Vec<String> =
                ["what", "id"].iter().filter_map(|name| rest.remove(*name)).map(|it| shown(&it)).collect();
            format!("    {} {}", first.join(" "), fields(&Value::Object(rest))).trim_end().to_owned()
        });
        std::iter::once(fields(&self.whole)).chain(items).collect()
    }
}

/// Formats an object as `name=value`, without absent values.
fn fields(object: &Value) -> String {
    let mut line = String::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        let space = if line.is_empty() { "" } else { " " };
        match (name.strip_suffix("_ms"), value.as_u64()) {
            _ if value.is_null() || value.as_array().is_some_and(Vec::is_empty) => {}
            (Some(short), Some(ms)) if INSTANTS.contains(&name.as_str()) || name == "not_before_ms" && ms > 0 => {
                let _ = write!(line, "{space}{short}={}", text::instant(ms));
            }
            _ => {
                let _ = write!(line, "{space}{name}={}", shown(value));
            }
        }
    }
    line
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) if text.contains([' ', '"']) || text.is_empty() => format!("{:?}", text::clean(text)),
        Value::String(text) => text::clean(text),
        Value::Array(values) => format!("[{}]", values.iter().map(shown).collect::<Vec<_>>().join(" ")),
        Value::Object(_) => format!("({})", fields(value)),
        other => other.to_string(),
    }
}

fn ids(ids: &[TaskId]) -> Vec<String> {
    ids.iter().map(TaskId::to_string).collect()
}

fn stamp(viewstamp: Viewstamp) -> String {
    format!("{}.{}", viewstamp.epoch, viewstamp.length)
}

/// Creates an item about one task.
fn about(task: TaskId, what: &str, fields: Value) -> Item {
    let mut object = Map::from_iter([("what".to_owned(), what.into()), ("id".to_owned(), task.to_string().into())]);
    object.extend(fields.as_object().cloned().unwrap_or_default());
    // Absent values are not shown.
    object.retain(|_, value| !value.is_null());
    Item { tasks: vec![task], what: Value::Object(object) }
}

fn abouts(tasks: &[TaskId], what: &str) -> Vec<Item> {
    tasks.iter().map(|task| about(*task, what, json!({}))).collect()
}

/// Creates an item about no task.
fn other(what: &str, fields: Value) -> Vec<Item> {
    let mut object = Map::from_iter([("what".to_owned(), what.into())]);
    object.extend(fields.as_object().cloned().unwrap_or_default());
    vec![Item { tasks: Vec::new(), what: Value::Object(object) }]
}

fn describe(record: &Record) -> Content {
    let whole = |whole| Content { whole, items: Vec::new() };
    match record {
        Record::Identity { node, incarnation } => {
            whole(json!({ "node": node.to_string(), "incarnation": incarnation }))
        }
        Record::Boot { count } => whole(json!({ "count": count })),
        Record::Unanswered { began } => whole(json!({ "began": began })),
        Record::Genesis(genesis) => {
            let (cluster, name) = (genesis.cluster.to_string(), &genesis.name);
            let (partitions, replicas) = (genesis.partitions, genesis.replicas);
            let members: Vec<&str> = genesis.members.iter().map(|member| member.name.as_str()).collect();
            whole(
                json!({ "cluster": cluster, "name": name, "partitions": partitions, "replicas": replicas, "members": members }),
            )
        }
        Record::Roster(roster) => {
            whole(json!({ "version": roster.version, "members": roster.members.keys().collect::<Vec<_>>() }))
        }
        Record::HighWaterMark { time_ms, sessions } => whole(json!({ "time_ms": time_ms, "sessions": sessions })),
        Record::Vote { promised, voted_for, .. } => {
            let voted_for = voted_for.map(|replica| replica.node.to_string());
            whole(json!({ "promised": promised, "voted_for": voted_for }))
        }
        Record::Install { viewstamp, table, .. } => Content {
            whole: json!({ "viewstamp": stamp(*viewstamp), "table": table.is_some() }),
            items: table.as_ref().map_or_else(Vec::new, |table| table_items(table)),
        },
        Record::Ops { after, ops, .. } => {
            let at = |place: usize| Viewstamp { length: after.length.saturating_add(place as u64 + 1), ..*after };
            let items = ops.iter().enumerate().flat_map(|(place, op)| op_items(op, at(place))).collect();
            Content { whole: json!({ "after": stamp(*after) }), items }
        }
        Record::Facts { items, .. } => Content { whole: json!({}), items: facts_items(items) },
        Record::DataLoss { data_loss, .. } => whole(json!({ "facts": data_loss.facts, "table": data_loss.table })),
        Record::Left { advertised, .. } => whole(json!({ "epoch": advertised.epoch })),
        Record::Forgot { ids, .. } => Content { whole: json!({}), items: abouts(ids, "forgot") },
        Record::Hint { partition, since_ms, items } => {
            let whole = json!({ "of_partition": partition.0, "since_ms": since_ms });
            Content { whole, items: facts_items(items) }
        }
        Record::IdHint { to, partition, since_ms, ids } => {
            let whole = json!({ "to": to.to_string(), "of_partition": partition.0, "since_ms": since_ms });
            Content { whole, items: abouts(ids, "owed") }
        }
        Record::Handed { to, partition, ids } => {
            let whole = json!({ "to": to.map(|to| to.to_string()), "of_partition": partition.0 });
            Content { whole, items: abouts(ids, "handed") }
        }
        Record::Ran { us } => whole(json!({ "ran_us": us })),
        Record::LeaseAges { partition, ran_us, points } => {
            let ages = points.iter().map(|(at, age_ms)| json!({ "at": stamp(*at), "age_ms": age_ms }));
            whole(json!({ "of_partition": partition.0, "ran_us": ran_us, "ages": ages.collect::<Vec<_>>() }))
        }
        Record::Retired { reason } => whole(json!({ "reason": reason })),
        Record::End { covered, places, hints } => {
            whole(json!({ "covered": covered, "partitions": places.len(), "hints": hints }))
        }
    }
}

fn facts_items(items: &[(TaskId, Task)]) -> Vec<Item> {
    items.iter().map(|(id, task)| task_item(*id, "facts", task)).collect()
}

fn spec_object(spec: &Spec) -> Value {
    json!({
        "queue": spec.queue.as_str(), "payload_bytes": spec.payload.len(), "priority": spec.priority,
        "not_before_ms": spec.not_before_ms, "headers": spec.headers.len(), "attempts_max": spec.attempts_max,
        "after": ids(&spec.after), "key": spec.key,
        "revised_at": spec.revision.as_ref().map(|revision| revision.at.to_string()),
    })
}

fn completed_object(token: Token, completed: &Completed) -> Value {
    json!({
        "token": token.to_string(), "at_ms": completed.at_ms, "log_entries": completed.sequence,
        "result_bytes": completed.result.as_ref().map(|result| result.len()),
        "children": completed.children.as_ref().map(|children| ids(&children.ids)),
    })
}

/// Creates the item of a task's known facts. It is also about the children of its completions, whose origin it is.
fn task_item(id: TaskId, what: &str, task: &Task) -> Item {
    let spec = task.spec.as_ref().map(|spec| spec_object(spec));
    let tombstone =
        task.tombstone.as_ref().map(|tombstone| json!({ "state": tombstone.state.name(), "at_ms": tombstone.at_ms }));
    let mut known = json!({ "spec": spec, "tomb": tombstone });
    let mut children = Vec::new();
    if let (Some(facts), Some(known)) = (&task.facts, known.as_object_mut()) {
        known.extend(facts_object(facts).as_object().cloned().unwrap_or_default());
        let completions = facts.completions.iter().filter_map(|(_, completed)| completed.children.as_ref());
        children.extend(completions.flat_map(|brought| brought.ids.iter().copied()));
    }
    let mut item = about(id, what, known);
    item.tasks.extend(children);
    item
}

fn facts_object(facts: &Facts) -> Value {
    let Facts { updates, completions, cancel, claims, conflict, settled, seal, handed, group, purged } = facts;
    let updates = updates.iter().map(
        |((token, sequence), entry)| json!({ "token": token.to_string(), "sequence": sequence, "bytes": entry.len() }),
    );
    let completions = completions.iter().map(|(token, completed)| completed_object(*token, completed));
    let claims = claims.iter().map(|(token, claim)| {
        let (start_ms, end_ms) = (claim.start_ms, claim.end_ms);
        let fields =
            json!({ "token": token.to_string(), "start_ms": start_ms, "end_ms": end_ms, "worker": claim.worker });
        with_end(fields, claim.end.as_deref())
    });
    let settled =
        settled.iter().map(|(id, how)| json!({ "id": id.to_string(), "how": format!("{how:?}").to_lowercase() }));
    let list = |values: Vec<Value>| (!values.is_empty()).then_some(values);
    json!({
        "updates": list(updates.collect()),
        "completions": list(completions.collect()),
        "cancel": cancel.as_ref().map(|cancel| json!({ "dead": cancel.dead, "reason": cancel.reason, "at_ms": cancel.at_ms })),
        "claims": list(claims.collect()),
        "conflict": conflict.then_some(true),
        "settled": list(settled.collect()),
        "seal": seal.map(|token| token.to_string()),
        "handed": list(handed.iter().map(|token| token.to_string().into()).collect()),
        "group": group.as_ref().map(|group| json!({ "total": group.total, "joins": ids(&group.joins) })),
        "purged": purged.then_some(true),
    })
}

fn ended_items(ended: &[Ended]) -> Vec<Item> {
    ended.iter().map(|Ended { id, facts }| task_item(*id, "ended", facts)).collect()
}

fn table_items(table: &ClaimTable) -> Vec<Item> {
    let entries = table.entries.iter().map(|(id, entry)| about(*id, "claim", entry_object(entry)));
    let out = table.out.values().flat_map(|ended| ended_items(ended));
    let reserved = table.reserved.iter().map(|(id, spec)| about(*id, "reserved", json!({ "spec": spec_object(spec) })));
    let forgotten = abouts(&table.forgetting.ids, "forget");
    entries.chain(out).chain(reserved).chain(forgotten).collect()
}

/// Adds the fields of a claim's end, if there is one.
fn with_end(mut fields: Value, end: Option<&ClaimEnd>) -> Value {
    if let (Some(object), Some(ClaimEnd { outcome, at_ms, reason })) = (fields.as_object_mut(), end) {
        object.insert("end".to_owned(), json!({ "outcome": outcome.name(), "at_ms": at_ms, "reason": reason }));
    }
    fields
}

fn entry_object(entry: &ClaimEntry) -> Value {
    let state = match &entry.state {
        ClaimState::Held => json!("held"),
        ClaimState::Released { not_before_ms, end } => {
            json!({ "released": with_end(json!({ "not_before_ms": not_before_ms }), end.as_deref()) })
        }
        ClaimState::Void => json!("void"),
        ClaimState::Dead { reason, at_ms, end } => {
            json!({ "dead": with_end(json!({ "reason": &**reason, "at_ms": at_ms }), end.as_deref()) })
        }
        ClaimState::Sealed { completed } => json!({ "sealed": completed_object(entry.token, completed) }),
    };
    json!({
        "token": entry.token.to_string(), "state": state, "worker": &*entry.worker, "attempt": entry.attempt,
        "call": entry.claim.to_string(), "lease_ms": entry.lease_ms, "granted_ms": entry.granted_ms, "expires_ms": entry.expires_ms,
        "session": entry.session.map(|session| session.to_string()),
        "earlier": entry.past.iter().map(|(token, _)| token.to_string()).collect::<Vec<_>>(),
    })
}

/// Returns the items of an operation, with the viewstamp of the table after it.
fn op_items(op: &Op, viewstamp: Viewstamp) -> Vec<Item> {
    let mut items = match op {
        Op::Grant { claim, worker, lease_ms, granted_ms, items, session, lapsed: _ } => {
            let session = session.map(|session| session.to_string());
            let granted = |(id, number): &(TaskId, u64)| {
                let token = Token { epoch: viewstamp.epoch, number: *number }.to_string();
                let fields = json!({
                    "token": token, "worker": &**worker, "call": claim.to_string(), "lease_ms": lease_ms, "granted_ms": granted_ms,
                    "session": session,
                });
                about(*id, "grant", fields)
            };
            items.iter().map(granted).collect()
        }
        Op::Renew { items } => {
            let renewed = |(id, token, lease_ms, expires_ms): &(TaskId, Token, u64, u64)| {
                about(
                    *id,
                    "renew",
                    json!({ "token": token.to_string(), "lease_ms": lease_ms, "expires_ms": expires_ms }),
                )
            };
            items.iter().map(renewed).collect()
        }
        Op::Release { id, token, not_before_ms, at_ms, failed, end } => {
            let token = token.to_string();
            let fields = json!({ "token": token, "failed": failed, "at_ms": at_ms, "not_before_ms": not_before_ms });
            vec![about(*id, "release", with_end(fields, end.as_deref()))]
        }
        Op::Void { items } => {
            items.iter().map(|(id, token)| about(*id, "void", json!({ "token": token.to_string() }))).collect()
        }
        Op::Kill { id, token, reason, at_ms, end } => {
            let fields = json!({ "token": token.to_string(), "reason": &**reason, "at_ms": at_ms });
            vec![about(*id, "kill", with_end(fields, end.as_deref()))]
        }
        Op::Seal { id, token, completed } => {
            let mut item = about(*id, "seal", completed_object(*token, completed));
            item.tasks.extend(completed.children.iter().flat_map(|children| children.ids.iter().copied()));
            vec![item]
        }
        Op::Drop { items } => ended_items(items),
        Op::Clear { upto } => other("clear", json!({ "upto": stamp(*upto) })),
        Op::Reserve { id, spec } => vec![about(*id, "reserve", json!({ "spec": spec_object(spec) }))],
        Op::Placed { ids } => abouts(ids, "placed"),
        Op::Decide { id, decided } => decided_items(about(*id, "decide", json!({})), decided),
        Op::DecideAcross { id, decided, spread } => {
            let others: Vec<u16> = spread.partitions.iter().map(|partition| partition.0).collect();
            let fields = json!({ "with_partitions": others, "round": spread.round.to_string() });
            decided_items(about(*id, "decide", fields), decided)
        }
        Op::Prepare { id, prepared } => {
            let fields = json!({ "for_partition": prepared.coordinator.0, "round": prepared.round.to_string() });
            decided_items(about(*id, "prepare", fields), &prepared.decided)
        }
        Op::Abort { id, round } => vec![about(*id, "abort", json!({ "round": round.to_string() }))],
        Op::Made { id } => abouts(&[*id], "made"),
        Op::Refuse { id, refusal } => vec![about(*id, "refuse", json!({ "reason": refusal.to_string() }))],
        Op::SlotQuota { queue, partition, .. } => {
            other("quota", json!({ "queue": queue.as_str(), "of_partition": partition.0 }))
        }
        Op::Level { queue, level } => other("level", json!({ "queue": queue.as_str(), "level": level })),
        Op::Forget { ids } => abouts(ids, "forget"),
        Op::Forgotten => other("forgotten", json!({})),
        Op::Cohort(_) => other("cohort", json!({})),
        Op::Metadata(_) => other("root", json!({})),
        Op::Schedules(_) => other("schedules", json!({})),
    };
    for object in items.iter_mut().filter_map(|item| item.what.as_object_mut()) {
        object.insert("viewstamp".to_owned(), stamp(viewstamp).into());
    }
    items
}

/// Shows a transaction, and what it does with each task of its partition.
fn decided_items(first: Item, decided: &Decided) -> Vec<Item> {
    let facts = decided.facts.iter().map(|(id, task)| task_item(*id, "decided", task));
    let locked = abouts(&decided.locked, "locked");
    let depends = decided.depends.iter().map(|depend| {
        let version = match depend.expected {
            Expected::Version(version) => Some(version.to_string()),
            Expected::Present | Expected::Token(_) => None,
        };
        about(depend.id, "depends", json!({ "version": version }))
    });
    let freed = decided.freed.iter().map(|(id, token, from_ms)| {
        about(*id, "freed", json!({ "token": token.to_string(), "not_before_ms": from_ms }))
    });
    std::iter::once(first).chain(facts).chain(locked).chain(depends).chain(freed).collect()
}

#[cfg(test)]
mod tests;
