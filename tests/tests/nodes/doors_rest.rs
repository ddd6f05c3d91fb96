//! The door `/v1` of real nodes: schedules, groups, transactions, sessions, watches, and views of the cluster.

use norn_tests::http::{HttpEvent, HttpStream};
use norn_tests::ports::free_port;
use norn_tests::wait::{Deadline, PATIENCE, found, until};
use norn_tests::{Cluster, Http};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Starts three nodes with a door each.
fn start() -> (Cluster, Vec<Http>) {
    let mut cluster = Cluster::prepare(3, Vec::new());
    let mut doors = Vec::new();
    for index in 0..3 {
        let address = format!("127.0.0.1:{}", free_port());
        cluster.replace(index, None, vec![format!("http_listen={address}")]);
        cluster.restart(index);
        cluster.wait_ready(index);
        doors.push(Http::new(address));
    }
    cluster.init(&[0, 1, 2], &["--partitions", "8"]).done();
    for door in &doors {
        until("the door is ready", || door.get("/readyz").status == 200);
    }
    (cluster, doors)
}

fn post(door: &Http, target: &str, body: &Value) -> Value {
    let answer = door.call("POST", target, &body.to_string());
    assert!((200..300).contains(&answer.status), "{target} {body}: {}", String::from_utf8_lossy(&answer.body));
    answer.json()
}

fn enqueue(door: &Http, task: &Value) -> String {
    post(door, "/v1/tasks", task)["id"].as_str().expect("an id").to_owned()
}

#[test]
fn schedules_fire_through_the_door_and_stay_until_they_are_removed() {
    let (_cluster, doors) = start();
    let set = json!({"cron": "* * * * * *", "queue": "ticks", "data": "now"}).to_string();
    let schedule = doors[0].call("PUT", "/v1/schedules?name=each%2Fsecond", &set).expect(200);
    assert_eq!((&schedule["name"], &schedule["queue"]), (&json!("each/second"), &json!("ticks")));
    found("the schedule has fired", || {
        let shown = doors[1].get("/v1/schedules?name=each/second").expect(200);
        shown["schedules"][0]["fired"].as_u64().filter(|fired| *fired >= 2)
    });
    let paused = doors[2].call("POST", "/v1/schedules/pause?name=each/second", "").expect(200);
    assert_eq!(paused["paused"], true);
    assert_eq!(doors[0].get("/v1/schedules").expect(200)["schedules"].as_array().map(Vec::len), Some(1));
    let resumed = doors[2].call("POST", "/v1/schedules/resume?name=each/second", "").expect(200);
    assert_eq!(resumed["paused"], false);
    for removed in [true, false] {
        let answer = doors[0].call("DELETE", "/v1/schedules?name=each/second", "").expect(200);
        assert_eq!(answer, json!({"name": "each/second", "removed": removed}));
    }
    assert_eq!(doors[1].get("/v1/schedules?name=each/second").expect(404)["code"], "not_found");
    let queues = doors[1].get("/v1/queues").expect(200);
    assert!(queues["queues"].as_array().expect("a list").iter().any(|queue| queue["queue"] == "ticks"), "{queues}");
}

/// Makes a group of three at the command line, whose number of members is not said. Returns the join and the members.
fn group(cluster: &Cluster) -> (String, Vec<String>) {
    let cli = cluster.cli_at(0).patient();
    let member = |number: u32| {
        let of = number.to_string();
        let words = ["enqueue", "pages", "print it", "--group", "book-7", "--number", &of, "--join", "books"];
        cli.json(&words).done().object()
    };
    let lines: Vec<Value> = (1..=3).map(member).collect();
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    (text(&lines[0]["group"]), lines.iter().map(|line| text(&line["id"])).collect())
}

#[test]
fn a_group_is_closed_and_its_members_are_listed_in_pages() {
    let (cluster, doors) = start();
    let (join, ids) = group(&cluster);
    let members = format!("/v1/groups/{join}/members");
    let open = doors[1].get(&members).expect(200);
    assert_eq!(open, json!({"members": [], "total": null, "next": null}));
    let close = format!("/v1/groups/{join}/close");
    assert_eq!(post(&doors[1], &close, &json!({"total": 3}))["guarantee"], "strict");
    post(&doors[2], &close, &json!({"total": 3}));
    assert_eq!(doors[0].call("POST", &close, r#"{"total": 4}"#).expect(409)["code"], "conflict");
    let cli = cluster.cli_at(0).patient();
    for _ in &ids {
        let task = cli.claim(&["pages", "--json"]).done().object();
        let [id, token] = ["id", "token"].map(|field| task[field].as_str().expect("text").to_owned());
        cli.run(&["complete", &id, &token, "--result", "printed"]).done();
    }
    let first = found("all members are done", || {
        let page = doors[2].get(&format!("{members}?limit=2")).expect(200);
        page["members"].as_array()?.iter().all(|member| member["result"] == "printed").then_some(page)
    });
    assert_eq!((&first["total"], &first["next"]), (&json!(3), &json!(2)));
    let second = doors[2].get(&format!("{members}?limit=2&after=2")).expect(200);
    assert_eq!((&second["members"][0]["id"], &second["next"]), (&json!(ids[2]), &Value::Null));
    assert_eq!(doors[0].get(&format!("/v1/groups/{}/members", ids[0])).expect(400)["code"], "invalid");
}

#[test]
fn a_refused_transaction_changes_nothing_and_says_what_stood_against_it() {
    let (_cluster, doors) = start();
    let old = enqueue(&doors[0], &json!({"queue": "inbox", "data": "x"}));
    let version = "00000000000000ff";
    let draft = json!({"adds": [{"queue": "outbox"}], "deletes": [{"id": old, "version": version}]});
    let refused = doors[1].call("POST", "/v1/transactions", &draft.to_string());
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    let problem = refused.expect(409);
    assert_eq!(
        (&problem["code"], &problem["retry"], &problem["status"]),
        (&json!("conflict"), &json!("never"), &json!(409))
    );
    assert_eq!(problem["deletes"], json!([old]));
    for list in ["changes", "depends", "owned", "bugs"] {
        assert_eq!(problem[list], json!([]), "{list}");
    }
    let done = post(&doors[2], "/v1/transactions", &json!({"adds": [{"queue": "outbox"}], "deletes": [{"id": old}]}));
    assert_eq!(done["added"].as_array().map(Vec::len), Some(1));
    assert_eq!(doors[0].get(&format!("/v1/tasks/{old}")).expect(200)["state"], "cancelled");
    let queues = doors[0].get("/v1/queues").expect(200);
    let outbox = queues["queues"].as_array().expect("a list").iter().find(|queue| queue["queue"] == "outbox").cloned();
    assert_eq!(outbox.expect("it has a task")["ready"], 1, "the refused one added nothing");
}

#[test]
fn a_session_is_opened_renewed_and_ended() {
    let (_cluster, doors) = start();
    let session = post(&doors[0], "/v1/sessions", &json!({"ttl_ms": 60_000, "worker": "w"}));
    let [id, token] = ["id", "token"].map(|field| session[field].as_str().expect("text").to_owned());
    let renewed = post(&doors[1], &format!("/v1/sessions/{id}/{token}/renew"), &json!({}));
    assert!(renewed["expires_ms"].as_u64() >= session["expires_ms"].as_u64());
    let task = enqueue(&doors[0], &json!({"queue": "mail"}));
    let wrong = doors[2].call("POST", &format!("/v1/sessions/{task}/{token}/end"), "");
    assert_eq!(wrong.expect(400)["code"], "invalid", "another task is not ended as a session");
    assert_eq!(doors[2].call("POST", &format!("/v1/sessions/{id}/9.9/end"), "").expect(409)["code"], "superseded");
    post(&doors[2], &format!("/v1/sessions/{id}/{token}/end"), &Value::Null);
}

#[test]
fn the_cluster_is_shown_and_changed_through_any_node() {
    let (_cluster, doors) = start();
    assert_eq!(doors[0].get("/v1/nodes").expect(200)["nodes"].as_array().map(Vec::len), Some(3));
    assert_eq!(doors[1].get("/v1/ring").expect(200)["partitions"].as_array().map(Vec::len), Some(8));
    let partitions = doors[1].get("/v1/partitions").expect(200);
    assert!(
        partitions["partitions"].as_array().expect("a list").iter().all(|partition| partition["leader"].is_string())
    );
    let status = doors[2].get("/v1/status").expect(200);
    assert_eq!(status["nodes"], json!({"total": 3, "alive": 3}));
    let overview = doors[2].get("/v1/cluster").expect(200);
    assert_eq!((&overview["cluster"], &overview["layout"]["replicas"]), (&status["cluster"], &json!(3)));
    assert_eq!(overview["members"].as_array().map(Vec::len), Some(3));
    let name = overview["members"][0]["name"].as_str().expect("a name").to_owned();
    let drain = json!({"change": {"drain": {"node": name}}, "dry_run": true});
    let answer = doors[0].call("POST", "/v1/cluster/changes", &drain.to_string());
    // Three nodes hold three replicas: none can be drained.
    assert!([200, 400, 409].contains(&answer.status), "{answer:?}");
    let change = json!({"change": {"settings": {"moves_at_once": 9}}});
    assert_eq!(post(&doors[1], "/v1/cluster/changes", &change)["state"], "done");
    assert_eq!(doors[0].get("/v1/cluster").expect(200)["settings"]["moves_at_once"], 9);
    let add = json!({"change": {"add": {"address": "127.0.0.1"}}}).to_string();
    assert_eq!(doors[0].call("POST", "/v1/cluster/changes", &add).expect(400)["code"], "invalid");
    let policy = r#"{"attempts": 5, "rate": "100/s"}"#;
    let changed = doors[1].call("PATCH", "/v1/policies?queue=team/mail", policy).expect(200);
    assert_eq!((&changed["attempts"], &changed["rate"]), (&json!(5), &json!("100/s")));
    let wrong = doors[1].call("PATCH", "/v1/policies?queue=team/mail", r#"{"attempts": 7, "lease_ms": 0}"#);
    assert_eq!(wrong.expect(409)["code"], "conflict", "the metadata group refuses it");
    let shown = doors[2].get("/v1/policies?queue=team/mail").expect(200);
    assert_eq!(shown["policies"][0]["attempts"], 5, "a refused setting keeps the others from being changed");
}

/// A reader that connects again, to another door if its own is gone, as a browser does.
struct Reader<'a> {
    doors: &'a [Http],
    target: String,
    last: Option<String>,
    stream: Option<HttpStream>,
}

impl Reader<'_> {
    fn connect(&self) -> Option<HttpStream> {
        self.doors.iter().find_map(|door| {
            let headers: Vec<(&str, &str)> = self.last.iter().map(|last| ("last-event-id", last.as_str())).collect();
            door.open("GET", &self.target, &headers, b"").ok().filter(|stream| stream.status == 200)
        })
    }

    fn next(&mut self) -> HttpEvent {
        let deadline = Deadline::after(PATIENCE);
        loop {
            deadline.check(|| "an event comes".to_owned());
            let Some(stream) = &mut self.stream else {
                self.stream = Some(found("a door takes the watch", || self.connect()));
                continue;
            };
            match stream.event() {
                Ok(Some(event)) => {
                    self.last = event.id.clone().or(self.last.take());
                    return event;
                }
                Ok(None) | Err(_) => self.stream = None,
            }
        }
    }
}

/// Goal: a reader that connects again elsewhere with the last id misses no ending. Method: the node that serves its stream is killed in
/// the midst of the work.
#[test]
fn a_watch_goes_on_at_another_node_after_its_own_is_killed() {
    let (mut cluster, doors) = start();
    let mut reader = Reader { doors: &doors, target: "/v1/watch?queue=mail".to_owned(), last: None, stream: None };
    assert_eq!(reader.next().name.as_deref(), Some("begun"));
    assert!(reader.last.is_some());
    let (mut wanted, mut told) = (BTreeMap::new(), BTreeMap::new());
    let cli = cluster.cli_at(2).patient();
    for number in 0..30 {
        let id = enqueue(&doors[2], &json!({"queue": "mail", "data": format!("letter {number}")}));
        cli.run(&["cancel", &id, "--reason", "enough"]).done();
        wanted.insert(id, "cancelled".to_owned());
        if number == 10 {
            while told.is_empty() {
                hear(&mut reader, &mut told);
            }
            cluster.kill(0);
        }
    }
    let deadline = Deadline::after(PATIENCE);
    while wanted.keys().any(|id| !told.contains_key(id)) {
        deadline.check(|| format!("{} of {} endings are told", told.len(), wanted.len()));
        hear(&mut reader, &mut told);
    }
    assert_eq!(told, wanted);
}

fn hear(reader: &mut Reader<'_>, told: &mut BTreeMap<String, String>) {
    let event = reader.next();
    match event.name.as_deref() {
        None => {
            let task = event.json();
            let [id, state] = ["id", "state"].map(|field| task[field].as_str().expect("text").to_owned());
            if state != "ready" {
                told.insert(id, state);
            }
        }
        Some("silent") => {}
        Some(name) => panic!("one node was away: {name}"),
    }
}

#[test]
fn a_watched_group_ends_with_its_join() {
    let (cluster, doors) = start();
    let (join, ids) = group(&cluster);
    let mut stream = doors[1].open("GET", &format!("/v1/watch?group={join}"), &[], b"").expect("the node answers");
    assert_eq!(stream.event().expect("it comes").and_then(|event| event.name).as_deref(), Some("begun"));
    let cli = cluster.cli_at(0).patient();
    for id in ids.iter().chain([&join]) {
        cli.run(&["cancel", id]).done();
    }
    let mut names = Vec::new();
    while let Some(event) = stream.event().expect("the stream ends well") {
        names.push((event.name, event.id));
    }
    assert_eq!(names.last(), Some(&(Some("ended".to_owned()), Some("ended".to_owned()))), "{names:?}");
    let again = doors[1].send("GET", &format!("/v1/watch?group={join}"), &[("last-event-id", "ended")], b"");
    assert_eq!(again.expect("the node answers").status, 204, "a browser does not connect again");
}

#[test]
fn a_stream_ends_with_a_word_when_its_node_stops() {
    let (mut cluster, doors) = start();
    let mut stream = doors[0].open("GET", "/v1/watch?queue=mail", &[], b"").expect("the node answers");
    assert_eq!(stream.event().expect("it comes").and_then(|event| event.name).as_deref(), Some("begun"));
    let reading = std::thread::spawn(move || {
        let mut last = None;
        while let Ok(Some(event)) = stream.event() {
            last = event.name;
        }
        last
    });
    cluster.terminate(0);
    assert_eq!(reading.join().expect("it reads").as_deref(), Some("bye"));
}

#[test]
fn a_node_that_waits_is_made_a_member_through_the_door() {
    let (mut cluster, doors) = start();
    let newcomer = cluster.start_blank();
    let change = json!({"change": {"add": {"address": cluster.address(newcomer), "zone": "b"}}, "dry_run": true});
    assert_eq!(post(&doors[0], "/v1/cluster/changes", &change)["state"], "planned");
    let change = json!({"change": {"add": {"address": cluster.address(newcomer), "zone": "b"}}});
    let added = post(&doors[1], "/v1/cluster/changes", &change);
    assert_eq!((&added["change"], &added["state"], &added["already"]), (&json!("add"), &json!("begun"), &json!(false)));
    cluster.enter(newcomer);
    assert_eq!(post(&doors[2], "/v1/cluster/changes", &change)["already"], true, "it may be repeated");
    until("the new member is alive and holds its share", || {
        let overview = doors[0].get("/v1/cluster").expect(200);
        let members = overview["members"].as_array().expect("a list");
        let member = members.iter().find(|member| member["node"] == added["node"]);
        member.is_some_and(|member| member["alive"] == true && member["zone"] == "b" && member["holds"] != 0)
    });
}
