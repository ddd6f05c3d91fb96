//! The output, to the byte: JSON is a contract with programs.

use super::*;
use norn_wire::Cause;
use norn_wire::response::{ClaimEnd, ClaimOutcome, Losses};

async fn printed(line: &str, answer: Response) -> String {
    let outcome = run(line, [Ok(answer)]).await;
    assert_eq!((outcome.exit, &outcome.noted[..]), (Exit::Done, ""));
    outcome.printed
}

/// Replaces ids by their numbers in golden lines.
fn named(text: &str) -> String {
    let id_of = |text: String, number: u32| text.replace(&format!("ID{number}"), &id(number).to_string());
    (1..=3).fold(text.to_owned(), id_of)
}

#[tokio::test]
async fn json_of_writes() {
    let acked_line = named("{\"id\":\"ID1\",\"acks\":3,\"replicas\":3,\"guarantee\":\"strict\"}\n");
    let many = || Response::Acked(vec![Ok(acked(1))]);
    assert_eq!(printed("enqueue mail x --json", many()).await, acked_line);
    assert_eq!(printed(&named("complete ID1 7.42 --json"), many()).await, acked_line);
    let one = || Response::AckedOne(acked(1));
    assert_eq!(printed(&named("update ID1 7.42 0 x --json"), one()).await, acked_line);
    let unique = || Response::AckedUnique { acked: acked(1), existing: true };
    let existing_line = acked_line.replace("\"strict\"}", "\"strict\",\"existing\":true}");
    assert_eq!(printed("enqueue mail x --key a --unique --json", unique()).await, existing_line);
    let held = named("{\"id\":\"ID1\",\"token\":\"7.42\"}\n");
    assert_eq!(printed(&named("release ID1 7.42 --json"), Response::Done).await, held);
    assert_eq!(printed(&named("fail ID1 7.42 --json"), Response::Done).await, held);
    let renewed = named("{\"id\":\"ID1\",\"token\":\"7.42\",\"lease_ms\":5000,\"lease_expires_ms\":1700000015000}\n");
    assert_eq!(printed(&named("renew ID1 7.42 --json"), Response::Renewed(vec![Ok(5_000)])).await, renewed);
}

#[tokio::test]
async fn json_of_a_claim() {
    let answer =
        Response::Claimed { tasks: vec![granted(), Granted { id: id(2), ..granted() }], unavailable: 0, left: 0 };
    let expected = named(concat!(
        "{\"id\":\"ID1\",\"token\":\"7.42\",\"queue\":\"mail\",\"data\":\"hello\",\"data_encoding\":\"utf8\",",
        "\"priority\":5,\"attempt\":2,\"lease_ms\":30000,\"lease_expires_ms\":1700000040000,",
        "\"updates\":[{\"token\":\"6.1\",\"sequence\":0,\"data\":\"half\",\"data_encoding\":\"utf8\"}],",
        "\"headers\":{\"trace\":\"abc\"},\"member_of\":null,\"group\":null}\n",
    ));
    assert_eq!(
        printed("claim mail --json", answer).await,
        expected.clone() + &expected.replace(&id(1).to_string(), &id(2).to_string())
    );
}

// T7, S54
#[tokio::test]
async fn json_of_tasks() {
    let bare = named(concat!(
        "{\"id\":\"ID1\",\"queue\":\"mail\",\"state\":\"ready\",\"priority\":0,",
        "\"data\":\"hello\",\"data_encoding\":\"utf8\",\"claims\":[],\"claims_more\":false,\"updates\":[],",
        "\"result\":null,\"result_encoding\":null,\"reason\":null,\"overruled\":false,\"conflict\":false,\"log_incomplete\":false,",
        "\"children\":[],\"children_open\":false,",
        "\"redriven\":[],",
        "\"headers\":{},\"not_before_ms\":0,\"max_attempts\":0,\"key\":null,\"after\":[],\"waits_for\":[],",
        "\"member_of\":null,\"group\":null,\"version\":null,",
        "\"enqueued_ms\":1700000000000,\"ended_ms\":null,\"next_attempt_ms\":null}\n",
    ));
    let full = named(concat!(
        "{\"id\":\"ID1\",\"queue\":\"mail\",\"state\":\"claimed\",\"priority\":5,",
        "\"data\":\"hello\",\"data_encoding\":\"utf8\",",
        "\"claims\":[{\"token\":\"7.42\",\"start_ms\":1700000007000,\"end_ms\":1700000037000,",
        "\"completed_ms\":null,\"worker\":\"w1\",\"rejected\":null,\"superseded\":null,",
        "\"running\":true,\"outcome\":null,\"reason\":null,\"ended_ms\":null,\"session\":null}],",
        "\"claims_more\":false,\"updates\":[{\"token\":\"7.42\",\"sequence\":0,\"data\":\"/w==\",\"data_encoding\":\"base64\"}],",
        "\"result\":\"ok\",\"result_encoding\":\"utf8\",\"reason\":\"because\",\"overruled\":false,\"conflict\":true,",
        "\"log_incomplete\":true,\"children\":[],\"children_open\":false,",
        "\"redriven\":[],\"headers\":{\"trace\":\"a\\u001bb\"},",
        "\"not_before_ms\":1700000019800,\"max_attempts\":3,\"key\":null,\"after\":[\"ID2\",\"ID3\"],\"waits_for\":[\"ID3\"],",
        "\"member_of\":null,\"group\":null,\"version\":null,",
        "\"enqueued_ms\":1700000000000,\"ended_ms\":null,\"next_attempt_ms\":null}\n",
    ));
    let task = |task| Response::Task(Box::new(task));
    assert_eq!(printed(&named("get ID1 --json"), task(bare_task(1, State::Ready))).await, bare);
    assert_eq!(printed(&named("get ID1 --json"), task(full_task())).await, full);
    assert_eq!(
        printed(&named("wait ID1 --json"), task(bare_task(1, State::Done))).await,
        bare.replace("ready", "done")
    );
    let second = bare.replace(&id(1).to_string(), &id(2).to_string());
    assert_eq!(printed("list --json", page(1..3, false).unwrap()).await, bare + &second);
    assert_eq!(
        printed(&named("log ID1 --json"), task(full_task())).await,
        "{\"token\":\"7.42\",\"sequence\":0,\"data\":\"/w==\",\"data_encoding\":\"base64\"}\n"
    );
}

// T32
#[tokio::test]
async fn several_tasks_are_shown_in_the_order_asked_for() {
    let task = |number| Ok(Response::Task(Box::new(bare_task(number, State::Ready))));
    let answers = || [task(2), Err(Error::new(ErrorCode::NotFound, "no such task")), task(1)];
    let line = named("get ID2 ID3 ID1 --json");
    let outcome = run(&line, answers()).await;
    assert_eq!(outcome.exit, Exit::Done, "{}", outcome.noted);
    let rows: Vec<serde_json::Value> = outcome.printed.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
    let ids: Vec<Option<&str>> = rows.iter().map(|row| row.get("id").and_then(|id| id.as_str())).collect();
    assert_eq!(ids, [Some(named("ID2").as_str()), None, Some(named("ID1").as_str())]);
    assert!(rows[1].is_null());
    let text = run(&named("get ID2 ID3 ID1"), answers()).await.printed;
    assert!(text.contains(&named("ID3: there is no such task")), "{text}");
    let refused = run(&line, [task(2), Err(Error::new(ErrorCode::Unavailable, "no majority"))]).await;
    assert_eq!(refused.exit, Exit::Unavailable, "anything else is a failure");
}

#[tokio::test]
async fn json_of_counts() {
    assert_eq!(printed("count --json", Response::Count(7)).await, "{\"count\":7}\n");
    assert_eq!(
        printed("queues --json", Response::Queues(queue_counts())).await,
        concat!(
            "{\"queue\":\"mail\",\"waiting\":1,\"ready\":2,\"claimed\":3,\"done\":4,\"dead\":5,\"cancelled\":6}\n",
            "{\"queue\":\"team/maps\",\"waiting\":0,\"ready\":0,\"claimed\":0,\"done\":0,\"dead\":0,\"cancelled\":0}\n",
        )
    );
}

#[tokio::test]
async fn json_of_the_cluster() {
    let (one, two) = (NodeId(1).to_string(), NodeId(2).to_string());
    let mut members = nodes();
    members[1].unreached_from = vec![NodeId(1)];
    let nodes = printed("nodes --json", Response::Nodes(members)).await;
    let first = format!(
        "{{\"node\":\"{one}\",\"name\":\"n1\",\"address\":\"10.0.0.1:7400\",\"zone\":\"a\",\"state\":null,\"alive\":true,\
         \"this\":true,\"leads\":22,\"holds\":64,\"clock\":\"good\",\"clock_offset_ms\":null,\"clock_error_ms\":null,\
         \"round_trip_us\":null,\"version\":3,\"unreached_from\":[]}}"
    );
    let second = format!(
        "{{\"node\":\"{two}\",\"name\":\"n2\",\"address\":\"10.0.0.2:7400\",\"zone\":\"a\",\"state\":null,\"alive\":false,\
         \"this\":false,\"leads\":22,\"holds\":64,\"clock\":\"suspect\",\"clock_offset_ms\":-3,\"clock_error_ms\":1,\
         \"round_trip_us\":1250,\"version\":null,\"unreached_from\":[\"{one}\"]}}"
    );
    assert_eq!(nodes.lines().collect::<Vec<_>>(), [first, second]);
    let ring = printed("ring --json", Response::Partitions(partitions())).await;
    let (three, four) = (NodeId(3).to_string(), NodeId(4).to_string());
    let first = format!(
        "{{\"partition\":0,\"cohort\":[\"{one}\",\"{two}\"],\"next\":[\"{two}\",\"{three}\"],\"leaving\":[\"{four}\"]}}"
    );
    assert_eq!((ring.lines().next(), ring.lines().count()), (Some(&first[..]), 2));
    let partitions = printed("partitions --json", Response::Partitions(partitions())).await;
    let cohort = format!("\"cohort\":[\"{one}\",\"{two}\"]");
    let expected = format!(
        "{{\"partition\":0,{cohort},\"leader\":\"{one}\",\"epoch\":7,\"applied\":12,\"tasks\":4,\"claims\":1,\"root\":\"abcd\",\
         \"health\":\"holes\",\"tombstones\":2,\"held_up_by\":[\"{two}\"],\
         \"agreements\":[{{\"node\":\"{two}\",\"agreed_ms_ago\":12500,\"apart\":true,\"differing\":7}}],\
         \"next\":[\"{two}\",\"{three}\"],\"leaving\":[\"{four}\"]}}\n\
         {{\"partition\":1,{cohort},\"leader\":null,\"epoch\":7,\"applied\":12,\"tasks\":null,\"claims\":null,\"root\":null,\
         \"health\":null,\"tombstones\":null,\"held_up_by\":[],\"agreements\":[],\"next\":[],\"leaving\":[]}}\n"
    );
    assert_eq!(partitions, expected);
    let expected = format!(
        "{{\"cluster\":\"{}\",\"name\":\"dev\",\"node\":\"{one}\",\"boot\":2,\"nodes\":{{\"total\":3,\"alive\":2}},\
         \"partitions\":{{\"total\":64,\"led\":64}},\"counts\":{{\"waiting\":1,\"ready\":2,\"claimed\":3,\"done\":4,\
         \"dead\":5,\"cancelled\":6}},\"counters\":{{\"wal_syncs\":17}}}}\n",
        ClusterId(9)
    );
    assert_eq!(printed("status --json", Response::Status(Box::new(status()))).await, expected);
}

#[tokio::test]
async fn people_read_short_confirmations() {
    let many = || Response::Acked(vec![Ok(acked(1))]);
    let expected = named("enqueued ID1 (3 of 3 replicas, strict)\n");
    assert_eq!(printed("enqueue mail x", many()).await, expected);
    assert_eq!(printed(&named("complete ID1 7.42"), many()).await, expected.replace("enqueued", "completed"));
    let renewed = printed(&named("renew ID1 7.42"), Response::Renewed(vec![Ok(9_800)])).await;
    assert_eq!(renewed, named("renewed ID1 7.42, lease 9.8s, ends in 9.8s\n"));
    let failed = printed(&named("fail ID1 7.42 --retry-in 5m"), Response::Done).await;
    assert_eq!(failed, named("failed ID1 7.42; it can be claimed again in 5m, if any attempt is left\n"));
    let dead = Ok(Response::Task(Box::new(bare_task(1, State::Dead))));
    let failed = run(&named("fail ID1 7.42"), [Ok(Response::Done), dead]).await.printed;
    assert_eq!(failed, named("failed ID1 7.42; it is dead\n"), "it was the last attempt");
    let claimed = printed("claim mail", Response::Claimed { tasks: vec![granted()], unavailable: 0, left: 0 }).await;
    let expected = named(
        "claimed ID1 from mail\n  token     7.42\n  lease     30s, ends in 30s\n  attempt   2\n  priority  5\n  \
         header    trace=abc\n  data      hello\n  update    6.1 #0 half\n",
    );
    assert_eq!(claimed, expected);
}

#[tokio::test]
async fn people_read_aligned_tables() {
    let queues = printed("queues", Response::Queues(queue_counts())).await;
    let expected = "\
QUEUE      WAITING  READY  CLAIMED  DONE  DEAD  CANCELLED
mail             1      2        3     4     5          6
team/maps        0      0        0     0     0          0
";
    assert_eq!(queues, expected);
    let listed = printed("list", page(1..3, false).unwrap()).await;
    let expected = named(
        "\
ID                                QUEUE  STATE  PRIORITY  CLAIMS  ENQUEUED  DATA
ID1  mail   ready         0       0  10s ago   hello
ID2  mail   ready         0       0  10s ago   hello
",
    );
    assert_eq!(listed, expected);
    let nodes_listed = printed("nodes", Response::Nodes(nodes())).await;
    let (one, two) = (NodeId(1), NodeId(2));
    let expected = format!(
        "\
NAME  ADDRESS        ZONE  STATE    LEADS  HOLDS            CLOCK  ROUND TRIP  VERSION  NODE
n1    10.0.0.1:7400  a     answers     22     64                -           -        3  {one}
n2    10.0.0.2:7400  a     silent      22     64  -3ms ±1 suspect       1.2ms        -  {two}
"
    );
    assert_eq!(nodes_listed, expected);
    let outcome = run("partitions", [Ok(Response::Partitions(partitions())), Ok(Response::Nodes(nodes()))]).await;
    let expected = "\
PARTITION  LEADER  EPOCH  APPLIED  TASKS  CLAIMS              TOMBS  HEALTH  AGREES                               ROOT  NODES
        0  n1          7       12      4       1  2, waiting for n2  holes   n2 apart by 7 tasks, agreed 12s ago  abcd  n1 n2, \
        then n2 00000000, left by 00000000
        1  none        7       12      -       -                  -  -       -                                    -     n1 n2
";
    assert_eq!(outcome.printed, expected);
}

#[tokio::test]
async fn people_read_a_task_in_full() {
    let text = printed(&named("get ID1"), Response::Task(Box::new(full_task()))).await;
    let expected = named(
        "\
id          ID1
queue       mail
state       claimed
enqueued    10s ago, 2023-11-14T22:13:20Z
not before  in 9.8s, 2023-11-14T22:13:39.8Z
priority    5
attempts    at most 3
after       ID2
waits for   ID3
header      trace=a\\u{1b}b
data        hello
result      ok
reason      because
conflict    a client wrote two different values under one key
claims
  TOKEN  STARTED  ENDS    OUTCOME  WORKER
  7.42   3s ago   in 27s  running  w1
log
  7.42 #0  base64:/w==
  more entries were written, which are shown once those before them are here
",
    );
    assert_eq!(text, expected);
}

#[tokio::test]
async fn colours_are_only_where_they_are_shown() {
    let written = Written::default();
    let output = Output::new(written.clone(), Written::default(), false).with_color(true);
    let fake = Fake::new([Ok(Response::Queues(queue_counts())), page(1..2, false)]);
    let mut runner = Runner::new(&fake, output, Input::pipe(&b""[..]), Place::CommandLine);
    runner.clock = || NOW_MS;
    for line in ["queues", "list"] {
        runner.run(CommandLine::try_parse_from([line]).unwrap().verb).await;
    }
    assert!(written.text().contains("\x1b["));
    assert!(!printed("queues", Response::Queues(queue_counts())).await.contains('\x1b'));
}

#[tokio::test]
async fn help_knows_every_verb() {
    let outcome = run("help", []).await;
    for verb in ["enqueue", "claim", "partitions", "status", "help"] {
        assert!(outcome.printed.contains(verb), "{}", outcome.printed);
    }
    let help = run("help enqueue", []).await.printed;
    assert!(help.contains("--max-attempts") && help.contains("\nUsage: enqueue "), "{help}");
    assert!(run("enqueue --help", []).await.printed.contains("--max-attempts"));
    assert!(help.contains("\n  enqueue mail hello --priority 5") && !help.contains("  norn "), "as typed here: {help}");
    assert!(run("help session open", []).await.printed.contains("\n  session open --ttl"));
    assert_eq!(run("help session dance", []).await.exit, Exit::Usage);
    assert_eq!(run("help dance", []).await.exit, Exit::Usage);
    assert!(run("help --json", []).await.printed.starts_with("{\"help\":\""));
}

/// Goal: a task that had ended before is not reported as cancelled, to people and programs, and scripts see it by the exit code.
#[tokio::test]
async fn a_cancellation_that_comes_too_late_is_told() {
    let done = named("cancelled ID1 (3 of 3 replicas, strict)\n");
    for (state, exit, text, json) in [
        (Some(State::Done), 5, named("not cancelled: ID1 is done, and stays so\n"), "\"done\""),
        (Some(State::Dead), 5, named("not cancelled: ID1 is dead, and stays so\n"), "\"dead\""),
        (Some(State::Cancelled), 0, done.clone(), "\"cancelled\""),
        // A read may miss what one replica has acknowledged.
        (Some(State::Ready), 0, done.clone(), "null"),
        (None, 0, done, "null"),
    ] {
        // The task ends between the first read and the cancellation.
        let answers = || [read(Some(State::Ready)), Ok(Response::AckedOne(acked(1))), read(state)];
        let outcome = run(&named("cancel ID1"), answers()).await;
        assert_eq!((outcome.exit.code(), outcome.printed, outcome.noted.as_str()), (exit, text, ""));
        let outcome = run(&named("cancel ID1 --json"), answers()).await;
        let line = format!(r#"{{"id":"ID1","acks":3,"replicas":3,"guarantee":"strict","state":{json}}}"#);
        assert_eq!((outcome.exit.code(), outcome.printed.trim_end()), (exit, named(&line).as_str()));
    }
}

/// Returns a task in this state, or an error if `None`.
fn read(state: Option<State>) -> Result<Response, Error> {
    let task = state.map(|state| Response::Task(Box::new(bare_task(1, state))));
    task.ok_or_else(|| Error::unavailable("no majority"))
}

/// Goal: a death and its reason survive a later cancellation, and so does an earlier cancellation. Nothing is sent, because at a node the
/// cancellation would override both.
#[tokio::test]
async fn what_has_ended_is_not_cancelled() {
    for (state, exit, text) in [
        (State::Done, 5, "not cancelled: ID1 is done, and stays so\n"),
        (State::Dead, 5, "not cancelled: ID1 is dead, and stays so\n"),
        (State::Cancelled, 0, "nothing changed: ID1 is cancelled already\n"),
    ] {
        let answers = || [read(Some(state)), Ok(Response::AckedOne(acked(1)))];
        let outcome = run(&named("cancel ID1 --reason late"), answers()).await;
        assert_eq!((outcome.exit.code(), outcome.printed.as_str()), (exit, named(text).as_str()));
        assert!(matches!(outcome.request(), Request::Get { .. }), "{:?}", outcome.calls);
        let outcome = run(&named("cancel ID1 --json"), answers()).await;
        let line = format!(r#"{{"id":"ID1","acks":null,"replicas":null,"guarantee":null,"state":"{state}"}}"#);
        assert_eq!((outcome.exit.code(), outcome.printed.trim_end()), (exit, named(&line).as_str()));
    }
}

/// Goal: without a majority, a queue of mode `any` accepts a cancellation nevertheless; if no node is reached, the command ends with the
/// first call.
#[tokio::test]
async fn a_cancellation_waits_for_no_majority_to_look() {
    let outcome = run(&named("cancel ID1"), [read(None), Ok(Response::AckedOne(acked(1))), read(None)]).await;
    assert_eq!((outcome.exit, outcome.calls.len()), (Exit::Done, 3), "{}", outcome.noted);
    let unreached = Error { cause: Some(Cause::Unreached), ..Error::unavailable("no node was reached") };
    let outcome = run(&named("cancel ID1"), [Err(unreached), Ok(Response::AckedOne(acked(1)))]).await;
    assert_eq!((outcome.exit, outcome.calls.len()), (Exit::Unavailable, 1), "{}", outcome.printed);
    assert!(outcome.noted.contains("listen at these addresses, and that no firewall is between"), "{}", outcome.noted);
}

/// Goal: only a lease that holds is shown as one that will end.
#[tokio::test]
async fn a_claim_that_holds_no_more_is_shown_as_over() {
    for state in [State::Dead, State::Cancelled, State::Done, State::Waiting, State::Ready] {
        let task = || Response::Task(Box::new(TaskView { state, ..full_task() }));
        let text = printed(&named("get ID1"), task()).await;
        assert!(text.contains("  7.42   3s ago   over  -        w1"), "{state}: {text}");
        let json = printed(&named("get ID1 --json"), task()).await;
        assert!(json.contains("\"running\":false") && !json.contains("\"running\":true"), "{state}: {json}");
    }
    // Of two claims only the later one holds.
    let mut task = full_task();
    let earlier = ClaimView { token: Token { epoch: 7, number: 41 }, ..task.claims[0].clone() };
    task.claims.insert(0, earlier);
    let listed = Page { tasks: vec![task.clone()], next: None };
    let json = printed("list --json", Response::Page(listed)).await;
    let running: Vec<&str> = json.split("\"running\":").skip(1).map(|rest| &rest[..4]).collect();
    assert_eq!(running, ["fals", "true"], "{json}");
    let text = printed(&named("get ID1"), Response::Task(Box::new(task))).await;
    assert!(text.contains("7.41   3s ago   over") && text.contains("7.42   3s ago   in 27s"), "{text}");
}

/// Goal: a reader of a claim sees that more than its lease may end it.
#[tokio::test]
async fn a_claim_that_a_session_keeps_names_it_while_it_holds() {
    let mut task = full_task();
    task.claims[0].session = Some(id(2));
    let told = named("  7.42 ends with session ID2 of its worker, or with its lease\n");
    for (state, holds) in [(State::Claimed, true), (State::Ready, false)] {
        let task = || Response::Task(Box::new(TaskView { state, ..task.clone() }));
        let text = printed(&named("get ID1"), task()).await;
        assert_eq!(text.contains(&told), holds, "{text}");
        let json = printed(&named("get ID1 --json"), task()).await;
        assert_eq!(json.contains(&named("\"session\":\"ID2\"")), holds, "{json}");
    }
}

fn ended_claim(number: u64, outcome: ClaimOutcome, reason: Option<&str>) -> ClaimView {
    let end = ClaimEnd { outcome, at_ms: NOW_MS - 2_000, reason: reason.map(str::to_owned) };
    let token = Token { epoch: 7, number };
    ClaimView { token, end: Some(end), end_ms: Some(NOW_MS + 27_000), ..full_task().claims.remove(0) }
}

/// Returns a task that waits after a failed attempt.
fn failed_task() -> TaskView {
    let claims = vec![
        ended_claim(40, ClaimOutcome::Released, None),
        ended_claim(41, ClaimOutcome::GivenUp, None),
        ended_claim(42, ClaimOutcome::Failed, Some("server\x1b is busy")),
    ];
    TaskView { claims, next_attempt_ms: Some(NOW_MS + 3_600_000), ..bare_task(1, State::Waiting) }
}

/// Goal: people and programs see how each claim ended, why and when, and when the task is tried again.
#[tokio::test]
async fn claims_show_how_they_ended() {
    let json = printed(&named("get ID1 --json"), Response::Task(Box::new(failed_task()))).await;
    let task: serde_json::Value = serde_json::from_str(&json).unwrap();
    let ended = |place: usize, field: &str| task["claims"][place][field].clone();
    let outcomes: Vec<serde_json::Value> = (0..3).map(|place| ended(place, "outcome")).collect();
    assert_eq!(outcomes, ["released", "given_up", "failed"]);
    assert_eq!((ended(0, "reason"), ended(2, "reason")), (serde_json::Value::Null, "server\u{1b} is busy".into()));
    assert_eq!((ended(2, "ended_ms"), ended(2, "running")), ((NOW_MS - 2_000).into(), false.into()));
    assert_eq!(task["next_attempt_ms"], NOW_MS + 3_600_000);
    let text = printed(&named("get ID1"), Response::Task(Box::new(failed_task()))).await;
    let expected = "\
claims
  TOKEN  STARTED  ENDS    OUTCOME   WORKER  REASON
  7.40   3s ago   2s ago  released  w1
  7.41   3s ago   2s ago  given up  w1
  7.42   3s ago   2s ago  failed    w1      server\\u{1b} is busy
";
    assert!(text.contains(expected) && text.contains("\nnext try    in 1h, "), "{text}");
    let ended = TaskView { ended_ms: Some(NOW_MS - 5_000), ..bare_task(1, State::Done) };
    let text = printed(&named("get ID1"), Response::Task(Box::new(ended))).await;
    assert!(text.contains("\nended       5s ago, ") && !text.contains("next try"), "{text}");
    // A delay is shown once, as requested.
    let mut delayed = bare_task(1, State::Waiting);
    delayed.spec.not_before_ms = NOW_MS + 9_000;
    delayed.next_attempt_ms = Some(NOW_MS + 9_000);
    let text = printed(&named("get ID1"), Response::Task(Box::new(delayed))).await;
    assert!(text.contains("not before  in 9s") && !text.contains("next try"), "{text}");
    let text = printed(&named("why ID1"), Response::Task(Box::new(failed_task()))).await;
    assert!(text.ends_with("its last attempt failed: server\\u{1b} is busy; it is tried again in 1h\n"), "{text}");
}

/// Goal: a task that is done shows that it was cancelled while it ran.
#[tokio::test]
async fn a_cancellation_that_a_completion_overrules_is_shown() {
    let task = |state| Response::Task(Box::new(TaskView { state, ..full_task() }));
    let line = "reason      because\n            it was cancelled or given up for this";
    let json = "\"reason\":\"because\",\"overruled\":";
    for (state, overruled) in [(State::Done, true), (State::Cancelled, false), (State::Dead, false)] {
        assert_eq!(printed(&named("get ID1"), task(state)).await.contains(line), overruled, "{state}");
        let printed = printed(&named("get ID1 --json"), task(state)).await;
        assert!(printed.contains(&format!("{json}{overruled},")), "{printed}");
    }
    // A cancellation without a reason of its own has one to show, too.
    let outcome = run(&named("cancel ID1"), [read(None), Ok(Response::AckedOne(acked(1)))]).await;
    let Call::Request(Request::Cancel { reason, .. }) = &outcome.calls[1].0 else { panic!("{:?}", outcome.calls) };
    assert_eq!(reason, "cancelled");
}

/// Goal: an object has each key once, even for a task with several headers of one name.
#[tokio::test]
async fn a_header_is_one_key_in_json() {
    let mut task = full_task();
    task.spec.headers = [("a", "1"), ("b", "2"), ("a", "3")].map(|(name, value)| (name.into(), value.into())).into();
    let json = printed(&named("get ID1 --json"), Response::Task(Box::new(task))).await;
    assert!(json.contains("\"headers\":{\"a\":\"1\",\"b\":\"2\"}"), "{json}");
    let mut granted = granted();
    granted.headers = vec![("a".into(), "1".into()), ("a".into(), "3".into())];
    let json = printed("claim mail --json", Response::Claimed { tasks: vec![granted], unavailable: 0, left: 0 }).await;
    assert!(json.contains("\"headers\":{\"a\":\"1\"}"), "{json}");
}

/// Goal: a lost payload is not shown as an empty one, nor a lost result as none.
#[tokio::test]
async fn what_is_lost_is_shown_as_lost() {
    let lost = Losses { payload: true, result: true, ..Losses::default() };
    let spec = Spec { payload: Vec::new(), ..spec(b"") };
    let task = |state| TaskView { spec: spec.clone(), lost: Some(lost), ..bare_task(1, state) };
    let answer = |state| Response::Task(Box::new(task(state)));
    let json = printed(&named("get ID1 --json"), answer(State::Waiting)).await;
    assert!(json.contains("\"data\":\"\"") && json.ends_with(",\"lost\":[\"payload\",\"result\"]}\n"), "{json}");
    for (state, way) in [
        (State::Waiting, "`norn cancel` and `norn purge` remove the task"),
        (State::Done, "`norn purge` removes the task"),
    ] {
        let text = printed(&named("get ID1"), answer(state)).await;
        let expected = format!("lost        payload, result: no replica that answered can read it back; {way}\n");
        assert!(text.contains(&expected), "{text}");
    }
    let page = Response::Page(Page { tasks: vec![task(State::Waiting)], next: None });
    assert!(printed("list", page).await.trim_end().ends_with("(lost)"));
}
