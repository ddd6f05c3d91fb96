//! Calendars on hostile and strange texts, and over changes of clocks; the decisions, and that each is made once.

mod changes;

use super::*;
use crate::limits::SCHEDULE_PENDING_EACH_MAX as EACH;
use norn_wire::QueueName;
use proptest::prelude::*;

/// Nothing is due.
const NONE: [u64; 0] = [];

fn cron(expression: &str, zone: &str) -> When {
    When::Cron { expression: expression.to_owned(), zone: zone.to_owned() }
}

fn calendar(expression: &str, zone: &str) -> Calendar {
    Calendar::new(&cron(expression, zone)).expect("a good expression")
}

fn schedule(when: When, catch_up: CatchUp) -> Arc<Schedule> {
    let queue = QueueName::new("nightly").expect("a good name");
    Arc::new(Schedule { when, queue, payload: b"data".to_vec(), priority: 3, attempts_max: 2, catch_up })
}

fn at(text: &str) -> u64 {
    u64::try_from(text.parse::<chrono::DateTime<chrono::FixedOffset>>().expect("a time").timestamp_millis()).unwrap()
}

fn ticks(expression: &str, from: &str, count: usize) -> Vec<u64> {
    let calendar = calendar(expression, "Europe/Berlin");
    let next = |before: &u64| calendar.after(*before);
    let found: Vec<u64> = std::iter::successors(next(&at(from)), next).take(count).collect();
    let back: Vec<u64> = calendar.backwards(at(from), *found.last().unwrap()).collect();
    assert!(back.iter().rev().eq(&found), "{expression} is the same both ways");
    found
}

/// In Berlin, 2:00 to 3:00 is skipped on 2024-03-31, and comes twice on 2024-10-27.
#[test]
fn a_fixed_time_comes_once_a_day_and_a_pattern_as_the_clock_shows_it() {
    let are = |expression: &str, from: &str, wanted: &[&str]| {
        let wanted: Vec<u64> = wanted.iter().map(|text| at(text)).collect();
        assert_eq!(ticks(expression, from, wanted.len()), wanted, "{expression}");
    };
    are("30 2 * * *", "2024-03-30T12:00:00Z", &["2024-03-31T03:00:00+02:00", "2024-04-01T02:30:00+02:00"]);
    let skipped = ["2024-03-31T01:30:00+01:00", "2024-03-31T03:00:00+02:00", "2024-03-31T03:30:00+02:00"];
    are("*/30 * * * *", "2024-03-31T00:00:00Z", &skipped);
    are("30 2 * * *", "2024-10-26T12:00:00Z", &["2024-10-27T02:30:00+02:00", "2024-10-28T02:30:00+01:00"]);
    let doubled = [
        "2024-10-27T02:00:00+02:00",
        "2024-10-27T02:30:00+02:00",
        "2024-10-27T02:00:00+01:00",
        "2024-10-27T02:30:00+01:00",
    ];
    are("*/30 2 * * *", "2024-10-26T12:00:00Z", &doubled);
}

#[test]
fn what_is_wrong_is_said_with_the_place() {
    let wrong = |when: &When| Calendar::new(when).expect_err("it is refused");
    let told = [
        ("61 * * * *", "minute"),
        ("0 25 * * *", "hour"),
        ("0 0 32 * *", "day of the month"),
        ("0 0 * 13 *", "month"),
        ("0 0 * * 9", "day of the week"),
        ("70 0 0 * * *", "second"),
        ("0 0 0 * * * 99999", "year"),
        ("every day", "2 fields"),
        ("", "0 fields"),
    ];
    for (expression, place) in told {
        let message = wrong(&cron(expression, "UTC"));
        assert!(message.contains(place), "{expression}: {message}");
    }
    assert!(wrong(&cron("* * * * *", "Europe/Atlantis")).contains("time zone"));
    assert!(wrong(&When::At(u64::MAX)).contains("4999"));
    let none = Schedules::default();
    for never in ["0 0 30 2 *", "0 0 0 1 1 * 1999", "0 0 0 30 2 * *"] {
        let set = ScheduleChange::Set { name: "n".into(), schedule: schedule(cron(never, "UTC"), CatchUp::Last) };
        let error = none.admit(&set, at("2026-01-01T00:00:00Z")).expect_err("it is refused");
        assert!(error.message.contains("never"), "{error}");
    }
    let past = ScheduleChange::Set { name: "n".into(), schedule: schedule(When::At(5), CatchUp::Last) };
    assert_eq!(none.admit(&past, 5).unwrap_err().code, ErrorCode::Invalid);
    assert!(none.admit(&past, 4).unwrap().is_some());
}

#[test]
fn the_ends_of_time_are_no_times() {
    let every = calendar("* * * * * *", "Pacific/Auckland");
    for ms in [INSTANT_MS_MAX - 1_000, INSTANT_MS_MAX, u64::MAX / 2, u64::MAX] {
        assert!(every.after(ms).is_none_or(|tick| tick > ms));
        assert!(every.until(ms).is_none_or(|tick| tick <= ms));
    }
    assert_eq!(calendar("@yearly", "UTC").after(at("2026-01-01T00:00:00Z")), Some(at("2027-01-01T00:00:00Z")));
    assert_eq!(every.after(at("2200-01-01T00:00:00Z")), None, "an expression without years has an end");
    assert_eq!(every.after(0), Some(1_000));
    assert_eq!(every.until(0), Some(0));
    assert_eq!((every.until(1_999), every.after(1_999)), (Some(1_000), Some(2_000)));
    assert_eq!(calendar("0 0 29 2 *", "UTC").after(at("2096-03-01T00:00:00Z")), Some(at("2104-02-29T00:00:00Z")));
}

/// One schedule, with what a leader would do with it at once.
struct Bench {
    schedules: Schedules,
    tasks: BTreeMap<TaskId, u64>,
}

impl Bench {
    fn new(when: When, catch_up: CatchUp, since_ms: u64) -> Bench {
        let mut bench = Bench { schedules: Schedules::default(), tasks: BTreeMap::new() };
        let set = ScheduleChange::Set { name: "n".into(), schedule: schedule(when, catch_up) };
        bench.apply(&bench.schedules.admit(&set, since_ms).expect("it is allowed").expect("it is new"));
        bench
    }

    fn apply(&mut self, operation: &Operation) {
        self.schedules.apply(operation).expect("it fits");
        assert_eq!(self.schedules.validate(), Ok(()));
        let bytes = rmp_serde::to_vec(&self.schedules).expect("it encodes");
        assert_eq!(rmp_serde::from_slice::<Schedules>(&bytes).expect("it decodes"), self.schedules);
        let bytes = rmp_serde::to_vec(operation).expect("it encodes");
        assert_eq!(rmp_serde::from_slice::<Operation>(&bytes).expect("it decodes"), *operation);
    }

    fn standing(&self) -> &Standing {
        &self.schedules.entries()["n"]
    }

    /// Decides what is due, and records that it was enqueued, until nothing is left. Returns what was due.
    fn look(&mut self, now_ms: u64) -> Vec<u64> {
        let mut fired = Vec::new();
        loop {
            let mut turn = Turn::of("n", self.standing());
            self.standing().decide(&mut turn, now_ms, usize::MAX);
            if turn.is_empty() {
                return fired;
            }
            fired.extend(&turn.ticks);
            let ordinals: Vec<u32> = turn.firings().map(|firing| firing.ordinal).collect();
            for firing in turn.firings() {
                let twice = self.tasks.insert(firing.id(turn.number), firing.tick_ms);
                assert_eq!(twice, None, "each firing has its own id");
            }
            self.apply(&Operation::Turns(vec![turn]));
            if !ordinals.is_empty() {
                let turn = Turn { fired: ordinals, ..Turn::of("n", self.standing()) };
                self.apply(&Operation::Turns(vec![turn]));
            }
        }
    }
}

// O26, O27
#[test]
fn a_time_that_is_due_is_decided_once_whatever_the_clock_does() {
    let mut bench = Bench::new(cron("* * * * * *", "UTC"), CatchUp::All, 10_500);
    assert_eq!(bench.look(10_999), NONE);
    assert_eq!(bench.look(12_000), [11_000, 12_000]);
    assert_eq!(bench.look(11_000), NONE, "a clock that goes back fires nothing twice");
    assert_eq!(bench.look(12_999), NONE);
    assert_eq!(bench.look(13_001), [13_000]);
    let standing = bench.standing();
    assert_eq!((standing.fired, standing.missed, standing.last.unwrap().tick_ms), (3, 0, 13_000));
    let early = Turn { ticks: vec![13_000], through_ms: 13_000, ..Turn::of("n", standing) };
    assert!(bench.schedules.clone().apply(&Operation::Turns(vec![early])).is_err());
    let strange = Turn { fired: vec![7], ..Turn::of("n", standing) };
    assert!(bench.schedules.clone().apply(&Operation::Turns(vec![strange])).is_err());
}

#[test]
fn what_was_missed_is_caught_up_as_the_schedule_says() {
    let run = |catch_up: CatchUp, gap_ms: u64| {
        let mut bench = Bench::new(cron("* * * * * *", "UTC"), catch_up, 0);
        let fired = bench.look(gap_ms);
        (fired.len(), fired[0], *fired.last().unwrap(), bench.standing().missed)
    };
    assert_eq!(run(CatchUp::Skip, 60_000), (11, 50_000, 60_000, 49));
    assert_eq!(run(CatchUp::Last, 60_000), (1, 60_000, 60_000, 59));
    assert_eq!(run(CatchUp::All, 60_000), (60, 1_000, 60_000, 0));
    assert_eq!(run(CatchUp::All, 500_000), (100, 401_000, 500_000, 400));
    assert_eq!(run(CatchUp::Last, 5_000_000), (1, 5_000_000, 5_000_000, 999), "a gap counts for a thousand");
    let mut hourly = Bench::new(cron("0 * * * *", "UTC"), CatchUp::Skip, 0);
    assert_eq!(hourly.look(3 * 3_600_000 + 10_001), NONE);
    assert_eq!(hourly.standing().missed, 3);
}

#[test]
fn no_more_is_under_way_than_there_may_be() {
    let bench = Bench::new(cron("* * * * * *", "UTC"), CatchUp::All, 0);
    let decide = |room: usize| {
        let mut turn = Turn::of("n", bench.standing());
        bench.standing().decide(&mut turn, 60_000, room);
        turn
    };
    assert_eq!(
        (decide(usize::MAX).ticks.len(), decide(3).ticks, decide(0).is_empty()),
        (EACH, vec![1_000, 2_000, 3_000], true)
    );
    assert_eq!(decide(3).through_ms, 3_000);
}

#[test]
fn a_pause_passes_over_and_what_is_replaced_begins_anew() {
    let mut bench = Bench::new(cron("* * * * * *", "UTC"), CatchUp::All, 0);
    let pause = |bench: &mut Bench, paused: bool, at_ms: u64| {
        let change = ScheduleChange::Pause { name: "n".into(), paused };
        bench.apply(&bench.schedules.admit(&change, at_ms).unwrap().expect("it was otherwise"));
        assert_eq!(bench.schedules.admit(&change, at_ms), Ok(None));
    };
    assert_eq!(bench.look(2_000).len(), 2);
    pause(&mut bench, true, 2_500);
    assert_eq!((bench.look(9_000).len(), bench.standing().next_ms()), (0, None));
    pause(&mut bench, false, 9_500);
    assert_eq!(bench.look(10_000), [10_000]);
    let same = ScheduleChange::Set { name: "n".into(), schedule: bench.standing().schedule.clone() };
    assert_eq!(bench.schedules.admit(&same, 20_000), Ok(None), "the same goes on");
    let other = schedule(cron("*/2 * * * * *", "UTC"), CatchUp::All);
    let other = ScheduleChange::Set { name: "n".into(), schedule: other };
    bench.apply(&bench.schedules.admit(&other, 15_000).unwrap().unwrap());
    assert_eq!((bench.standing().number, bench.look(18_000)), (2, vec![16_000, 18_000]));
    let gone = ScheduleChange::Remove { name: "n".into() };
    bench.apply(&bench.schedules.admit(&gone, 19_000).unwrap().unwrap());
    assert_eq!(bench.schedules.admit(&gone, 19_000), Ok(None));
    assert_eq!(bench.schedules.admit(&ScheduleChange::Pause { name: "n".into(), paused: true }, 0), Err(unknown("n")));
    bench.apply(&bench.schedules.admit(&other, 20_000).unwrap().unwrap());
    assert_eq!((bench.standing().number, bench.look(22_000)), (3, vec![22_000]));
}

#[test]
fn one_time_is_due_once_and_goes_a_day_later() {
    let mut bench = Bench::new(When::At(5_500), CatchUp::Last, 1_000);
    assert_eq!((bench.standing().next_ms(), bench.look(5_499)), (Some(5_500), vec![]));
    assert_eq!((bench.look(90_000), bench.look(90_000)), (vec![5_500], vec![]));
    assert_eq!(bench.standing().next_ms(), Some(5_500 + KEPT_MS));
    assert!(!bench.standing().is_over(5_499 + KEPT_MS) && bench.standing().is_over(5_500 + KEPT_MS));
}

#[test]
fn there_is_an_end_to_how_many_there_are() {
    let mut schedules = Schedules::default();
    let set = |schedules: &Schedules, name: String, bytes: usize| {
        let mut schedule = Schedule::clone(&schedule(cron("0 0 * * *", "UTC"), CatchUp::Last));
        schedule.payload = vec![0; bytes];
        schedules.admit(&ScheduleChange::Set { name, schedule: Arc::new(schedule) }, 0)
    };
    for number in 0..SCHEDULES_MAX {
        let operation = set(&schedules, format!("n{number}"), 0).unwrap().unwrap();
        schedules.apply(&operation).unwrap();
    }
    assert_eq!(schedules.validate(), Ok(()));
    assert_eq!(set(&schedules, "more".into(), 0).unwrap_err().code, ErrorCode::Conflict);
    let mut left = 0;
    while let Ok(Some(operation)) = set(&schedules, format!("n{left}"), 4_096) {
        schedules.apply(&operation).unwrap();
        left += 1;
    }
    assert!((100..SCHEDULES_MAX).contains(&left), "{left}");
    assert_eq!(schedules.validate(), Ok(()));
}

proptest! {
    /// Goal: no text stops a node. Method: texts of the characters that cron uses, and any instant.
    #[test]
    fn no_text_and_no_time_is_a_fault(
        expression in "[0-9*/,#LW?+ -]{0,40}|[@a-zA-Z0-9 */-]{0,30}|([0-9*/,-]{1,5} ){4,6}[0-9*]",
        zone in "UTC|Europe/Berlin|America/St_Johns|Lord_Howe|[a-zA-Z/_]{0,20}",
        ms in prop_oneof![any::<u64>(), 0..4_102_444_800_000u64],
    ) {
        if let Ok(calendar) = Calendar::new(&cron(&expression, &zone)) {
            let next = calendar.after(ms);
            prop_assert!(next.is_none_or(|tick| tick > ms && tick <= INSTANT_MS_MAX));
            prop_assert!(calendar.until(ms).is_none_or(|tick| tick <= ms));
        }
    }

    /// Goal: missed and fired times together are all that was due. Method: compare with the search forwards.
    #[test]
    fn both_ways_find_the_same_times(
        expression in concat!(
            r"([0-9]|[1-5][0-9]|\*|\*/[1-9][0-9]?) ([0-9]|1[0-9]|2[0-3]|\*|\*/[1-9]) ",
            r"(\*|[1-9]|L) (\*|[1-9]) (\*|[0-6]|MON#2)"
        ),
        zone in "UTC|Europe/Berlin|America/St_Johns|Australia/Lord_Howe|Africa/Casablanca|America/Sao_Paulo",
        from_ms in 946_684_800_000..4_102_444_800_000u64,
    ) {
        let calendar = calendar(&expression, &zone);
        let next = |before: &u64| calendar.after(*before);
        let forwards: Vec<u64> = std::iter::successors(next(&from_ms), next).take(50).collect();
        if let Some(last) = forwards.last() {
            let backwards: Vec<u64> = calendar.backwards(from_ms, *last).collect();
            prop_assert!(backwards.iter().rev().eq(&forwards), "{forwards:?} {backwards:?}");
        }
    }
}
