//! Each route against a small node, with its successes and its refusals.

use super::fake::{Fake, view};
use super::*;
use crate::testing::{JsonDoor as Door, Reply, until};
use norn_wire::membership::{Order, QueuePolicy};
use norn_wire::{QueueName, Request, Spec, TaskId, transaction};
use serde_json::{Value, json};
use std::sync::Mutex;

type Node = Arc<Mutex<Fake>>;

fn open() -> (Door, Node) {
    let node = Node::default();
    let script = Arc::clone(&node);
    (Door::open(move |request| script.lock().unwrap().answer(request)), node)
}

/// Makes an update that succeeds, and returns its tasks.
async fn updated(door: &Door, body: Value) -> Vec<Value> {
    let told = door.post("/taskstore/update", &body).await;
    assert_eq!((told.status, &told.body["error"]), (StatusCode::OK, &Value::Null), "{:?}", told.body);
    told.body["tasks"].as_array().unwrap().clone()
}

/// Makes a request that is refused, and returns its lists.
async fn refused(door: &Door, path: &str, body: Value) -> Value {
    let told = door.post(path, &body).await;
    assert_eq!((told.status, &told.body["tasks"]), (StatusCode::OK, &json!([])), "{:?}", told.body);
    told.body["error"].clone()
}

/// The lists of a refusal: changes, deletes, depends, owned.
fn lists(changes: Value, deletes: Value, depends: Value, owned: Value) -> Value {
    json!({"changes": changes, "deletes": deletes, "depends": depends, "owned": owned, "bugs": []})
}

// T29, T31, T32, T35: read as written, in the order asked for, with null for what is missing
#[tokio::test]
async fn what_was_added_is_read() {
    let (door, _) = open();
    let adds = json!([{"group": "map", "data": "one"}, {"group": "a/b", "timespec": 60_000}]);
    let added = updated(&door, json!({"clientid": 7, "adds": adds})).await;
    let (one, two) = (&added[0], &added[1]);
    assert_eq!((&one["group"], &one["data"], &one["ownerid"]), (&json!("map"), &json!("one"), &json!(7)));
    assert!(one["timespec"].as_u64().unwrap().abs_diff(now_ms()) < 60_000);
    assert_eq!((&two["group"], &two["data"], &two["timespec"]), (&json!("a/b"), &json!(""), &json!(60_000)));
    let told = door.get(&format!("/taskstore/task/{}", one["id"])).await;
    assert_eq!((told.status, &told.body), (StatusCode::OK, one));
    assert_eq!(told.headers["content-type"], "application/json");
    let told = door.get(&format!("/taskstore/tasks/{},5,{}", two["id"], one["id"])).await;
    assert_eq!(told.body, json!([two, null, one]));
}

// T31: a task that is not there
#[tokio::test]
async fn an_absent_task_is_null_and_a_malformed_request_is_told_why() {
    let (door, _) = open();
    for absent in ["5", "9007199254740992", "99999999999999999999999"] {
        let told = door.get(&format!("/taskstore/task/{absent}")).await;
        assert_eq!((told.status, told.body), (StatusCode::NOT_FOUND, Value::Null), "{absent}");
    }
    for path in ["task/x", "task/-1", "tasks/1,", "group/map?owned=perhaps", "group/map?limit=-1", "group/map?order=id"]
    {
        let told = door.get(&format!("/taskstore/{path}")).await;
        assert_eq!((told.status, &told.body["code"]), (StatusCode::BAD_REQUEST, &json!("invalid")), "{path}");
    }
    for (path, body) in [
        ("update", "{"),
        ("update", r#"{"adds":[]}"#),
        ("update", r#"{"clientid":1,"adds":[{"group":""}]}"#),
        ("update", r#"{"clientid":1,"adds":[{"group":"g","timespec":-9223372036854775808}]}"#),
        ("claim", r#"{"clientid":1,"duration":1}"#),
        ("claim", r#"{"clientid":1,"group":"map","duration":-1}"#),
    ] {
        let told = door.ask("POST", &format!("/taskstore/{path}"), body).await;
        assert_eq!((told.status, &told.body["code"]), (StatusCode::BAD_REQUEST, &json!("invalid")), "{body}");
    }
    assert_eq!(door.get("/taskstore/update").await.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(door.get("/taskstore/nothing").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn each_refusal_of_the_door_is_a_problem_document() {
    let (door, _) = open();
    for (method, path, body, status, code) in [
        ("GET", "", "", 404, "no_route"),
        ("GET", "/nothing", "", 404, "no_route"),
        ("GET", "/other/groups", "", 404, "no_route"),
        ("GET", "/update", "", 405, "method"),
        ("GET", "/groups", "{}", 400, "invalid"),
        ("POST", "/update", "[", 400, "invalid"),
        ("POST", "/groups", "", 405, "method"),
        ("GET", "/tasks/", "", 404, "no_route"),
    ] {
        let told = door.ask(method, &format!("/taskstore{path}"), body).await;
        assert_eq!((told.status.as_u16(), &told.body["code"]), (status, &json!(code)), "{path}: {}", told.body);
        assert_eq!(told.headers["content-type"], "application/problem+json");
    }
}

// T17, T29, T30, T33: groups with tasks; a limit; owned tasks on request only
#[tokio::test]
async fn a_group_is_listed_with_a_limit_and_with_owned_tasks() {
    let (door, _) = open();
    let adds: Vec<Value> = (0..250).map(|number| json!({"group": "map", "data": number.to_string()})).collect();
    for adds in adds.chunks(50) {
        updated(&door, json!({"clientid": 7, "adds": adds})).await;
    }
    let owned = updated(&door, json!({"clientid": 7, "adds": [{"group": "map", "timespec": -60_000}]})).await;
    let listed = |query: &'static str| {
        let door = &door;
        async move {
            let told = door.get(&format!("/taskstore/group/map{query}")).await;
            assert_eq!(told.headers["content-type"], "application/json");
            told.body.as_array().unwrap().clone()
        }
    };
    let all = listed("").await;
    assert_eq!(all.len(), 250, "all that is not owned, over several pages");
    assert!(!all.contains(&owned[0]));
    assert_eq!(listed("?limit=3&owned=no").await, all[..3]);
    assert_eq!(listed("?limit=101").await, all[..101]);
    let with_owned = listed("?owned=true").await;
    assert!(with_owned.len() == 251 && with_owned.contains(&owned[0]));
    assert_eq!(door.get("/taskstore/group/none").await.body, json!([]));
    assert_eq!(door.get("/taskstore/groups").await.body, json!(["map"]));
    let deletes: Vec<Value> = with_owned.iter().map(|task| task["id"].clone()).collect();
    for deletes in deletes.chunks(100) {
        updated(&door, json!({"clientid": 7, "deletes": deletes})).await;
    }
    assert_eq!(door.get("/taskstore/groups").await.body, json!([]), "a group without tasks is gone");
}

// T9, T34, T36, T38, T39, T41, T42: an update adds, replaces and deletes at once, and answers in order
#[tokio::test]
async fn an_update_replaces_under_new_ids() {
    let (door, _) = open();
    let adds = json!([{"group": "map", "data": "a"}, {"group": "map", "data": "b"}, {"group": "map"}]);
    let first = updated(&door, json!({"clientid": 7, "adds": adds})).await;
    let id = |task: &Value| task["id"].as_u64().unwrap();
    let update = json!({
        "clientid": 7, "adds": [{"group": "reduce"}], "deletes": [first[1]["id"]], "depends": [first[2]["id"]],
        "updates": [{"id": first[0]["id"], "data": "a2", "timespec": -60_000}],
    });
    let second = updated(&door, update).await;
    assert_eq!(
        (&second[0]["group"], &second[1]["group"], &second[1]["data"]),
        (&json!("reduce"), &json!("map"), &json!("a2"))
    );
    assert!(second.iter().all(|new| first.iter().all(|old| id(new) > id(old))), "new ids are larger");
    assert!(second[1]["timespec"].as_u64().unwrap() > now_ms() + 30_000, "its owner has it for a while");
    let path = format!("/taskstore/tasks/{},{},{}", first[0]["id"], first[1]["id"], first[2]["id"]);
    assert_eq!(door.get(&path).await.body, json!([null, null, first[2]]));
    let renewed =
        updated(&door, json!({"clientid": 7, "updates": [{"id": second[1]["id"], "timespec": -90_000}]})).await;
    assert!(renewed[0]["timespec"].as_u64() > second[1]["timespec"].as_u64());
    assert_eq!(renewed[0]["data"], json!(""), "what is left out is reset");
    assert_eq!(updated(&door, json!({"clientid": 7})).await, [] as [Value; 0]);
}

// T20, T21, T40, T41, T43, T44
#[tokio::test]
async fn a_refusal_tells_apart_what_is_wrong_and_changes_nothing() {
    let (door, node) = open();
    let adds = json!([{"group": "map"}, {"group": "map", "timespec": -60_000}, {"group": "map", "timespec": -60_000}]);
    let added = updated(&door, json!({"clientid": 7, "adds": adds})).await;
    let before = node.lock().unwrap().tasks.clone();
    let (free, kept, other) = (&added[0]["id"], &added[1]["id"], &added[2]["id"]);
    let update = |rest: Value| {
        let mut body = json!({"clientid": 8, "adds": [{"group": "map"}]});
        body.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        body
    };
    let none = || json!([]);
    for (rest, expected) in [
        (json!({"updates": [{"id": 5}, {"id": free}]}), lists(json!([5]), none(), none(), none())),
        (json!({"deletes": [6, free]}), lists(none(), json!([6]), none(), none())),
        (json!({"depends": [7, free]}), lists(none(), none(), json!([7]), none())),
        (
            json!({"depends": [9_007_199_254_740_992_u64]}),
            lists(none(), none(), json!([9_007_199_254_740_992_u64]), none()),
        ),
        (json!({"updates": [{"id": kept}], "deletes": [other]}), lists(none(), none(), none(), json!([kept, other]))),
        (
            json!({"updates": [{"id": 5}], "deletes": [6, kept], "depends": [7]}),
            lists(json!([5]), json!([6]), json!([7]), json!([kept])),
        ),
    ] {
        assert_eq!(refused(&door, "/taskstore/update", update(rest)).await, expected);
    }
    let many: Vec<Value> = (0..101).map(|_| json!({"group": "map"})).collect();
    let error = refused(&door, "/taskstore/update", json!({"clientid": 8, "adds": many})).await;
    assert!(error["bugs"][0].as_str().unwrap().contains("at most 100"), "{error}");
    let twice = refused(&door, "/taskstore/update", json!({"clientid": 7, "deletes": [free, free]})).await;
    assert!(twice["bugs"][0].as_str().unwrap().contains("named twice"), "{twice}");
    assert_eq!(node.lock().unwrap().tasks, before, "nothing was changed");
    updated(&door, json!({"clientid": 7, "updates": [{"id": kept}], "deletes": [other]})).await;
}

// T43: where the node finds it
#[tokio::test]
async fn a_change_of_another_client_after_the_look_is_told_in_the_same_lists() {
    let (door, node) = open();
    let added = updated(&door, json!({"clientid": 7, "adds": [{"group": "map"}, {"group": "map"}]})).await;
    let ids: Vec<u64> = added.iter().map(|task| task["id"].as_u64().unwrap()).collect();
    let tag = Store::new(DEFAULT).unwrap().tag;
    let at = |number| task_id(number, tag).unwrap();
    let late = transaction::Refusal { deletes: vec![at(ids[0]), at(ids[1])], ..Default::default() };
    node.lock().unwrap().refusals.push(late);
    let body = json!({"clientid": 7, "updates": [{"id": ids[0]}], "deletes": [ids[1]]});
    let error = refused(&door, "/taskstore/update", body).await;
    assert_eq!(error, lists(json!([ids[0]]), json!([ids[1]]), json!([]), json!([])));
}

// T11, T12, T45, T46
#[tokio::test]
async fn a_claim_replaces_a_task_by_one_that_the_client_owns() {
    let (door, node) = open();
    let added =
        updated(&door, json!({"clientid": 7, "adds": [{"group": "map", "data": "x"}, {"group": "signal"}]})).await;
    let (task, signal) = (&added[0], &added[1]["id"]);
    let claim = |depends: Value| json!({"clientid": 8, "group": "map", "duration": 60_000, "depends": depends});
    let told = door.post("/taskstore/claim", &claim(json!([signal]))).await;
    let claimed = &told.body["tasks"][0];
    assert_eq!(told.body["error"], Value::Null);
    assert_eq!((&claimed["group"], &claimed["data"], &claimed["ownerid"]), (&json!("map"), &json!("x"), &json!(8)));
    assert!(claimed["id"].as_u64() > task["id"].as_u64());
    assert!(claimed["timespec"].as_u64().unwrap().abs_diff(now_ms() + 60_000) < 30_000);
    let of_claim = door.0.seen().into_iter().rev().find_map(|request| match request {
        Request::Transact(transaction) => Some(transaction),
        _ => None,
    });
    let of_claim = of_claim.unwrap();
    let depends: Vec<TaskId> = of_claim.depends.iter().map(|depend| depend.id).collect();
    assert!(messages::numbers(&depends).eq([signal.as_u64().unwrap()]), "it may vanish after the look");
    assert_eq!(door.get(&format!("/taskstore/task/{}", task["id"])).await.status, StatusCode::NOT_FOUND);
    let nothing = door.post("/taskstore/claim", &claim(json!(null))).await;
    assert_eq!(nothing.body, json!({"tasks": [], "error": null}), "it is owned until then");
    let error = refused(&door, "/taskstore/claim", claim(json!([signal, 5]))).await;
    assert_eq!(error, lists(json!([]), json!([]), json!([5]), json!([])), "even if nothing is there");
    assert_eq!(node.lock().unwrap().releases, 0);
}

// T15
/// Goal: the owner of a task is the one that its client names, and no other is assigned. Method: clients of any id add and claim, and
/// one that names none is refused.
#[tokio::test]
async fn the_owner_is_the_one_that_the_client_names() {
    let (door, _) = open();
    for clientid in [1, 8, 4_711, i64::from(u32::MAX)] {
        let group = format!("of-{clientid}");
        let added = updated(&door, json!({"clientid": clientid, "adds": [{"group": group, "ownerid": 5}]})).await;
        assert_eq!(added[0]["ownerid"], clientid, "whatever a whole task says beside");
        let told =
            door.post("/taskstore/claim", &json!({"clientid": clientid + 1, "group": group, "duration": 60_000})).await;
        assert_eq!(told.body["tasks"][0]["ownerid"], clientid + 1, "{:?}", told.body);
    }
    for (verb, body) in
        [("update", json!({"adds": [{"group": "map"}]})), ("claim", json!({"group": "map", "duration": 1}))]
    {
        let told = door.post(&format!("/taskstore/{verb}"), &body).await;
        assert_eq!((told.status, &told.body["code"]), (StatusCode::BAD_REQUEST, &json!("invalid")), "{verb}");
    }
}

// T38, T47: its owner has a task for as long as it refreshes its claim, and ends it; no other client does either
#[tokio::test]
async fn a_short_claim_is_refreshed_by_its_owner_alone() {
    let (door, _) = open();
    updated(&door, json!({"clientid": 7, "adds": [{"group": "map", "data": "x"}]})).await;
    let told = door.post("/taskstore/claim", &json!({"clientid": 8, "group": "map", "duration": 30_000})).await;
    let mut held = told.body["tasks"][0].clone();
    for _ in 0..3 {
        for change in [json!({"updates": [{"id": held["id"]}]}), json!({"deletes": [held["id"]]})] {
            let mut body = json!({"clientid": 7});
            body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            let error = refused(&door, "/taskstore/update", body).await;
            assert_eq!(error, lists(json!([]), json!([]), json!([]), json!([held["id"]])));
        }
        let renewal = json!({"id": held["id"], "data": held["data"], "timespec": -90_000});
        let renewed = updated(&door, json!({"clientid": 8, "updates": [renewal]})).await[0].clone();
        assert!(renewed["id"].as_u64() > held["id"].as_u64() && renewed["data"] == json!("x"), "{renewed}");
        assert!(renewed["timespec"].as_u64().unwrap().abs_diff(now_ms() + 90_000) < 30_000);
        held = renewed;
    }
    updated(&door, json!({"clientid": 8, "deletes": [held["id"]]})).await;
    assert_eq!(door.get("/taskstore/group/map?owned=1").await.body, json!([]));
}

#[tokio::test]
async fn a_chosen_task_that_cannot_be_taken_is_given_back() {
    let (door, node) = open();
    let added = updated(&door, json!({"clientid": 7, "adds": [{"group": "map"}, {"group": "signal"}]})).await;
    let tag = Store::new(DEFAULT).unwrap().tag;
    let signal = added[1]["id"].as_u64().unwrap();
    let gone = transaction::Refusal { depends: vec![task_id(signal, tag).unwrap()], ..Default::default() };
    node.lock().unwrap().refusals.push(gone);
    let claim = json!({"clientid": 8, "group": "map", "duration": 1_000, "depends": [signal]});
    let error = refused(&door, "/taskstore/claim", claim.clone()).await;
    assert_eq!(error, lists(json!([]), json!([]), json!([signal]), json!([])));
    assert_eq!(node.lock().unwrap().releases, 1);
    let lost = transaction::Refusal { deletes: vec![task_id(5, tag).unwrap()], ..Default::default() };
    node.lock().unwrap().refusals.push(lost);
    let told = door.post("/taskstore/claim", &claim).await;
    assert_eq!(told.body["tasks"].as_array().unwrap().len(), 1, "a task that is lost meanwhile is chosen again");
    let foreign = TaskId::new(now_ms(), 1, 7, 3);
    node.lock().unwrap().tasks.insert(foreign, view(foreign, Spec::new(queue("map"), "x"), now_ms()));
    let error = refused(&door, "/taskstore/claim", claim).await;
    assert!(error["bugs"][0].as_str().unwrap().contains("not added through this service"), "{error}");
    assert_eq!(node.lock().unwrap().releases, 3);
}

#[tokio::test]
async fn an_id_that_another_node_has_drawn_is_drawn_again() {
    let (door, node) = open();
    node.lock().unwrap().collisions = 2;
    updated(&door, json!({"clientid": 7, "adds": [{"group": "map"}]})).await;
    assert_eq!(node.lock().unwrap().transactions, 3);
    node.lock().unwrap().collisions = 1_000;
    let told = door.post("/taskstore/update", &json!({"clientid": 7, "adds": [{"group": "map"}]})).await;
    assert_eq!(told.status, StatusCode::TOO_MANY_REQUESTS);
}

fn queue(group: &str) -> QueueName {
    Store::new(DEFAULT).unwrap().queue(group).unwrap()
}

// T18, T45: a new group's tasks come in any order
#[tokio::test]
async fn a_group_gets_its_settings_with_its_first_task_and_keeps_an_operators() {
    let (door, node) = open();
    let own = [
        ("kept", QueuePolicy { retention_ms: Some(5), ..QueuePolicy::default() }),
        ("paused", QueuePolicy { paused: true, ..QueuePolicy::default() }),
        ("fair", QueuePolicy { order: Order::Fair, ..QueuePolicy::default() }),
    ];
    let own = own.map(|(group, policy)| (queue(group), policy));
    node.lock().unwrap().policies.extend(own.clone());
    let adds = ["map", "kept", "paused", "fair"].map(|group| json!({"group": group}));
    updated(&door, json!({"clientid": 7, "adds": adds})).await;
    let mut policies = node.lock().unwrap().policies.clone();
    let policy = policies.remove(&queue("map")).unwrap();
    assert_eq!(policy, QueuePolicy { order: Order::Random, retention_ms: Some(60_000), ..QueuePolicy::default() });
    assert_eq!(policies, own.into());
}

#[tokio::test]
async fn what_an_operator_sets_back_stays_so() {
    let (door, node) = open();
    for order in [Order::Random, Order::Priority] {
        updated(&door, json!({"clientid": 7, "adds": [{"group": "map"}]})).await;
        let mut node = node.lock().unwrap();
        let policy = node.policies.get_mut(&queue("map")).unwrap();
        assert_eq!(std::mem::replace(&mut policy.order, Order::Priority), order);
    }
}

#[tokio::test]
async fn many_groups_leave_settings_to_operators_and_give_back_those_of_groups_that_are_gone() {
    let (door, node) = open();
    let needed =
        QueuePolicy { order: Order::Random, retention_ms: Some(groups::RETENTION_MS), ..QueuePolicy::default() };
    for number in 1..groups::SETTINGS_MAX {
        let (id, queue) = (task_id(number as u64, 5).unwrap(), queue(&format!("g{number}")));
        let mut node = node.lock().unwrap();
        node.tasks.insert(id, view(id, Spec::new(queue.clone(), "x"), now_ms()));
        node.policies.insert(queue, needed.clone());
    }
    let adds = ["first", "second", "third"].map(|group| json!({"group": group}));
    updated(&door, json!({"clientid": 7, "adds": adds})).await;
    let of_group = |group: &str| node.lock().unwrap().policies.get(&queue(group)).cloned();
    assert_eq!(["first", "second", "third"].map(of_group), [Some(needed.clone()), None, None]);
    let looks = door.0.seen().iter().filter(|request| **request == Request::Queues).count();
    assert_eq!(looks, 1, "all queues are not read for each group");
    let told = door.post("/taskstore/claim", &json!({"clientid": 8, "group": "third", "duration": 1_000})).await;
    assert_eq!(told.body["tasks"].as_array().unwrap().len(), 1, "it is used without");
    // Most of the groups are gone, as another node finds.
    node.lock().unwrap().tasks.retain(|_, task| task.spec.queue == queue("g1"));
    let other = Door::open({
        let node = Arc::clone(&node);
        move |request| node.lock().unwrap().answer(request)
    });
    updated(&other, json!({"clientid": 7, "adds": [{"group": "new"}]})).await;
    assert_eq!(["new", "g1"].map(of_group), [Some(needed.clone()), Some(needed)]);
    let left = node.lock().unwrap().policies.len();
    assert!(left < groups::SETTINGS_MAX, "{left} are left");
}

// A caller that hangs up holds nothing, however far its claim is
#[tokio::test]
async fn a_claim_whose_caller_hangs_up_is_undone() {
    let body = json!({"clientid": 8, "group": "map", "duration": 600_000});
    let is_transaction = |request: &Request| matches!(request, Request::Transact(_));
    for (is_made, is_lost) in [(false, true), (true, true), (true, false)] {
        let node = Node::default();
        let (script, mut is_claimed, mut is_over) = (Arc::clone(&node), false, false);
        let door = Door::open(move |request| {
            is_claimed |= matches!(request, Request::Claim(_));
            // The answer to the first transaction of the claim.
            let loses = is_lost && is_claimed && !is_over && is_transaction(&request);
            is_over |= loses;
            match (loses, is_made) {
                (true, false) => Reply::Silence,
                (true, true) => {
                    script.lock().unwrap().answer(request);
                    Reply::Silence
                }
                (false, _) => script.lock().unwrap().answer(request).into(),
            }
        });
        let added = updated(&door, json!({"clientid": 7, "adds": [{"group": "map", "data": "x"}]})).await;
        match is_lost {
            true => {
                let is_last = |request: &Request| match request {
                    Request::Transact(transaction) => !transaction.deletes.is_empty(),
                    _ => false,
                };
                door.hang_up_at("/taskstore/claim", &body, is_last).await;
            }
            false => door.hang_up("/taskstore/claim", &body).await,
        }
        let is_free = || {
            let node = node.lock().unwrap();
            let free = node.tasks.values().filter(|task| task.state == norn_wire::State::Ready).count();
            free == 1 && node.releases == 1
        };
        until(is_free).await;
        let free = door.get("/taskstore/group/map?owned=yes").await.body;
        assert_eq!((&free[0]["data"], &free[0]["ownerid"]), (&json!("x"), &json!(7)), "as before");
        assert_eq!(free[0]["id"] == added[0]["id"], !is_made, "{free}");
        let told = door.post("/taskstore/claim", &body).await;
        assert_eq!(told.body["tasks"][0]["ownerid"], json!(8), "{:?}", told.body);
    }
}

// T8: with what is only depended on
#[tokio::test]
async fn new_ids_are_larger_than_all_that_a_request_names() {
    let node = Node::default();
    let open = || {
        let script = Arc::clone(&node);
        Door::open(move |request| script.lock().unwrap().answer(request))
    };
    // A task of a node whose clock is ahead.
    let slot_ms = (now_ms() + 20_000) / 10 * 10;
    let (lower, tag) = (task_id(1, 0).unwrap(), Store::new(DEFAULT).unwrap().tag);
    let ahead = TaskId::new(slot_ms, 1, lower.minter(), tag);
    node.lock().unwrap().tasks.insert(ahead, view(ahead, Spec::new(queue("signal"), "x"), now_ms()));
    let depends = [ids::number(ahead).unwrap()];
    let body = json!({"clientid": 7, "adds": [{"group": "map"}], "depends": depends});
    assert!(updated(&open(), body).await[0]["id"].as_u64() > Some(depends[0]));
    let adds = json!({"clientid": 7, "adds": [{"group": "reduce"}]});
    let door = open();
    assert!(updated(&door, adds).await[0]["id"].as_u64() < Some(depends[0]), "a node that has not heard of it");
    let claim = json!({"clientid": 8, "group": "reduce", "duration": 1_000, "depends": depends});
    let told = door.post("/taskstore/claim", &claim).await;
    assert!(told.body["tasks"][0]["id"].as_u64() > Some(depends[0]), "{:?}", told.body);
}

#[tokio::test]
async fn a_read_of_many_tasks_is_bounded() {
    let (door, node) = open();
    let (store, data) = (Store::new(DEFAULT).unwrap(), "x".repeat(64 << 10));
    let numbers: Vec<u64> = (1..=40).collect();
    for id in numbers.iter().filter_map(|number| task_id(*number, store.tag)) {
        let spec = Spec::new(queue("map"), data.as_str());
        node.lock().unwrap().tasks.insert(id, view(id, spec, now_ms()));
    }
    let texts: Vec<String> = numbers.iter().map(u64::to_string).collect();
    for path in [format!("tasks/{}", texts.join(",")), "group/map".to_owned()] {
        let request = axum::http::Request::get(format!("/taskstore/{path}")).body(axum::body::Body::empty()).unwrap();
        let mut body = door.0.begin(request).await.into_body();
        let mut whole = Vec::new();
        while let Some(frame) = http_body_util::BodyExt::frame(&mut body).await {
            let part = frame.unwrap().into_data().unwrap();
            assert!(part.len() < 2 << 20, "a part of {} bytes", part.len());
            whole.extend_from_slice(&part);
        }
        let listed: Vec<Value> = serde_json::from_slice(&whole).unwrap();
        assert!(
            listed.iter().map(|task| &task["id"]).eq(numbers
                .iter()
                .map(|number| json!(number))
                .collect::<Vec<_>>()
                .iter())
        );
    }
    let many = vec!["1"; IDS_MAX + 1].join(",");
    let told = door.get(&format!("/taskstore/tasks/{many}")).await;
    assert_eq!((told.status, &told.body["code"]), (StatusCode::BAD_REQUEST, &json!("invalid")));
    assert!(told.body["detail"].as_str().unwrap().contains("at most 1000"), "{:?}", told.body);
}

#[tokio::test]
async fn one_task_behind_many_others_is_found_in_few_looks() {
    let (door, node) = open();
    let store = Store::new(DEFAULT).unwrap();
    for number in 1..=3_000 {
        let id = task_id(number, store.tag).unwrap();
        let mut task = view(id, Spec::new(queue("map"), "x"), now_ms());
        // Replaced ones, but for the last.
        if number < 3_000 {
            task.state = norn_wire::State::Cancelled;
        }
        node.lock().unwrap().tasks.insert(id, task);
    }
    for query in ["limit=1", "limit=1&owned=yes"] {
        let before = door.0.seen().len();
        assert_eq!(door.get(&format!("/taskstore/group/map?{query}")).await.body[0]["id"], json!(3_000));
        assert!(door.0.seen().len() - before < 12, "{} looks", door.0.seen().len() - before);
    }
}

#[tokio::test]
async fn stores_are_apart() {
    let (door, _) = open();
    let body = json!({"clientid": 7, "adds": [{"group": "map"}]});
    let told = door.post("/taskstore/@other/update", &body).await;
    let id = &told.body["tasks"][0]["id"];
    assert_eq!(door.get("/taskstore/groups").await.body, json!([]));
    assert_eq!(door.get("/taskstore/@other/groups").await.body, json!(["map"]));
    assert_eq!(door.get(&format!("/taskstore/task/{id}")).await.status, StatusCode::NOT_FOUND);
    assert_eq!(door.get(&format!("/taskstore/@other/task/{id}")).await.status, StatusCode::OK);
    for store in ["other", "@", "@a.b"] {
        assert_eq!(door.get(&format!("/taskstore/{store}/groups")).await.status, StatusCode::NOT_FOUND, "{store}");
    }
}

#[tokio::test]
async fn without_a_majority_each_route_is_unavailable() {
    let node = Node::default();
    let script = Arc::clone(&node);
    let door = Door::impatient(move |request| script.lock().unwrap().answer(request));
    node.lock().unwrap().error = Some(Error::unavailable("no majority"));
    for path in ["groups", "task/5", "tasks/5", "group/map"] {
        let told = door.get(&format!("/taskstore/{path}")).await;
        assert_eq!(told.status, StatusCode::SERVICE_UNAVAILABLE, "{path}: {:?}", told.body);
    }
    let update = json!({"clientid": 7, "adds": [{"group": "map"}]});
    assert_eq!(door.post("/taskstore/update", &update).await.status, StatusCode::SERVICE_UNAVAILABLE);
    let claim = json!({"clientid": 7, "group": "map", "duration": 1});
    assert_eq!(door.post("/taskstore/claim", &claim).await.status, StatusCode::SERVICE_UNAVAILABLE);
    node.lock().unwrap().error = None;
    node.lock().unwrap().unavailable = 2;
    assert_eq!(door.post("/taskstore/claim", &claim).await.status, StatusCode::SERVICE_UNAVAILABLE);
}
