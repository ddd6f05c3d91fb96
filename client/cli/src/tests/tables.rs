//! Tables fit their screen, and lists continue page by page.

use super::*;
use norn_wire::group::{GroupView, MemberOf};
use norn_wire::membership::{Backoff, ClusterView, QueuePolicy, Roster, Settings};
use norn_wire::response::{ClaimEnd, ClaimOutcome};
use norn_wire::schedule::{CatchUp, Fired, Schedule, ScheduleView, When};

fn screen(columns: u16, line: &str) -> (Output, Written, Written) {
    let (results, notes) = (Written::default(), Written::default());
    let json = line.contains("--json");
    let output = Output::new(results.clone(), notes.clone(), json).with_size(columns, 24).with_color(!json);
    (output, results, notes)
}

/// Runs a command on a screen of this width.
async fn run_in(columns: u16, line: &str, answers: impl IntoIterator<Item = Result<Response, Error>>) -> Outcome {
    let (output, results, notes) = screen(columns, line);
    let fake = Fake::new(answers);
    let mut runner = Runner::new(&fake, output, Input::pipe(&b""[..]), Place::CommandLine);
    runner.clock = || NOW_MS;
    let exit = runner.run(CommandLine::try_parse_from(line.split(' ')).expect(line).verb).await;
    let plain = |text: String| console::strip_ansi_codes(&text).into_owned();
    Outcome { exit, printed: plain(results.text()), noted: plain(notes.text()), calls: fake.calls() }
}

fn assert_fits(text: &str, columns: u16) {
    for line in console::strip_ansi_codes(text).lines() {
        assert!(line.chars().count() <= usize::from(columns), "{columns} columns: {line:?} of\n{text}");
    }
}

#[tokio::test]
async fn counters_of_all_nodes_stand_side_by_side() {
    let counted = |value: u64| Status {
        counters: vec![("claims_granted".to_owned(), value), ("leases_expired".to_owned(), 5)],
        ..status()
    };
    let mut members = nodes();
    members.truncate(2);
    let (first, second) = (members[0].name.clone(), members[1].name.clone());
    for columns in [60, 80, 120] {
        let answers = [
            Ok(Response::Nodes(members.clone())),
            Ok(Response::Status(Box::new(counted(17)))),
            Ok(Response::Status(Box::new(counted(9_000_000_000)))),
        ];
        let outcome = run_in(columns, "status --nodes", answers).await;
        assert_fits(&outcome.printed, columns);
        let lines: Vec<&str> = outcome.printed.lines().collect();
        assert_eq!((outcome.exit, lines.len()), (Exit::Done, 3), "{lines:#?}");
        assert!(lines[0].contains(&first) && lines[0].contains(&second), "{lines:#?}");
        assert!(lines[1].contains("17") && lines[1].contains("9000000000"), "by their names: {lines:#?}");
    }
    // Members that do not fit beside the others are printed below.
    let many = vec![members[0].clone(); 9];
    for columns in [60, 80, 120] {
        let counts = (1..=9).map(|number| Ok(Response::Status(Box::new(counted(number * 1_000_000_000)))));
        let outcome =
            run_in(columns, "status --nodes", [Ok(Response::Nodes(many.clone()))].into_iter().chain(counts)).await;
        assert_fits(&outcome.printed, columns);
        let shown = (1..=9).filter(|number| outcome.printed.contains(&format!(" {number}000000000"))).count();
        assert_eq!(shown, 9, "{columns}: {}", outcome.printed);
    }
    let answers = || {
        let silent = Err(Error::unavailable("no answer within 5s"));
        [Ok(Response::Nodes(members.clone())), silent, Ok(Response::Status(Box::new(counted(17))))]
    };
    let outcome = run_in(80, "status --nodes", answers()).await;
    assert_eq!(outcome.exit, Exit::Unavailable, "{outcome:?}");
    assert!(outcome.printed.contains(&second) && !outcome.printed.contains(&first), "{outcome:?}");
    assert!(outcome.noted.contains(&first) && outcome.noted.contains("no answer within 5s"), "{outcome:?}");
    let outcome = run_in(80, "status --nodes --json", answers()).await;
    let rows = outcome.printed.lines().map(|line| serde_json::from_str(line).expect("an object"));
    let rows: Vec<serde_json::Value> = rows.collect();
    assert_eq!((outcome.exit, rows.len()), (Exit::Unavailable, 2), "{outcome:?}");
    assert_eq!(
        (&rows[0]["error"], &rows[1]["counters"]["claims_granted"]),
        (&"no answer within 5s".into(), &17.into())
    );
}

fn long_task(number: u32) -> TaskView {
    let spec =
        Spec { queue: queue("customers/newsletters"), ..spec(b"a payload that goes on and on, for many more words") };
    TaskView { spec, claims: full_task().claims, ..bare_task(number, State::Cancelled) }
}

fn busy_status() -> Status {
    let names =
        ["claims_granted", "leases_expired", "peer_messages_dropped", "clock_ahead_ms.n2", "claim", "of_tomorrow"];
    let counters = names.iter().cycle().take(60).map(|name| ((*name).to_owned(), 1_234_567_890)).collect();
    Status { counters, ..status() }
}

#[tokio::test]
async fn tables_fit_screens_of_50_to_120_columns() {
    for columns in [50, 60, 80, 120] {
        let tasks = vec![long_task(1), long_task(2)];
        let listed = run_in(columns, "list", [Ok(Response::Page(Page { tasks, next: None }))]).await.printed;
        assert_fits(&listed, columns);
        assert!(listed.contains(&id(1).to_string()) && listed.contains("cancel"), "{listed}");
        for line in ["queues", "nodes", "ring", "partitions", "status"] {
            let answer = match line {
                "queues" => Response::Queues(queue_counts()),
                "nodes" => Response::Nodes(nodes()),
                "status" => Response::Status(Box::new(busy_status())),
                _ => Response::Partitions(partitions()),
            };
            let printed = run_in(columns, line, [Ok(answer), Ok(Response::Nodes(nodes()))]).await.printed;
            assert_fits(&printed, columns);
        }
    }
    let narrow = run_in(60, "nodes", [Ok(Response::Nodes(nodes()))]).await.printed;
    assert!(narrow.contains("no room for NODE") && !narrow.contains(&NodeId(1).to_string()), "{narrow}");
    assert!(run("nodes", [Ok(Response::Nodes(nodes()))]).await.printed.contains(&NodeId(1).to_string()));
    let mut members = nodes();
    (members[1].alive, members[1].unreached_from) = (true, vec![NodeId(1)]);
    let printed = run("nodes", [Ok(Response::Nodes(members))]).await.printed;
    assert!(printed.contains("alive, unreached from n1 "), "{printed}");
}

/// Goal: the output about a task fits, however narrow the screen, except for its data, which are short here.
#[tokio::test]
async fn what_is_told_of_a_task_fits_screens_of_50_to_120_columns() {
    let overruled = TaskView {
        state: State::Done,
        reason: Some("not needed".to_owned()),
        result: Some(b"ok".to_vec().into()),
        ..full_task()
    };
    let group = Some(GroupView { total: Some(200), ended: 150, failed: 20 });
    let waits_for = (150..200).map(|number| MemberOf { group: id(1), number }.id()).collect();
    let join = TaskView { group, waits_for, ..bare_task(1, State::Waiting) };
    let gone = || Err(Error::new(ErrorCode::NotFound, "no such task"));
    for columns in [50, 60, 80, 120] {
        for task in [full_task(), overruled.clone(), join.clone()] {
            for (verb, words) in [("get", "claims"), ("log", "entries were written"), ("why", ": ")] {
                let answers =
                    std::iter::once(Ok(Response::Task(Box::new(task.clone())))).chain((0..99).map(|_| gone()));
                let outcome = run_in(columns, &format!("{verb} {}", id(1)), answers).await;
                assert_eq!(outcome.exit, Exit::Done, "{}", outcome.noted);
                assert_fits(&outcome.printed, columns);
                let told = outcome.printed.split_whitespace().collect::<Vec<_>>().join(" ");
                assert!(task.updates.is_empty() || told.contains(words), "{columns}: {verb}: {}", outcome.printed);
            }
        }
    }
}

fn schedules() -> Vec<ScheduleView> {
    let whens = [
        When::Cron { expression: "0 30 2,14 * * MON-FRI".into(), zone: "America/Argentina/Buenos_Aires".into() },
        When::At(NOW_MS + 7),
    ];
    let view = |(number, when): (u32, When)| ScheduleView {
        name: format!("newsletters-of-the-customers-{number}"),
        schedule: Arc::new(Schedule {
            when,
            queue: queue("customers/newsletters"),
            payload: b"all".to_vec(),
            priority: 0,
            attempts_max: 0,
            catch_up: CatchUp::Last,
        }),
        number,
        paused: number == 2,
        since_ms: 5,
        through_ms: 6,
        next_ms: vec![NOW_MS + 3_600_000],
        pending: 0,
        fired: 1_234_567,
        missed: 12,
        unsure: 1,
        last: Some(Fired { tick_ms: NOW_MS, id: id(7) }),
    };
    (1..).zip(whens).map(view).collect()
}

#[tokio::test]
async fn members_and_schedules_fit_screens_of_50_to_120_columns() {
    let member = |number| {
        let result = Some(b"a result that goes on and on, for many more words than have room".to_vec().into());
        Ok(Response::Task(Box::new(TaskView { result, ..bare_task(number, State::Done) })))
    };
    for columns in [50, 60, 80, 120] {
        let group = Some(GroupView { total: Some(2), ended: 0, failed: 0 });
        let join = Ok(Response::Task(Box::new(TaskView { group, ..bare_task(1, State::Waiting) })));
        let listed = run_in(columns, &format!("members {}", id(1)), [join, member(2), member(3)]).await.printed;
        assert_fits(&listed, columns);
        let ids = [1, 2].map(|number| MemberOf { group: id(1), number }.id().to_string());
        assert!(ids.iter().all(|id| listed.contains(id)) && listed.contains("done"), "{listed}");
        let listed = run_in(columns, "schedule list", [Ok(Response::Schedules(schedules()))]).await.printed;
        assert_fits(&listed, columns);
        assert!(listed.contains("paused") && listed.contains("NEXT"), "{listed}");
    }
}

/// Goal: a list of dead tasks shows why each died in one row, and `get` why each claim ended, on screens of any width.
#[tokio::test]
async fn lists_of_the_dead_show_why_they_died() {
    let reason = "the last attempt failed: no route to host, and none to the one that stands in for it";
    let mut dead = TaskView { reason: Some(reason.into()), state: State::Dead, ..long_task(1) };
    let end =
        ClaimEnd { outcome: ClaimOutcome::Failed, at_ms: NOW_MS - 1_000, reason: Some("no route to host".into()) };
    dead.claims[0].end = Some(end);
    for columns in [50, 60, 80, 120] {
        for line in ["list --state dead", "list --reason route", "list --state cancelled"] {
            let page = Page { tasks: vec![dead.clone(), dead.clone()], next: None };
            let listed = run_in(columns, line, [Ok(Response::Page(page))]).await.printed;
            assert_fits(&listed, columns);
            let rows: Vec<&str> = listed.lines().filter(|row| row.contains(&id(1).to_string())).collect();
            assert!(rows.len() == 2 && rows.iter().all(|row| row.contains("the last")), "{columns}: {listed}");
        }
        let printed = run_in(columns, &format!("get {}", id(1)), [Ok(Response::Task(Box::new(dead.clone())))]).await;
        let claims = printed.printed.split_once("claims\n").unwrap().1;
        assert_fits(claims, columns);
        assert!(claims.contains("failed") && (columns < 60 || claims.contains("no route")), "{columns}: {claims}");
    }
    let page = || Ok(Response::Page(Page { tasks: vec![dead.clone()], next: None }));
    assert!(run("list --state dead", [page()]).await.printed.contains(reason));
    assert!(!run("list", [page()]).await.printed.contains("REASON"), "of other lists it is no column");
}

/// Goal: a list of waiting tasks shows until when, or for what, they wait.
#[tokio::test]
async fn lists_of_what_waits_show_until_when_and_for_what() {
    let mut tasks = [1, 2, 3, 4].map(|number| bare_task(number, State::Waiting));
    tasks[0].next_attempt_ms = Some(NOW_MS + 90_000);
    tasks[1].waits_for = vec![id(7)];
    tasks[2].waits_for = vec![id(7), id(8)];
    tasks[3].group = Some(GroupView { total: Some(9), ended: 2, failed: 0 });
    let page = || [Ok(Response::Page(Page { tasks: tasks.to_vec(), next: None }))];
    let listed = run("list --state waiting", page()).await.printed;
    let row = |number| listed.lines().find(|row| row.starts_with(&id(number).to_string())).unwrap();
    let other = id(7).to_string();
    for (number, told) in [(1, "in 1m 30s"), (2, other.as_str()), (3, "2 tasks"), (4, "2 of 9 members ended")] {
        assert!(row(number).contains(told), "{listed}");
    }
    assert!(!run("list", page()).await.printed.contains("DUE"), "of other lists it is no column");
    for columns in [50, 60, 80, 120] {
        let listed = run_in(columns, "list --state waiting", page()).await.printed;
        assert_fits(&listed, columns);
        assert!(listed.contains("in 1m 30s"), "{listed}");
    }
}

/// Goal: a reader does not mistake the kept claims for all claims.
#[tokio::test]
async fn a_task_with_as_many_claims_as_are_kept_may_have_had_more() {
    let mut task = long_task(1);
    for (count, shown) in [(63, " 63 "), (64, " 64+ ")] {
        task.claims = vec![task.claims[0].clone(); count];
        let listed = run("list", [Ok(Response::Page(Page { tasks: vec![task.clone()], next: None }))]).await.printed;
        assert!(listed.contains(shown), "{listed}");
        let answer = || [Ok(Response::Task(Box::new(task.clone())))];
        let told = run(&format!("get {}", id(1)), answer()).await.printed;
        assert_eq!(told.contains("there may have been more claims"), count == 64, "{told}");
        let row = run(&format!("get {} --json", id(1)), answer()).await.printed;
        assert!(row.contains(&format!("\"claims_more\":{}", count == 64)), "{row}");
    }
}

#[tokio::test]
async fn a_list_of_several_pages_has_its_titles_once() {
    let answers = || [page(0..60, true), page(60..1_000, true), page(1_000..1_200, false)];
    for outcome in [run("list --limit 2000", answers()).await, run_in(60, "list --limit 2000", answers()).await] {
        assert_eq!(outcome.printed.matches("STATE").count(), 1);
        assert_eq!(outcome.printed.matches("ready").count(), 1_200);
    }
    let outcome = run("list --limit 2000", [page(0..60, true), Err(Error::unavailable("gone"))]).await;
    assert_eq!(outcome.printed.matches("ready").count(), 60, "what had come is shown");
}

#[tokio::test]
async fn a_list_goes_on_where_it_ended() {
    let outcome = run("list --limit 2", [page(0..2, true)]).await;
    assert!(outcome.printed.contains(&format!("--after {} goes on", id(1))), "{}", outcome.printed);
    assert_eq!(run("list", [page(0..0, false)]).await.printed, "no tasks\n");
    let outcome = run(&format!("list --after {}", id(1)), [page(2..4, false)]).await;
    let Request::List { after, .. } = outcome.request() else { panic!("{:?}", outcome.calls) };
    assert_eq!(after, Some(id(1)));
}

#[tokio::test]
async fn a_list_is_filtered_by_key_header_and_reason_within_a_bound() {
    let with = |number, key: &str, header: &str, reason: &str| {
        let headers = vec![("tenant".to_owned(), header.to_owned())];
        let spec = Spec { key: Some(key.into()), headers, ..spec(b"x") };
        TaskView { spec, reason: Some(reason.into()), ..bare_task(number, State::Dead) }
    };
    let tasks = vec![
        with(1, "anna", "acme", "no such address"),
        with(2, "bert", "acme", "no such address"),
        with(3, "anna", "other", "no such address"),
        with(4, "anna", "acme", "refused"),
    ];
    let answer = || Ok(Response::Page(Page { tasks: tasks.clone(), next: None }));
    for (filter, expected) in [
        ("--key anna", &[1, 3, 4][..]),
        ("--header tenant=acme", &[1, 2, 4]),
        ("--reason address", &[1, 2, 3]),
        ("--key anna --header tenant=acme --reason address", &[1]),
    ] {
        let outcome = run(&format!("list {filter} --json"), [answer()]).await;
        let rows: Vec<String> = outcome.printed.lines().map(str::to_owned).collect();
        assert_eq!(rows.len(), expected.len(), "{filter}: {rows:?}");
        assert!(rows.iter().zip(expected).all(|(row, number)| row.contains(&id(*number).to_string())), "{filter}");
    }
    let all = || (0..150).map(|number| page(number * 1_000..(number + 1) * 1_000, number < 149));
    let outcome = run("list --key carl --json", all()).await;
    let ended = (outcome.exit, outcome.calls.len(), outcome.noted.as_str());
    assert_eq!(ended, (Exit::Done, 150, ""), "a program could not tell a part from all of it");
    let outcome = run("list --key carl", all()).await;
    assert_eq!((outcome.exit, outcome.calls.len()), (Exit::Done, 100));
    assert!(
        outcome.noted.contains(&format!("of 100000 tasks that were looked at: --after {}", id(99_999))),
        "{}",
        outcome.noted
    );
}

#[tokio::test]
async fn a_list_of_an_age_names_times() {
    let outcome = run("list --newer 1h --older 10s", [page(0..0, false)]).await;
    let Request::List { from: Some(from), to: Some(to), .. } = outcome.request() else { panic!("{:?}", outcome.calls) };
    assert_eq!((from.time_ms(), to.time_ms()), (NOW_MS - 3_600_000, NOW_MS - 10_000 - 1));
    assert_eq!(to, TaskId::new(NOW_MS - 10_000 - 1, u32::MAX, (1 << 40) - 1, (1 << 24) - 1));
}

/// Store that answers `list` like a node.
struct Store(Vec<TaskView>);

impl Transport for Store {
    async fn call(&self, call: Call, _: Option<Duration>) -> Result<Response, Error> {
        let Call::Request(Request::List { after, from, to, limit, .. }) = call else { panic!("{call:?}") };
        let wanted = |task: &&TaskView| {
            after.is_none_or(|after| task.id > after)
                && from.is_none_or(|from| task.id >= from)
                && to.is_none_or(|to| task.id <= to)
        };
        let mut tasks: Vec<TaskView> = self.0.iter().filter(wanted).take(limit as usize + 1).cloned().collect();
        let more = tasks.len() > limit as usize;
        tasks.truncate(limit as usize);
        let next = tasks.last().map(|task| task.id).filter(|_| more);
        Ok(Response::Page(Page { tasks, next }))
    }
}

#[tokio::test]
async fn the_newest_come_first_wherever_they_lie() {
    let at = |ms: u64, counter: u32| TaskView { id: TaskId::new(ms, counter, 7, 3), ..bare_task(1, State::Ready) };
    // Old tasks, many in and around one millisecond, a few of today, and one from a clock that is ahead.
    let mut tasks: Vec<TaskView> = vec![at(1, 0), at(1_000_000, 0)];
    tasks.extend((0..1_500).map(|counter| at(NOW_MS - 86_400_000, counter)));
    tasks.extend((0..1_500u64).map(|ms| at(NOW_MS - 80_000_000 + ms, 0)));
    tasks.extend([at(NOW_MS - 10, 0), at(NOW_MS, 0), at(NOW_MS + 5_000, 0)]);
    tasks.sort_by_key(|task| task.id);
    let store = Store(tasks.clone());
    let list = async |line: &str| {
        let (results, notes) = (Written::default(), Written::default());
        let mut runner = Runner::new(
            &store,
            Output::new(results.clone(), notes.clone(), true),
            Input::pipe(&b""[..]),
            Place::CommandLine,
        );
        runner.clock = || NOW_MS;
        runner.run(CommandLine::try_parse_from(line.split(' ')).expect(line).verb).await;
        assert_eq!(notes.text(), "");
        let id_of =
            |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].as_str().unwrap().to_owned();
        results.text().lines().map(id_of).collect::<Vec<String>>()
    };
    let newest: Vec<String> = tasks.iter().rev().map(|task| task.id.to_string()).collect();
    assert_eq!(list("list --newest --json").await, newest);
    assert_eq!(list("list --newest --limit 5 --json").await, newest[..5]);
    assert_eq!(list(&format!("list --newest --limit 5 --after {} --json", newest[4])).await, newest[5..10]);
    assert_eq!(list("list --newest --newer 1m --json").await, newest[..3]);
    assert_eq!(list("list --newest --older 23h --limit 3 --json").await, newest[1_503..1_506]);
}

/// Goal: no part of a repeated status is pushed off the screen, however small.
#[tokio::test]
async fn a_watched_status_fits_its_screen() {
    for (columns, lines) in [(120, 40), (80, 24), (60, 24), (60, 16), (50, 12), (50, 10)] {
        for uncounted in [0, 64] {
            let (output, results, _) = screen(columns, "");
            let status = Status { uncounted, ..busy_status() };
            let fake = Fake::new([Ok(Response::Status(Box::new(status))), Err(Error::invalid("no more"))]);
            let output = output.with_size(columns, lines);
            let mut runner = Runner::new(&fake, output, Input::pipe(&b""[..]), Place::CommandLine);
            runner.run(CommandLine::try_parse_from(["status", "--watch=1ms"]).unwrap().verb).await;
            let shown = console::strip_ansi_codes(&results.text()).into_owned();
            let shown = shown.trim_start_matches("\x1b[H\x1b[2J");
            assert_fits(shown, columns);
            assert!(shown.lines().count() < usize::from(lines), "{columns}x{lines}: {shown}");
            assert!(lines < 24 || shown.contains("claims granted"), "{columns}x{lines}: {shown}");
            assert!(lines < 12 || shown.contains("which `status`"), "{columns}x{lines}: {shown}");
        }
    }
}

pub(crate) fn view(policy: QueuePolicy) -> ClusterView {
    view_of("mail", policy)
}

/// Returns a cluster with a policy for a queue.
pub(super) fn view_of(name: &str, policy: QueuePolicy) -> ClusterView {
    ClusterView {
        cluster: ClusterId(9),
        name: "dev".into(),
        roster: Roster { version: 5, policies: [(queue(name), policy)].into(), ..Roster::default() },
        voters: Vec::new(),
        leader: NodeId(1),
        heard: Vec::new(),
        replicas: 3,
        settings: Settings::default(),
        layout: 1,
        stale: false,
        shares: std::collections::BTreeMap::new(),
        moving: Vec::new(),
        open: 0,
        unknown: 0,
    }
}

#[tokio::test]
async fn policies_are_shown_a_line_each_and_a_change_says_what_it_changed() {
    let policy = || QueuePolicy { lease_ms: Some(120_000), paused: true, ..QueuePolicy::default() };
    let backoff = Some(Backoff { first_ms: 123_456, most_ms: 86_300_000, jitter_percent: 100 });
    let dead_letter = Some(queue("customers/newsletters-dead"));
    let wide =
        || Ok(Response::Cluster(Box::new(view(QueuePolicy { backoff, dead_letter: dead_letter.clone(), ..policy() }))));
    for columns in [60, 80, 120] {
        for line in ["queue show", "queue show mail"] {
            let shown = run_in(columns, line, [wide()]).await.printed;
            assert_fits(&shown, columns);
            assert!(shown.contains("exponential") && shown.contains("newsletters-dead"), "{shown}");
        }
    }
    let answer = || Ok(Response::Cluster(Box::new(view(policy()))));
    let one = run_in(60, "queue show mail", [answer()]).await.printed;
    assert_fits(&one, 60);
    assert_eq!(one.lines().count(), 17, "{one}");
    assert!(one.starts_with("queue mail\n  paused             yes\n  attempts           none\n"), "{one}");
    let all = run("queue show", [answer()]).await.printed;
    assert_eq!(all, "queue mail\n  paused             yes\n  lease              2m\n");
    let changed = |already| {
        let view = Box::new(view(policy()));
        Ok(Response::Changed(Box::new(norn_wire::membership::Changed { already, version: 5, view, membership: None })))
    };
    assert_eq!(run("queue set mail lease 2m", [changed(false)]).await.printed, "mail: lease is now 2m\n");
    assert_eq!(run("queue set mail paused yes", [changed(true)]).await.printed, "mail: paused is already yes\n");
}

/// Goal: a name with invisible characters shifts no column. Method: rows that end with a column of numbers have equal lengths.
#[tokio::test]
async fn columns_stand_under_each_other_whatever_a_name_hides() {
    for odd in ["a\u{200b}b", "a\u{202e}b", "a\u{feff}\u{2066}b"] {
        let counts = |name: &str| QueueCounts { queue: queue(name), counts: [1, 2, 3, 4, 5, 6], permit_in_ms: None };
        let listed = run("queues", [Ok(Response::Queues(vec![counts("mail"), counts(odd)]))]).await.printed;
        let widths: Vec<usize> = listed.lines().map(|line| line.chars().count()).collect();
        assert!(widths.len() == 3 && widths.iter().all(|width| *width == widths[0]), "{listed}");
        let mut tasks = [1, 2].map(|number| bare_task(number, State::Ready));
        tasks[1].spec.queue = queue(odd);
        let listed = run("list", [Ok(Response::Page(Page { tasks: tasks.to_vec(), next: None }))]).await.printed;
        let places: Vec<Option<usize>> = listed.lines().map(|line| line.find("ready").or(line.find("STATE"))).collect();
        assert!(places.len() == 3 && places.iter().all(|place| *place == places[0]), "{listed}");
    }
}
