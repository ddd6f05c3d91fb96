//! An update or a claim of taskstore as one transaction: what is changed ends under its id and is added under a new one.

use super::ids::task_id;
use super::messages::{OWNER_HEADER, Refusal, Renewal, Task, Update, numbers};
use super::names::Store;
use super::timespec::available_ms;
use crate::problem::Problem;
use norn_client::session::{Draft, Seen, TransactionDraft};
use norn_wire::limits::{TRANSACTION_BYTES_MAX, TRANSACTION_TASKS_MAX};
use norn_wire::transaction;
use std::collections::{BTreeMap, BTreeSet};

/// Tasks that were read, by number.
pub type Known = BTreeMap<u64, Task>;

/// Refuses what no reading can make right: too much, or a task that is to become two things. Depends that are changed as well are
/// dropped, as a change depends on its task anyway.
pub fn check(update: &mut Update) -> Option<Refusal> {
    let mut named = BTreeSet::new();
    for number in update.updates.iter().map(|renewal| renewal.id).chain(update.deletes.iter().copied()) {
        if !named.insert(number) {
            return Some(Refusal::bug(format!("task {number} is named twice; say once what is to become of it")));
        }
    }
    update.depends.retain(|number| named.insert(*number));
    let Update { adds, updates, deletes, depends, .. } = update;
    let count = adds.len() + 2 * updates.len() + deletes.len() + depends.len();
    if count > TRANSACTION_TASKS_MAX {
        return Some(Refusal::bug(format!(
            "{count} changes at once, where one of `updates` counts as two; at most {TRANSACTION_TASKS_MAX} are allowed"
        )));
    }
    let data = adds.iter().map(|add| add.data.len()).chain(updates.iter().map(|renewal| renewal.data.len()));
    let bytes: usize = data.sum();
    (bytes > TRANSACTION_BYTES_MAX)
        .then(|| Refusal::bug(format!("{bytes} bytes of data at once; at most {TRANSACTION_BYTES_MAX} are allowed")))
}

/// Refuses what is not there, and what another client owns.
pub fn judge(update: &Update, known: &Known, now_ms: u64) -> Refusal {
    let mut refusal = Refusal::default();
    let mut look = |number: u64, absent: &mut Vec<u64>| match known.get(&number) {
        None => absent.push(number),
        Some(task) if task.is_kept_from(update.clientid, now_ms) => refusal.owned.push(number),
        Some(_) => {}
    };
    let (mut changes, mut deletes) = (Vec::new(), Vec::new());
    update.updates.iter().for_each(|renewal| look(renewal.id, &mut changes));
    update.deletes.iter().for_each(|number| look(*number, &mut deletes));
    Refusal { changes, deletes, ..refusal }
}

/// The tasks that an update makes, without their numbers: what it adds, then what replaces others, which are known.
pub fn made(update: &Update, known: &Known, now_ms: u64) -> Result<Vec<Task>, Problem> {
    let task = |group: &str, data: &str, timespec: Option<i64>| {
        Ok(Task {
            id: 0,
            group: group.to_owned(),
            data: data.to_owned(),
            timespec: available_ms(timespec, now_ms)?,
            ownerid: update.clientid,
        })
    };
    let added = update.adds.iter().map(|add| task(&add.group, &add.data, add.timespec));
    let replaced = update.updates.iter().filter_map(|Renewal { id, data, timespec }| {
        let before = known.get(id)?;
        Some(task(&before.group, data, *timespec))
    });
    added.chain(replaced).collect()
}

/// The transaction that adds these tasks.
pub fn adding(store: &Store, tasks: &[Task]) -> Result<TransactionDraft, Problem> {
    tasks.iter().try_fold(TransactionDraft::new(), |transaction, task| {
        let id = task_id(task.id, store.tag).ok_or_else(|| Problem::invalid("the node's clock is beyond all ids"))?;
        let draft = Draft::new(store.queue(&task.group)?, task.data.as_bytes()).id(id).not_before_ms(task.timespec);
        Ok(transaction.enqueue(draft.header(OWNER_HEADER, task.ownerid.to_string())))
    })
}

/// The transaction of an update whose tasks have their numbers. Numbers that no task can have are left out: they were refused.
pub fn transaction(store: &Store, update: &Update, tasks: &[Task]) -> Result<TransactionDraft, Problem> {
    let mut transaction = adding(store, tasks)?;
    let ended = update.updates.iter().map(|renewal| renewal.id).chain(update.deletes.iter().copied());
    for id in ended.filter_map(|number| task_id(number, store.tag)) {
        transaction = transaction.delete(id);
    }
    Ok(depending(store, transaction, &update.depends))
}

/// Adds what must be there.
pub fn depending(store: &Store, mut transaction: TransactionDraft, depends: &[u64]) -> TransactionDraft {
    for id in depends.iter().filter_map(|number| task_id(*number, store.tag)) {
        transaction = transaction.depend(Seen::from(id));
    }
    transaction
}

/// Whether a transaction was refused because a task has one of the new ids already: another node has drawn the same.
pub fn has_collided(store: &Store, refusal: &transaction::Refusal, tasks: &[Task]) -> bool {
    let ids = tasks.iter().filter_map(|task| task_id(task.id, store.tag));
    let ids: Vec<String> = ids.map(|id| id.to_string()).collect();
    !refusal.bugs.is_empty() && refusal.bugs.iter().all(|bug| ids.iter().any(|id| bug.contains(id)))
}

/// A node's refusal in taskstore's lists. What was to be replaced ended in the transaction, and is one of `changes` here.
pub fn refused(update: &Update, refusal: &transaction::Refusal) -> Refusal {
    let replaced: BTreeSet<u64> = update.updates.iter().map(|renewal| renewal.id).collect();
    let (changes, deletes) = numbers(&refusal.deletes).partition(|number| replaced.contains(number));
    Refusal {
        changes,
        deletes,
        depends: numbers(&refusal.depends).collect(),
        owned: numbers(&refusal.owned).collect(),
        bugs: refusal.bugs.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::messages::Add;
    use super::*;
    use norn_wire::transaction::Expected;

    const NOW_MS: u64 = 1_800_000_000_000;

    fn store() -> Store {
        Store::new("default").unwrap()
    }

    fn task(id: u64, timespec: u64, ownerid: i64) -> (u64, Task) {
        (id, Task { id, group: "map".into(), data: "before".into(), timespec, ownerid })
    }

    fn renewal(id: u64) -> Renewal {
        Renewal { id, data: String::new(), timespec: None }
    }

    // T20, T43, T44: absent, owned by another, owned by the asker, and no longer owned
    #[test]
    fn each_fault_is_in_its_list() {
        let known: Known =
            [task(1, NOW_MS + 1, 7), task(2, NOW_MS + 1, 8), task(3, NOW_MS, 8), task(4, NOW_MS + 1, 8)].into();
        let updates = [1, 2, 3, 5].map(renewal).into();
        let update = Update { clientid: 7, updates, deletes: vec![4, 6], ..Update::default() };
        let refusal = judge(&update, &known, NOW_MS);
        let expected = Refusal { changes: vec![5], deletes: vec![6], owned: vec![2, 4], ..Refusal::default() };
        assert_eq!(refusal, expected);
    }

    // T36, T42: data and time left out are reset, the group stays, and what was added comes first
    #[test]
    fn an_update_replaces_all_but_the_group() {
        let known: Known = [task(1, 5, 7)].into();
        let adds = vec![Add { group: "reduce".into(), data: "x".into(), timespec: Some(-1_000) }];
        let update = Update { clientid: 7, adds, updates: vec![renewal(1)], ..Update::default() };
        let made = made(&update, &known, NOW_MS).unwrap();
        let expected = |group: &str, data: &str, timespec: u64| Task {
            id: 0,
            group: group.into(),
            data: data.into(),
            timespec,
            ownerid: 7,
        };
        assert_eq!(made, [expected("reduce", "x", NOW_MS + 1_000), expected("map", "", NOW_MS)]);
    }

    // T9, T40: the old id ends, the new one is added, and depends are conditions
    #[test]
    fn an_update_ends_the_old_id_and_adds_a_new_one() {
        let (store, update) =
            (store(), Update { updates: vec![renewal(1)], deletes: vec![2], depends: vec![3], ..Update::default() });
        let (_, new) = task(9, 40, 7);
        let transaction = transaction(&store, &update, &[new]).unwrap();
        let at = |number| task_id(number, store.tag).unwrap();
        assert_eq!(transaction.deletes.iter().map(|delete| delete.id).collect::<Vec<_>>(), [at(1), at(2)]);
        assert_eq!((transaction.depends[0].id, transaction.depends[0].expected), (at(3), Expected::Present));
        let added = &transaction.adds[0];
        assert_eq!(
            (added.id, added.spec.not_before_ms, added.spec.queue.as_str()),
            (Some(at(9)), 40, "taskstore.default/map")
        );
        assert_eq!(added.spec.headers, [(OWNER_HEADER.to_owned(), "7".to_owned())]);
    }

    // T43, T44: where the node finds it
    #[test]
    fn a_refusal_of_the_node_tells_replaced_and_deleted_apart_and_a_collision_is_drawn_again() {
        let store = store();
        let at = |number| task_id(number, store.tag).unwrap();
        let update = Update { updates: vec![renewal(1)], deletes: vec![2], ..Update::default() };
        let (deletes, depends, owned) = (vec![at(1), at(2)], vec![at(3)], vec![at(4)]);
        let node = transaction::Refusal { deletes, depends, owned, ..Default::default() };
        let expected = Refusal { changes: vec![1], deletes: vec![2], depends: vec![3], owned: vec![4], bugs: vec![] };
        assert_eq!(refused(&update, &node), expected);
        let (_, new) = task(9, 40, 7);
        let bug = |number| transaction::Refusal {
            bugs: vec![format!("there is a task {} already", at(number))],
            ..Default::default()
        };
        assert!(has_collided(&store, &bug(9), std::slice::from_ref(&new)));
        assert!(!has_collided(&store, &bug(8), &[new]) && !has_collided(&store, &node, &[]));
    }

    #[test]
    fn a_task_named_twice_and_too_many_are_refused() {
        let mut twice = Update { updates: vec![renewal(1)], deletes: vec![1], ..Update::default() };
        assert!(check(&mut twice).unwrap().bugs[0].contains("named twice"));
        let mut many = Update { updates: (0..50).map(renewal).collect(), depends: vec![60], ..Update::default() };
        assert!(check(&mut many).unwrap().bugs[0].contains("101 changes"));
        many.depends = vec![3, 3];
        assert_eq!(check(&mut many), None);
        assert!(many.depends.is_empty(), "a change depends on its task anyway");
        let adds = vec![Add { group: "map".into(), data: "x".repeat(TRANSACTION_BYTES_MAX + 1), timespec: None }];
        let mut large = Update { adds, ..Update::default() };
        assert!(check(&mut large).unwrap().bugs[0].contains("bytes"));
    }
}
