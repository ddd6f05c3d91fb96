//! Each route against a small node, with its successes and its refusals.

use super::fake::Fake;
use super::*;
use crate::testing::JsonDoor as Door;
use norn_wire::transaction;
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

// T30, T33: groups with tasks; a limit; owned tasks on request only
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
        async move { door.get(&format!("/taskstore/group/map{query}")).await.body.as_array().unwrap().clone() }
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
    assert!(claimed["timespec"].as_u64().unwrap() > now_ms() + 30_000);
    assert_eq!(door.get(&format!("/taskstore/task/{}", task["id"])).await.status, StatusCode::NOT_FOUND);
    let nothing = door.post("/taskstore/claim", &claim(json!(null))).await;
    assert_eq!(nothing.body, json!({"tasks": [], "error": null}), "it is owned until then");
    let error = refused(&door, "/taskstore/claim", claim(json!([signal, 5]))).await;
    assert_eq!(error, lists(json!([]), json!([]), json!([5]), json!([])), "even if nothing is there");
    assert_eq!(node.lock().unwrap().releases, 0);
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
    let foreign = norn_wire::TaskId::new(now_ms(), 1, 7, 3);
    let spec = norn_wire::Spec::new("taskstore.default/map".parse().unwrap(), "x");
    node.lock().unwrap().tasks.insert(foreign, super::fake::view(foreign, spec, now_ms()));
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

// T18: a new group's tasks come in any order
#[tokio::test]
async fn a_group_gets_its_settings_with_its_first_task_and_keeps_an_operators() {
    use norn_wire::membership::{Order, QueuePolicy};
    let (door, node) = open();
    let kept = norn_wire::QueueName::new("taskstore.default/kept").unwrap();
    let own = QueuePolicy { retention_ms: Some(5), ..QueuePolicy::default() };
    node.lock().unwrap().policies.insert(kept.clone(), own.clone());
    updated(&door, json!({"clientid": 7, "adds": [{"group": "map"}, {"group": "kept"}]})).await;
    let policies = node.lock().unwrap().policies.clone();
    let policy = &policies[&norn_wire::QueueName::new("taskstore.default/map").unwrap()];
    assert_eq!((policy.order, policy.retention_ms), (Order::Random, Some(60_000)));
    assert_eq!(policies[&kept], own);
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
