//! taskstore's service over HTTP, on real nodes: the session of a client of it, through three nodes one of which is killed meanwhile.

use norn_tests::Cluster;
use norn_tests::cluster::with_doors;
use norn_tests::http::{Http, HttpAnswer};
use norn_tests::wait::found;
use serde_json::{Value, json};

const NONE: [u64; 0] = [];

/// A client of the service: it names itself, and may go to any node.
struct Client {
    id: u64,
    doors: Vec<Http>,
}

fn lists(error: &Value) -> [&Value; 4] {
    ["changes", "deletes", "depends", "owned"].map(|name| &error[name])
}

fn ids(tasks: &[Value]) -> Vec<u64> {
    tasks.iter().map(|task| task["id"].as_u64().expect("a number")).collect()
}

impl Client {
    fn get(&self, node: usize, path: &str) -> HttpAnswer {
        self.doors[node].served(|door| door.ask("GET", &format!("/taskstore/{path}"), None))
    }

    fn post(&self, node: usize, path: &str, mut body: Value) -> Value {
        body["clientid"] = json!(self.id);
        let reply = self.doors[node].served(|door| door.ask("POST", &format!("/taskstore/{path}"), Some(&body)));
        assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")), "{}", reply.text());
        reply.json()
    }

    /// Makes an update that succeeds, and returns its tasks.
    fn update(&self, node: usize, body: Value) -> Vec<Value> {
        let answer = self.post(node, "update", body);
        assert_eq!(answer["error"], Value::Null, "{answer}");
        answer["tasks"].as_array().expect("a list").clone()
    }

    /// Makes an update that is refused, and returns its lists.
    fn refused(&self, node: usize, body: Value) -> Value {
        let answer = self.post(node, "update", body);
        assert_eq!(answer["tasks"], json!([]), "{answer}");
        answer["error"].clone()
    }

    fn claim(&self, node: usize, group: &str, duration: u64, depends: &[u64]) -> Value {
        self.post(node, "claim", json!({"group": group, "duration": duration, "depends": depends}))
    }

    fn list(&self, node: usize, group: &str, query: &str) -> Vec<Value> {
        self.get(node, &format!("group/{group}{query}")).json().as_array().expect("a list").clone()
    }
}

/// Three nodes with their doors, and two clients of them.
fn start() -> (Cluster, Client, Client) {
    let (cluster, doors) = with_doors(3);
    (cluster, Client { id: 1_643, doors: doors.clone() }, Client { id: 2_624, doors })
}

// T8, T9, T10, T20, T29, T30, T31, T32, T33, T34, T35, T36, T37, T38, T39, T40, T41, T42, T43, T44, T45, T46, T47
#[test]
fn a_taskstore_client_works_through_three_nodes_one_of_which_is_killed() {
    let (mut cluster, one, two) = start();
    let adds = json!([
        {"group": "map", "data": "/path/to/file:1024:2048"}, {"group": "map", "data": "/path/to/file:2048:3096"},
        {"group": "map", "data": "owned", "timespec": -600_000}, {"group": "signal"},
    ]);
    let added = one.update(0, json!({"adds": adds}));
    let [a, b, owned, signal] = ids(&added)[..] else { panic!("{added:?}") };
    assert!(a < b && b < owned && owned < signal);
    found("the groups are told", || (one.get(1, "groups").json() == json!(["map", "signal"])).then_some(()));
    assert_eq!(one.get(2, &format!("tasks/{b},7,{a}")).json(), json!([added[1], null, added[0]]));
    let absent = one.get(1, "task/7");
    assert_eq!((absent.status, absent.json()), (404, Value::Null));
    assert_eq!(ids(&one.list(1, "map", "")), [a, b]);
    assert_eq!(ids(&one.list(2, "map", "?limit=1")), [a]);
    assert_eq!(ids(&one.list(0, "map", "?owned=yes")), [a, b, owned]);

    // A claim through another node, as long as the signal is there.
    let claimed = two.claim(1, "map", 600_000, &[signal]);
    let mine = &claimed["tasks"][0];
    assert_eq!((&claimed["error"], &mine["ownerid"]), (&Value::Null, &json!(2_624)));
    let mine_id = mine["id"].as_u64().expect("a number");
    assert!(mine_id > signal, "a new id");
    let replaced = [a, b].into_iter().find(|id| one.get(2, &format!("task/{id}")).status == 404).expect("one is gone");
    let other = a + b - replaced;
    assert_eq!(mine["data"], added[usize::from(replaced == b)]["data"]);

    // Each refusal, through the node that will be killed, and nothing is changed.
    let refused = |client: &Client, body: Value| client.refused(0, body);
    let error = refused(&one, json!({"adds": [{"group": "no"}], "updates": [{"id": replaced}]}));
    assert_eq!(lists(&error), [&json!([replaced]), &json!(NONE), &json!(NONE), &json!(NONE)]);
    let error = refused(&one, json!({"adds": [{"group": "no"}], "deletes": [replaced]}));
    assert_eq!(lists(&error), [&json!(NONE), &json!([replaced]), &json!(NONE), &json!(NONE)]);
    let error = refused(&one, json!({"adds": [{"group": "no"}], "depends": [other, replaced]}));
    assert_eq!(lists(&error), [&json!(NONE), &json!(NONE), &json!([replaced]), &json!(NONE)]);
    let error = refused(&one, json!({"adds": [{"group": "no"}], "updates": [{"id": mine_id}], "deletes": [other]}));
    assert_eq!(lists(&error), [&json!(NONE), &json!(NONE), &json!(NONE), &json!([mine_id])]);
    let many: Vec<Value> = (0..101).map(|_| json!({"group": "no"})).collect();
    assert_eq!(refused(&one, json!({"adds": many}))["bugs"].as_array().map(Vec::len), Some(1));
    assert_eq!(one.list(0, "no", "?owned=1"), [] as [Value; 0]);
    assert_eq!(one.get(0, &format!("task/{mine_id}")).json(), *mine, "unchanged");
    let malformed = one.get(0, "task/x");
    assert_eq!(malformed.status, 400);

    cluster.kill(0);
    // The owner renews, moves on, and ends its work, all with conditions.
    let renewed =
        two.update(1, json!({"updates": [{"id": mine_id, "data": "half", "timespec": -900_000}], "depends": [signal]}));
    assert_eq!((&renewed[0]["group"], &renewed[0]["data"]), (&json!("map"), &json!("half")));
    assert!(renewed[0]["timespec"].as_u64() > mine["timespec"].as_u64());
    let next = two.update(2, json!({
        "adds": [{"group": "reduce", "data": "part"}], "updates": [{"id": other}], "deletes": ids(&renewed), "depends": [signal],
    }));
    assert_eq!((&next[0]["group"], &next[1]["group"], &next[1]["data"]), (&json!("reduce"), &json!("map"), &json!("")));
    assert_eq!(ids(&one.list(1, "map", "")), [ids(&next)[1]]);

    // The signal is switched off.
    one.update(2, json!({"deletes": [signal]}));
    let stopped = two.claim(1, "reduce", 1_000, &[signal]);
    assert_eq!(lists(&stopped["error"]), [&json!(NONE), &json!(NONE), &json!([signal]), &json!(NONE)]);
    assert_eq!(two.claim(1, "signal", 1_000, &[]), json!({"tasks": [], "error": null}));

    // An abandoned task is claimed again, and its late owner is refused.
    let short = two.claim(2, "reduce", 1_000, &[]);
    let late = ids(short["tasks"].as_array().expect("a list"))[0];
    let again = found("the ownership ends", || one.claim(1, "reduce", 600_000, &[])["tasks"].get(0).cloned());
    assert_eq!((&again["data"], &again["ownerid"]), (&json!("part"), &json!(1_643)));
    assert_eq!(lists(&two.refused(2, json!({"deletes": [late]})))[1], &json!([late]));
    one.update(1, json!({"deletes": [again["id"]]}));

    // Without a majority the door neither reads nor takes anything.
    cluster.kill(1);
    let door = &one.doors[2];
    let update = json!({"clientid": 1, "adds": [{"group": "map"}]});
    assert_eq!(door.ask("GET", &format!("/taskstore/task/{other}"), None).expect("it runs").status, 503);
    let status = door.ask("POST", "/taskstore/update", Some(&update)).expect("it runs").status;
    assert!([503, 504].contains(&status), "{status}");
}
