//! Errors name the task, and give advice that can be followed.

use super::*;

fn absent(number: u32) -> Result<Response, Error> {
    Err(Error::new(ErrorCode::NotFound, "no such task").about(id(number)))
}

fn unknown(number: u32) -> Result<Response, Error> {
    Err(Error::new(ErrorCode::Unknown, "no answer in time").about(id(number)))
}

/// Goal: with several tasks, an error says which one it is about; with only one named, it says nothing more.
#[tokio::test]
async fn an_error_names_the_task_that_it_is_about() {
    let (one, two) = (id(1), id(2));
    let there = || Ok(Response::Task(Box::new(bare_task(1, State::Ready))));
    let outcome = run(&format!("enqueue mail x --after {one},{two} --must-exist"), [there(), absent(2)]).await;
    assert_eq!(outcome.noted, format!("error: no such task (task {two})\n"));
    let depended = Error::new(ErrorCode::Conflict, "a task that the claim depends on is not there").about(two);
    let outcome = run(&format!("claim mail --depends {one},{two}"), [Err(depended)]).await;
    assert!(outcome.noted.contains(&format!("is not there (task {two})\n")), "{}", outcome.noted);
    let outcome = run(&format!("get {one}"), [absent(1)]).await;
    assert_eq!(outcome.noted, "error: no such task\n");
    let outcome = run(&format!("get {one} --json"), [absent(1)]).await;
    assert!(
        outcome.printed.contains("\"message\":\"no such task\""),
        "programs have a field for it: {}",
        outcome.printed
    );
    let outcome = run(&format!("get {one} {two} {}", id(3)), [there(), Err(Error::unavailable("away"))]).await;
    assert!(outcome.noted.contains(&format!("{two}: away; 1 more behind it were not asked for")), "{}", outcome.noted);
    let outcome = run(&format!("get {one} {two} --json"), [Err(Error::unavailable("away"))]).await;
    assert!(outcome.printed.contains(&format!("\"id\":\"{one}\"")), "{}", outcome.printed);
    assert!(outcome.printed.contains("1 more behind it were not asked for"), "{}", outcome.printed);
}

/// Goal: no advice says to repeat a call with an id that the command does not accept, or that would be another one then.
#[tokio::test]
async fn what_to_do_about_an_unknown_outcome_can_be_done() {
    for (line, told) in [
        ("session open", "the same command is safe to repeat, and takes that one first\n"),
        (
            "enqueue mail x --group g --number 1",
            "the join of group \"g\" may have been: the same command is safe to repeat\n",
        ),
    ] {
        let outcome = run(line, [unknown(7)]).await;
        assert!(outcome.exit == Exit::Unavailable && outcome.noted.ends_with(told), "{}", outcome.noted);
        assert!(!outcome.noted.contains(&id(7).to_string()), "{}", outcome.noted);
        let outcome = run(&format!("{line} --json"), [unknown(7)]).await;
        assert!(!outcome.printed.contains(&id(7).to_string()), "{}", outcome.printed);
    }
    let outcome = run("enqueue mail x", [unknown(7)]).await;
    assert!(outcome.noted.contains(&format!("the same call for {} is safe", id(7))), "{}", outcome.noted);
}

/// Goal: a file that begins with an editor's byte order mark is read as it looks.
#[tokio::test]
async fn a_byte_order_mark_is_no_part_of_the_first_task() {
    let stored = Ok(Response::Acked(vec![Ok(acked(1)), Ok(acked(2))]));
    let lines = "\u{feff}a\n\u{feff}b\n".as_bytes();
    let outcome = run_at(Place::CommandLine, "enqueue mail --lines", lines, [stored]).await;
    let (Call::Enqueue { drafts, .. }, _) = &outcome.calls[0] else { panic!("{:?}", outcome.calls) };
    let payloads: Vec<&[u8]> = drafts.iter().map(|draft| &draft.spec.payload[..]).collect();
    assert_eq!(payloads, ["a".as_bytes(), "\u{feff}b".as_bytes()]);
}
