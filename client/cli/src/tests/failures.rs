//! Exits of verbs that fail, and resolution of the beginnings of ids.

use super::*;
use norn_wire::headers;
use norn_wire::membership::QueuePolicy;
use norn_wire::response::{ClaimEnd, ClaimOutcome, Rejected};

async fn fails(line: &str, error: Error) -> Outcome {
    run(line, [Err(error)]).await
}

#[tokio::test]
async fn codes_of_errors_are_exit_codes() {
    let cases = [
        (ErrorCode::Invalid, 1),
        (ErrorCode::NotFound, 1),
        (ErrorCode::Conflict, 1),
        (ErrorCode::Superseded, 1),
        (ErrorCode::Ended, 1),
        (ErrorCode::IdFromFuture, 1),
        (ErrorCode::TooOld, 1),
        (ErrorCode::Denied, 1),
        (ErrorCode::Unsupported, 2),
        (ErrorCode::Unavailable, 3),
        (ErrorCode::Overloaded, 3),
        (ErrorCode::Unknown, 3),
        (ErrorCode::Stale, 3),
        (ErrorCode::NotReady, 3),
        (ErrorCode::ClockAhead, 3),
    ];
    for (code, exit) in cases {
        assert_eq!(fails("count", Error::new(code, "no")).await.exit.code(), exit, "{code:?}");
    }
    let outcome = run("count", [Ok(Response::Error(Error::invalid("no")))]).await;
    assert_eq!(outcome.exit, Exit::Refused);
    assert_eq!(run("count", [Ok(Response::Done)]).await.exit, Exit::Refused);
}

// S32
#[tokio::test]
async fn an_unknown_outcome_names_the_task() {
    let error = || Error::new(ErrorCode::Unknown, "no answer in time").about(id(1));
    let outcome = fails("enqueue mail x --json", error()).await;
    assert_eq!(
        outcome.printed,
        format!(
            "{{\"error\":{{\"code\":\"unknown\",\"message\":\"no answer in time\",\"retry\":\"now\",\"id\":\"{}\"}}}}\n",
            id(1)
        )
    );
    assert_eq!((outcome.exit.code(), &outcome.noted[..]), (3, ""));
    let outcome = fails("enqueue mail x", error()).await;
    assert_eq!(outcome.printed, "");
    assert!(outcome.noted.starts_with("error: no answer in time\n  it may have taken effect"), "{}", outcome.noted);
    assert!(outcome.noted.contains(&id(1).to_string()));
    // Something without an id of its own gets none in the message.
    let outcome = fails("schedule remove backup", Error::new(ErrorCode::Unknown, "no answer in time")).await;
    assert!(outcome.noted.contains("it may have taken effect; look, or repeat it"), "{}", outcome.noted);
    let outcome = fails("enqueue mail x", Error::new(ErrorCode::Unknown, "no answer in time")).await;
    assert!(outcome.noted.contains("without an id it adds new tasks again"), "{}", outcome.noted);
    assert!(!outcome.noted.contains("same id"), "{}", outcome.noted);
}

#[tokio::test]
async fn a_clock_that_was_ahead_is_named_with_the_time_that_is_left() {
    let error = || Error::new(ErrorCode::ClockAhead, "no ids").after(570_000);
    let outcome = fails("enqueue mail x --json", error()).await;
    let line = r#"{"error":{"code":"clock_ahead","message":"no ids","retry":"later","after_ms":570000}}"#;
    assert_eq!(outcome.printed.trim_end(), line);
    let outcome = fails("enqueue mail x", error()).await;
    assert!(outcome.noted.contains("what needs a new id is refused for 9m 30s"), "{}", outcome.noted);
}

#[tokio::test]
async fn a_refusal_of_one_item_is_the_verbs_refusal() {
    let refused = || Error::new(ErrorCode::Superseded, "a later claim has taken over").about(id(1));
    for (line, answer) in [
        (format!("complete {} 7.42 --json", id(1)), Response::Acked(vec![Err(refused())])),
        (format!("renew {} 7.42 --json", id(1)), Response::Renewed(vec![Err(refused())])),
        ("enqueue mail x --json".to_owned(), Response::Acked(vec![Err(refused())])),
    ] {
        let outcome = run(&line, [Ok(answer)]).await;
        assert!(outcome.printed.starts_with("{\"error\":{\"code\":\"superseded\""), "{}", outcome.printed);
        assert_eq!(outcome.exit, Exit::Refused);
    }
}

#[tokio::test]
async fn features_that_are_not_there_are_refused() {
    for line in ["enqueue mail x --parent p"] {
        let outcome = run(line, []).await;
        assert_eq!((outcome.exit.code(), outcome.calls.len()), (2, 0), "{line}");
        assert!(outcome.noted.contains("is not supported"), "{}", outcome.noted);
        let outcome = run(&format!("{line} --json"), []).await;
        assert!(outcome.printed.starts_with("{\"error\":{\"code\":\"unsupported\""), "{}", outcome.printed);
    }
    assert!(run("enqueue mail x --parent p", []).await.noted.contains("complete ID TOKEN --then FILE.json"));
}

#[tokio::test]
async fn values_of_the_domain_end_in_1_and_flags_in_2() {
    let refused = ["enqueue a//b x", "claim 'a b'", "get xyz", "get 000", "count ''", "enqueue mail --file /nowhere/x"];
    for line in refused {
        let outcome = run(line, []).await;
        assert_eq!((outcome.exit.code(), outcome.calls.len()), (1, 0), "{line}: {}", outcome.noted);
    }
    let outcome = run(&format!("renew {} 7", id(1)), []).await;
    assert_eq!((outcome.exit.code(), outcome.calls.len()), (1, 0));
    let usage = [
        "enqueue",
        "enqueue mail x y",
        "enqueue mail x --file f",
        "enqueue mail x --delay 1s --at 2030-01-01T00:00:00Z",
        "enqueue mail x --delay 10",
        "enqueue mail x --priority high",
        "enqueue mail x --acks some",
        "enqueue mail x --header x",
        "enqueue mail x --header a=1 --header b=2 --header a=1",
        "enqueue mail x --lines",
        "enqueue mail x --nonsense",
        "claim mail --max 0",
        "list --state gone",
        "list --limit 0",
        "members ID --limit 0",
        "redrive --queue mail --limit 0",
        "watch mail --limit 0",
        "dance",
        "status --watch=0s",
    ];
    for line in usage {
        let outcome = run(line, []).await;
        assert_eq!((outcome.exit.code(), outcome.calls.len()), (2, 0), "{line}: {}", outcome.noted);
        assert!(outcome.noted.contains("error: ") && outcome.printed.is_empty(), "{line}");
        let outcome = run(&format!("{line} --json"), []).await;
        assert!(outcome.printed.starts_with("{\"error\":{\"code\":\"invalid\""), "{line}: {}", outcome.printed);
        assert_eq!((outcome.printed.lines().count(), &outcome.noted[..]), (1, ""), "{line}");
    }
}

/// Goal: the message about a malformed value names the accepted values, and that about a surplus argument mentions quotes.
#[tokio::test]
async fn a_malformed_value_names_what_is_taken_with_an_example() {
    let duration = "a duration is, for example, 250ms, 10s, 5m or 1h30m";
    let whole = |low: i128, high: i128, example: i128| {
        format!("wanted is a whole number from {low} to {high}, for example {example}")
    };
    let (to, far) = (i128::from(u32::MAX), i128::from(u64::MAX));
    let cases = [
        ("enqueue mail hello world", "put it in quotes, for example 'hello world'".to_owned()),
        ("count mail other", "put it in quotes".to_owned()),
        ("claim mail --max -1", whole(1, 1_000, 10)),
        ("list --limit -1", whole(1, far, 1_000)),
        ("cluster set moves -1", whole(1, 1_024, 8)),
        ("claim mail --lease -5s", format!("no duration is below 0; {duration}")),
        ("enqueue mail x --delay -5s", format!("no duration is below 0; {duration}")),
        ("complete ID 7.42 sent", "--result DATA".to_owned()),
        ("watch", "watch --group ID".to_owned()),
        ("cancel --key a --dry-run", "cancel --queue QUEUE".to_owned()),
        ("redrive --reason foo", "redrive --queue QUEUE".to_owned()),
        ("redrive --limit 5", "redrive --queue QUEUE".to_owned()),
        ("enqueue mail x --priority high", whole(-2_147_483_648, 2_147_483_647, 5)),
        ("enqueue mail x --priority 2147483648", whole(-2_147_483_648, 2_147_483_647, 5)),
        ("enqueue mail x --max-attempts 0", whole(1, to, 5)),
        ("enqueue mail x --number 0", whole(1, 10_000, 3)),
        ("schedule set s mail --cron x --priority 1.5", whole(-2_147_483_648, 2_147_483_647, 5)),
        ("claim mail --max 1001", whole(1, 1_000, 10)),
        ("update ID 7.42 one x", whole(0, 999, 0)),
        ("complete ID 7.42 --seq x", whole(0, 1_000, 3)),
        ("get ID --min-seq x", whole(0, to, 3)),
        ("list --limit all", whole(1, far, 1_000)),
        ("members ID --limit 1k", whole(1, far, 1_000)),
        ("watch mail --limit 1k", whole(1, far, 1_000)),
        ("redrive --queue mail --limit x", whole(1, far, 100)),
        ("enqueue mail x --delay 10", duration.to_owned()),
        ("claim mail --lease soon", duration.to_owned()),
        ("fail ID 7.42 --retry-in 1x", duration.to_owned()),
        ("session open --ttl 5", duration.to_owned()),
        ("enqueue mail x --delay 20000000000y", "the duration is too long".to_owned()),
        ("enqueue mail x --at tomorrow", "for example, 2030-01-31T09:30:00Z".to_owned()),
        ("enqueue mail x --header trace", "NAME=VALUE, for example trace=7f3a".to_owned()),
        ("cluster set weight n1 x", whole(1, 1_000_000, 2)),
        ("cluster set replicas x", whole(1, 7, 3)),
        ("cluster set moves-each x", whole(1, 1_024, 8)),
        ("cluster set heal-after 5", format!("{duration}; or `never`")),
        ("cluster move x n1", "the number of a partition, 0 to 4095".to_owned()),
        ("cluster add 7400", "for example 127.0.0.1:7400".to_owned()),
    ];
    for (line, expected) in cases {
        let outcome = run(line, []).await;
        assert_eq!((outcome.exit, outcome.calls.len()), (Exit::Usage, 0), "{line}");
        assert!(outcome.noted.contains(&expected), "{line}: {}", outcome.noted);
        let outcome = run(&format!("{line} --json"), []).await;
        assert!(outcome.printed.contains(&expected), "{line}: {}", outcome.printed);
        assert_eq!(outcome.printed.lines().count(), 1, "{line}");
    }
    for (line, expected) in [
        ("queue set mail attempts many", "a whole number as `5`, or `none`"),
        ("queue set mail concurrency x", "a whole number as `5`, or `none`"),
        ("queue set mail bytes big", "`500MiB` or `2GiB`"),
        ("queue set mail rate 5", "for example `100/s`"),
        ("queue set mail lease soon", duration),
    ] {
        let outcome = run(line, []).await;
        assert!(outcome.noted.contains(expected), "{line}: {}", outcome.noted);
    }
}

#[tokio::test]
async fn data_over_its_bound_is_refused_before_it_is_sent() {
    let large: &'static [u8] = vec![b'x'; (1 << 20) + 1].leak();
    for line in ["enqueue mail -", "enqueue mail --lines"] {
        let outcome = run_at(Place::CommandLine, line, large, []).await;
        assert_eq!((outcome.exit.code(), outcome.calls.len()), (1, 0), "{line}");
    }
    let update = format!("update {} 7.42 0 -", id(1));
    assert_eq!(run_at(Place::CommandLine, &update, &large[..70_000], []).await.exit, Exit::Refused);
}

#[tokio::test]
async fn an_empty_claim_is_complete_or_a_failure() {
    let empty = |unavailable| [Ok(Response::Claimed { tasks: Vec::new(), unavailable, left: 0 })];
    let outcome = run("claim mail --json", empty(0)).await;
    assert_eq!((outcome.exit.code(), &outcome.printed[..], &outcome.noted[..]), (4, "", ""));
    let outcome = run("claim mail", empty(0)).await;
    assert_eq!((outcome.exit.code(), &outcome.printed[..]), (4, "nothing to claim\n"));
    let outcome = run("claim mail", empty(2)).await;
    assert_eq!((outcome.exit.code(), &outcome.printed[..]), (3, ""));
    assert!(outcome.noted.contains("2 partitions could not be asked"));
}

#[tokio::test]
async fn a_wait_that_runs_out_shows_the_task_and_says_so() {
    let task = Ok(Response::Task(Box::new(bare_task(1, State::Claimed))));
    let outcome = run(&format!("wait {} --timeout 2s --json", id(1)), [task]).await;
    assert_eq!(outcome.exit, Exit::Unavailable);
    assert!(outcome.printed.contains("\"state\":\"claimed\""));
    assert!(outcome.noted.contains("has not ended within 2s"));
}

#[tokio::test]
async fn bulk_tells_how_far_it_came() {
    let refused = Error::new(ErrorCode::Conflict, "no");
    let answers = [Ok(Response::Acked(vec![Ok(acked(1)), Err(refused)]))];
    let outcome = run_at(Place::CommandLine, "enqueue mail --lines --json", b"a\nb\n", answers).await;
    assert_eq!((outcome.exit, outcome.printed.lines().count()), (Exit::Refused, 2));
    let lines: &'static [u8] = "x\n".repeat(1_500).leak().as_bytes();
    let answers = || [Ok(Response::Acked(vec![Ok(acked(1)); 1_000])), Err(Error::unavailable("gone"))];
    let outcome = run_at(Place::CommandLine, "enqueue mail --lines", lines, answers()).await;
    assert_eq!(outcome.exit, Exit::Unavailable);
    assert!(outcome.noted.contains("1000 tasks, up to line 1000, had been enqueued"), "{}", outcome.noted);
    assert!(outcome.noted.contains("500 tasks refused: lines 1001-1500\n"), "{}", outcome.noted);
}

/// Goal: a person who repeats lines knows which: the refused ones, and separately those whose tasks may be stored.
#[tokio::test]
async fn lines_that_may_have_been_stored_are_not_called_refused() {
    let unknown = |number| Err(Error::new(ErrorCode::Unknown, "no answer in time").about(id(number)));
    let refused = || Err(Error::invalid("too large"));
    let answer = || {
        let results = vec![Ok(acked(1)), unknown(2), unknown(3), refused(), unknown(5)];
        [Ok(Response::Acked(results))]
    };
    let lines = b"a\n\nb\nc\nd\ne\n";
    let outcome = run_at(Place::CommandLine, "enqueue mail --lines", lines, answer()).await;
    assert_eq!(outcome.exit, Exit::Unavailable);
    assert!(outcome.printed.starts_with("enqueued 1 task in "), "{}", outcome.printed);
    let noted = &outcome.noted;
    assert!(noted.contains("1 task refused: line 5; the first:\nerror: too large\n"), "{noted}");
    assert!(noted.contains("3 tasks may have been stored: lines 3-4, 6; the first:\nerror: no answer"), "{noted}");
    assert!(noted.contains(&id(2).to_string()) && noted.contains("--id ID"), "{noted}");
    let outcome = run_at(Place::CommandLine, "enqueue mail --lines --json", lines, answer()).await;
    assert_eq!((outcome.exit, &outcome.noted[..]), (Exit::Unavailable, ""));
    for number in [1, 2, 3, 5] {
        assert!(outcome.printed.contains(&id(number).to_string()), "{}", outcome.printed);
    }
    // The same if the call as a whole has no answer.
    let lost = [Err(Error::new(ErrorCode::Unknown, "no answer in time"))];
    let outcome = run_at(Place::CommandLine, "enqueue mail --lines", lines, lost).await;
    assert!(outcome.noted.contains("5 tasks may have been stored: lines 1, 3-6\n"), "{}", outcome.noted);
}

#[tokio::test]
async fn the_beginning_of_an_id_is_looked_up() {
    let text = id(1).to_string();
    let task = || Ok(Response::Task(Box::new(bare_task(1, State::Ready))));
    let line = format!("get {}", &text[..12]);
    let outcome = run_at(Place::Script, &line, b"", [page(1..2, false), task()]).await;
    assert_eq!((outcome.exit, outcome.calls.len()), (Exit::Done, 2), "{}", outcome.noted);
    let Call::Request(Request::List { from: Some(from), to: Some(to), limit: 2, .. }) = &outcome.calls[0].0 else {
        panic!("{:?}", outcome.calls);
    };
    assert_eq!(from.to_string(), format!("{:0<32}", &text[..12]));
    assert_eq!(to.to_string(), format!("{:z<32}", &text[..12]));
    let outcome = run_at(Place::Script, &line, b"", [page(1..2, true), page(2..3, false)]).await;
    assert_eq!((outcome.exit, outcome.calls.len()), (Exit::Refused, 2));
    assert!(outcome.noted.contains("is ambiguous") && outcome.noted.contains(&id(2).to_string()), "{}", outcome.noted);
    let outcome = run_at(Place::Script, &line, b"", [page(0..0, false)]).await;
    assert!(outcome.noted.contains("no task begins with"), "{}", outcome.noted);
    let outcome = run_at(Place::Script, "get 000", b"", []).await;
    assert_eq!((outcome.exit, outcome.calls.len()), (Exit::Refused, 0));
}

#[tokio::test]
async fn a_task_that_was_redriven_is_not_redriven_again_and_its_copy_is_shown() {
    let answers = || {
        let (mut dead, mut copy) = (bare_task(1, State::Dead), bare_task(2, State::Done));
        dead.redriven = vec![id(2)];
        copy.spec.queue = queue("mail/dead");
        [dead, copy].map(|task| Ok(Response::Task(Box::new(task))))
    };
    let outcome = run(&format!("redrive {}", id(1)), answers()).await;
    let is = format!("there is {} in mail/dead, done", id(2));
    assert_eq!(outcome.exit, Exit::Done);
    assert!(outcome.printed.contains(&is), "{}", outcome.printed);
    let outcome = run(&format!("redrive {} --json", id(1)), answers()).await;
    let line = format!(
        "{{\"id\":\"{}\",\"existing\":true,\"queue\":\"mail/dead\",\"state\":\"done\",\"letter\":false}}\n",
        id(2)
    );
    assert_eq!(outcome.printed, line);
    let outcome = run(&format!("redrive {} --to elsewhere", id(1)), answers()).await;
    assert_eq!(outcome.exit, Exit::Refused);
    assert!(outcome.noted.contains(&is), "{}", outcome.noted);
    let gone = || Err(Error::new(ErrorCode::NotFound, "no such task"));
    let [dead, _] = answers();
    let outcome = run(&format!("redrive {}", id(1)), [dead, gone()]).await;
    assert!(outcome.printed.contains("has ended and is forgotten"), "{}", outcome.printed);
}

/// Goal: a redrive with an unknown outcome can be repeated, and there is one copy.
#[tokio::test]
async fn a_redrive_whose_outcome_is_unknown_is_repeated_for_its_copy() {
    let line = format!("redrive {} --id {}", id(1), id(9));
    let unknown = Err(Error::new(ErrorCode::Unknown, "no answer in time").about(id(1)));
    let outcome = run(&line, [Ok(Response::Task(Box::new(bare_task(1, State::Dead)))), unknown]).await;
    assert!(outcome.noted.contains(&format!("`{line}` repeats it")), "{}", outcome.noted);
    let asked = outcome.calls.iter().find_map(|(call, _)| match call {
        Call::Redrive { id, copy, .. } => Some((*id, copy.get())),
        _ => None,
    });
    assert_eq!(asked, Some((id(1), Some(id(9)))));
    // It took effect after all.
    let (mut dead, copy) = (bare_task(1, State::Dead), bare_task(9, State::Ready));
    dead.redriven = vec![id(9)];
    let [dead, copy] = [dead, copy].map(|task| Ok(Response::Task(Box::new(task))));
    let outcome = run(&line, [dead, Ok(Response::AckedOne(acked(9))), copy]).await;
    assert_eq!(outcome.exit, Exit::Done);
    assert!(outcome.printed.contains(&format!("redrove {} as {}", id(1), id(9))), "{}", outcome.printed);
    let several = run(&format!("redrive {} {} --id {}", id(1), id(2), id(9)), []).await;
    assert_eq!((several.exit, several.calls.len()), (Exit::Usage, 0));
}

/// Goal: an existing dead letter is not reported as a copy that an operator requested.
#[tokio::test]
async fn a_task_whose_letter_is_out_is_not_redriven_and_its_letter_is_named() {
    let answers = |state| {
        let (mut dead, mut letter) = (bare_task(1, State::Dead), bare_task(2, state));
        dead.redriven = vec![id(2)];
        letter.spec.queue = queue("mail/dead");
        letter.spec.headers = vec![(headers::DEAD_TASK.to_owned(), id(1).to_string())];
        [dead, letter].map(|task| Ok(Response::Task(Box::new(task))))
    };
    let line = format!("redrive {}", id(1));
    let outcome = run(&line, answers(State::Ready)).await;
    assert_eq!((outcome.exit, outcome.calls.len()), (Exit::Done, 2));
    let expected = format!("the dead letter of {} is out already: there is {} in mail/dead, ready\n", id(1), id(2));
    assert!(outcome.printed.starts_with(&expected), "{}", outcome.printed);
    assert!(outcome.printed.contains("`redrive --letters mail/dead`"), "{}", outcome.printed);
    assert_eq!(run(&line, answers(State::Done)).await.printed, expected.replace(", ready", ", done"));
    let outcome = run(&format!("{line} --json"), answers(State::Ready)).await;
    assert!(outcome.printed.contains("\"existing\":true") && outcome.printed.contains("\"letter\":true"));
}

/// Goal: claimed letters are released if one cannot be sent back, so that they do not wait for the end of their leases.
#[tokio::test]
async fn letters_that_are_not_sent_back_are_free_at_once() {
    let claimed = [1, 2, 3].map(|number| Granted { id: id(number), ..granted() });
    let claimed = Response::Claimed { tasks: claimed.to_vec(), unavailable: 0, left: 0 };
    let letter = |number| {
        let told = [(headers::DEAD_TASK, id(9).to_string()), (headers::DEAD_QUEUE, "mail".to_owned())];
        let headers = told.map(|(name, value)| (name.to_owned(), value)).to_vec();
        let mut task = bare_task(number, State::Claimed);
        task.spec = Spec { headers, ..task.spec };
        Ok(Response::Task(Box::new(task)))
    };
    let sent = Ok(Response::Acked(vec![Ok(acked(1))]));
    let refused = Ok(Response::Acked(vec![Err(Error::new(ErrorCode::Superseded, "taken over"))]));
    let done = || Ok(Response::Done);
    let answers = [Ok(claimed), letter(1), sent, letter(2), refused, done(), done()];
    let outcome = run("redrive --letters mail/dead", answers).await;
    assert_eq!(outcome.exit, Exit::Refused, "{}", outcome.noted);
    let released = |(call, _): &(Call, Option<Duration>)| match call {
        Call::Request(Request::Release { id, .. }) => Some(*id),
        _ => None,
    };
    assert_eq!(outcome.calls.iter().filter_map(released).collect::<Vec<_>>(), [id(2), id(3)]);
    assert!(outcome.printed.contains("sent back to mail"), "{}", outcome.printed);
}

/// Goal: an operator finds the task that goes on.
#[tokio::test]
async fn the_new_task_of_a_letter_is_named() {
    let claimed = Response::Claimed { tasks: vec![granted()], unavailable: 0, left: 0 };
    let told = [(headers::DEAD_TASK, id(9).to_string()), (headers::DEAD_QUEUE, "mail".to_owned())];
    let mut letter = bare_task(1, State::Claimed);
    letter.spec.headers = told.map(|(name, value)| (name.to_owned(), value)).to_vec();
    letter.claims = vec![ClaimView {
        token: Token { epoch: 7, number: 42 },
        start_ms: 1_000,
        end_ms: None,
        completed_ms: None,
        worker: "w".to_owned(),
        rejected: None,
        superseded: None,
        session: None,
        end: None,
    }];
    let answers = || {
        let read = Ok(Response::Task(Box::new(letter.clone())));
        [Ok(claimed.clone()), read, Ok(Response::Acked(vec![Ok(acked(1))]))]
    };
    let line = "redrive --letters mail/dead --limit 1";
    let outcome = run(line, answers()).await;
    let brought = outcome.calls.iter().find_map(|(call, _)| match call {
        Call::Complete { items, .. } => items[0].children[0].id,
        _ => None,
    });
    let brought = brought.expect("the id follows from the letter");
    let expected = format!("sent back to mail as {brought}, and done is letter {} (", id(1));
    assert!(outcome.printed.starts_with(&expected), "{}", outcome.printed);
    let outcome = run(&format!("{line} --json"), answers()).await;
    let row: serde_json::Value = serde_json::from_str(outcome.printed.trim()).unwrap();
    assert_eq!((&row["id"], &row["task"]), (&id(1).to_string().into(), &brought.to_string().into()), "{row}");
}

/// Goal: an operator knows how many tasks a redrive will copy before it is made.
#[tokio::test]
async fn a_dry_run_of_a_redrive_counts_and_enqueues_nothing() {
    let mut tasks = [1, 2, 3].map(|number| bare_task(number, State::Dead));
    tasks[1].redriven = vec![id(7)];
    let page = || [Ok(Response::Page(Page { tasks: tasks.to_vec(), next: None }))];
    let outcome = run("redrive --queue mail --dry-run", page()).await;
    assert_eq!((outcome.exit, outcome.calls.len()), (Exit::Done, 1), "{}", outcome.noted);
    assert_eq!(outcome.printed, "2 dead tasks chosen; the same without --dry-run enqueues them again\n");
    let outcome = run("redrive --queue mail --dry-run --limit 1 --json", page()).await;
    assert_eq!(outcome.printed, "{\"chosen\":1,\"changed\":0}\n");
    assert_eq!(run("redrive --queue mail --reason none --dry-run", page()).await.calls.len(), 1);
}

/// Transport with two letters that answers only the claim of them.
#[derive(Default)]
struct Slow(Mutex<Vec<(TaskId, Token)>>);

impl Transport for Slow {
    async fn call(&self, call: Call, _: Option<Duration>) -> Result<Response, Error> {
        match call {
            Call::Request(Request::Claim(_)) => {
                let tasks = [1, 2].map(|number| Granted { id: id(number), ..granted() }).to_vec();
                Ok(Response::Claimed { tasks, unavailable: 0, left: 0 })
            }
            _ => std::future::pending().await,
        }
    }

    fn give_back(&self, claims: Vec<(TaskId, Token)>) {
        self.0.lock().unwrap().extend(claims);
    }
}

/// Goal: an abandoned command, for example after Ctrl-C, leaves no letters held.
#[tokio::test]
async fn letters_are_given_back_where_the_command_is_given_up() {
    let slow = Slow::default();
    let output = Output::new(Written::default(), Written::default(), false);
    let mut runner = Runner::new(&slow, output, Input::pipe(&b""[..]), Place::Prompt);
    let command = CommandLine::try_parse_from("redrive --letters mail/dead".split(' ')).unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(100), runner.run(command.verb)).await.is_err());
    assert_eq!(*slow.0.lock().unwrap(), [(id(1), TOKEN), (id(2), TOKEN)]);
}

/// If letters may be in a partition that could not be asked, the queue is not reported as empty.
#[tokio::test]
async fn letters_that_could_not_be_asked_for_are_told_of() {
    let claimed =
        |tasks: &[Granted], unavailable| Ok(Response::Claimed { tasks: tasks.to_vec(), unavailable, left: 0 });
    let outcome = run("redrive --letters mail/dead", [claimed(&[], 2)]).await;
    assert_eq!(outcome.exit, Exit::Unavailable);
    assert!(outcome.noted.contains("0 letters redriven, but 2 partitions could not be asked"), "{}", outcome.noted);
    let outcome = run("redrive --letters mail/dead", [claimed(&[], 0)]).await;
    assert_eq!(outcome.exit, Exit::Done);
    assert!(outcome.printed.contains("nothing to redrive"), "{}", outcome.printed);
}

/// Goal: ready letters are not reported as absent if their queue is paused or limited.
#[tokio::test]
async fn letters_that_their_queue_keeps_back_are_told_of() {
    let paused = QueuePolicy { paused: true, ..QueuePolicy::default() };
    let limited = QueuePolicy { concurrency: Some(1), ..QueuePolicy::default() };
    let answers = |policy: &QueuePolicy, ready| {
        let nothing = Response::Claimed { tasks: Vec::new(), unavailable: 0, left: 0 };
        let cluster = Response::Cluster(Box::new(super::tables::view_of("mail/dead", policy.clone())));
        [Ok(nothing), Ok(cluster), Ok(Response::Count(ready))]
    };
    for (policy, cause, words) in [
        (&paused, "paused", "queue mail/dead is paused: `queue set mail/dead paused no`"),
        (&limited, "limited", "queue mail/dead is claimed from while fewer than 1 of it are held"),
    ] {
        let outcome = run("redrive --letters mail/dead", answers(policy, 2)).await;
        assert_eq!(outcome.exit, Exit::NothingToClaim, "{outcome:?}");
        assert!(outcome.printed.contains("not yet 2 letters that are ready"), "{outcome:?}");
        assert!(outcome.printed.contains(words), "{outcome:?}");
        let outcome = run("redrive --letters mail/dead --json", answers(policy, 2)).await;
        let row: serde_json::Value = serde_json::from_str(&outcome.printed).unwrap();
        assert_eq!((outcome.exit, &row["cause"]), (Exit::NothingToClaim, &cause.into()));
        assert_eq!((&row["redriven"], &row["ready"]), (&0.into(), &2.into()), "{row}");
        let outcome = run("redrive --letters mail/dead", answers(policy, 0)).await;
        assert!(outcome.exit == Exit::Done && outcome.printed.contains("nothing to redrive"), "{outcome:?}");
    }
}

/// Goal: neither stored nor typed text can control a terminal, hide on it, or reverse the order of text beside it.
#[tokio::test]
async fn nothing_that_cannot_be_seen_gets_to_a_terminal() {
    let odd = "a\u{202e}b\u{200b}\u{7}\u{9b}c";
    let mut task = bare_task(1, State::Dead);
    task.spec.queue = queue("mail\u{202e}");
    task.spec.payload = "x\u{202e}\u{feff}y".into();
    task.spec.key = Some(odd.into());
    task.spec.headers = vec![(odd.into(), odd.into())];
    (task.reason, task.result) = (Some(odd.into()), Some(ByteBuf::from("\u{2066}r".as_bytes().to_vec())));
    let stored = || Ok(Response::Task(Box::new(task.clone())));
    let listed = || Ok(Response::Page(Page { tasks: vec![task.clone()], next: None }));
    let granted = Granted { queue: queue("mail\u{202e}"), payload: "\u{202e}".into(), ..granted() };
    let claimed = Ok(Response::Claimed { tasks: vec![granted], unavailable: 0, left: 0 });
    let refused = Err(Error::invalid(format!("no {odd}\n{odd}")));
    let cases: Vec<(String, Vec<Result<Response, Error>>)> = vec![
        (format!("get {}", id(1)), vec![stored()]),
        (format!("wait {}", id(1)), vec![stored()]),
        ("list --state dead".into(), vec![listed()]),
        ("claim mail".into(), vec![claimed]),
        ("count".into(), vec![refused]),
        (format!("enqueue mail x --header {odd}"), vec![]),
        (format!("queue set mail {odd} 1"), vec![]),
        (format!("dance{odd}"), vec![]),
    ];
    for (line, answers) in cases {
        let outcome = run(&line, answers).await;
        let told = outcome.printed + &outcome.noted;
        let hidden = |character: char| {
            character.is_control() && character != '\n' || "\u{202e}\u{200b}\u{feff}\u{2066}".contains(character)
        };
        assert!(!told.is_empty() && !told.contains(hidden), "{line:?}: {told:?}");
    }
}

/// Goal: without a task, the message mentions that a queue can be named instead.
#[tokio::test]
async fn what_changes_many_mentions_their_queue_where_no_task_is_named() {
    for verb in ["cancel", "redrive", "release", "purge"] {
        let outcome = run(verb, []).await;
        assert_eq!(outcome.exit, Exit::Usage);
        assert!(outcome.noted.contains(&format!("{verb} --queue QUEUE")), "{}", outcome.noted);
        let outcome = run(&format!("{verb} --json"), []).await;
        assert!(outcome.printed.contains(&format!("{verb} --queue QUEUE")), "{}", outcome.printed);
    }
    assert!(!run("renew", []).await.noted.contains("--queue"));
}

/// Goal: each of several completions is shown.
#[tokio::test]
async fn a_completion_that_another_one_stands_over_is_shown() {
    let claim = |number, completed_ms, outcome| ClaimView {
        token: Token { epoch: 1, number },
        start_ms: NOW_MS - 9_000,
        end_ms: Some(NOW_MS - 8_000),
        completed_ms,
        worker: "w".into(),
        rejected: None,
        superseded: None,
        session: None,
        end: Some(ClaimEnd { outcome, at_ms: NOW_MS - 7_000, reason: None }),
    };
    let claims = vec![
        claim(1, Some(NOW_MS - 3_000), ClaimOutcome::Expired),
        claim(2, None, ClaimOutcome::Failed),
        claim(3, Some(NOW_MS - 4_000), ClaimOutcome::Done),
    ];
    let mut task = TaskView { claims, ..bare_task(1, State::Done) };
    let told = "  1.1 was completed 3s ago, too: the result is that of 1.3\n";
    let outcome = run(&format!("get {}", id(1)), [Ok(Response::Task(Box::new(task.clone())))]).await;
    assert!(outcome.printed.ends_with(told), "{}", outcome.printed);
    task.claims[0].superseded = Some(Rejected { result: Some(b"seven".to_vec().into()) });
    let answer = || [Ok(Response::Task(Box::new(task.clone())))];
    let outcome = run(&format!("get {}", id(1)), answer()).await;
    assert!(outcome.printed.ends_with(&format!("{told}  1.1 was completed with  seven\n")), "{}", outcome.printed);
    let outcome = run(&format!("get {} --json", id(1)), answer()).await;
    assert!(outcome.printed.contains("\"superseded\":{\"result\":\"seven\","), "{}", outcome.printed);
}
