use super::*;

const SECOND_US: u64 = 1_000_000;

fn now(mono_us: u64, wall_ms: u64) -> Now {
    Now { mono_us, wall_ms }
}

/// Clocks that have measured two others at these offsets, with a round trip of a millisecond.
fn measured(offsets_ms: [i64; 2], at: Now, config: &Config) -> Clocks {
    let mut clocks = Clocks::default();
    clocks.has_jumped(at);
    remeasure(&mut clocks, offsets_ms, at, config);
    clocks
}

fn remeasure(clocks: &mut Clocks, offsets_ms: [i64; 2], at: Now, config: &Config) {
    for (node, offset_ms) in (1..).zip(offsets_ms) {
        clocks.measure(NodeId(node), at.wall_ms.saturating_add_signed(offset_ms), 1_000, at, config);
    }
}

#[test]
fn the_standing_follows_the_distance() {
    let config = Config::default();
    let at = now(5 * SECOND_US, 1_000_000);
    for (offset_ms, standing) in [(0, Standing::Good), (450, Standing::Good), (520, Standing::Suspect)] {
        for sign in [-1, 1] {
            let mut clocks = measured([offset_ms * sign; 2], at, &config);
            assert_eq!(clocks.judge(at, 3, false, &config).standing, standing, "{offset_ms} ms");
        }
    }
    let mut clocks = measured([820, 830], at, &config);
    let judgement = clocks.judge(at, 3, false, &config);
    assert_eq!(judgement.standing, Standing::Fenced);
    assert!(judgement.off_us.is_some_and(|off_us| (800_000..=820_000).contains(&off_us)), "{judgement:?}");
}

#[test]
fn a_clock_gets_better_only_after_a_while() {
    let config = Config::default();
    let calm_us = config.clock_calm_ms * 1_000;
    let mut at = now(5 * SECOND_US, 1_000_000);
    let mut clocks = measured([900, 900], at, &config);
    assert_eq!(clocks.judge(at, 3, false, &config).standing, Standing::Fenced);
    // It is set right.
    at.wall_ms += 900;
    let right_us = at.mono_us;
    loop {
        remeasure(&mut clocks, [0, 0], at, &config);
        let standing = clocks.judge(at, 3, false, &config).standing;
        let expected = if at.mono_us < right_us + calm_us { Standing::Fenced } else { Standing::Good };
        assert_eq!(standing, expected, "{} us later", at.mono_us - right_us);
        if standing == Standing::Good {
            break;
        }
        at = now(at.mono_us + SECOND_US, at.wall_ms + 1_000);
    }
}

#[test]
fn a_wrong_clock_that_sees_nobody_stays_wrong() {
    let config = Config::default();
    let at = now(5 * SECOND_US, 1_000_000);
    let mut clocks = measured([900, 900], at, &config);
    assert_eq!(clocks.judge(at, 3, false, &config).standing, Standing::Fenced);
    let later = now(100 * SECOND_US, 1_095_000);
    assert_eq!(clocks.judge(later, 3, false, &config), Judgement { standing: Standing::Fenced, off_us: None });
}

#[test]
fn a_jump_fences_until_a_majority_is_there_to_compare_with() {
    let config = Config::default();
    let mut clocks = Clocks::default();
    let at = now(5 * SECOND_US, 1_000_000);
    assert!(!clocks.has_jumped(at));
    assert_eq!(clocks.judge(at, 3, false, &config).standing, Standing::Unknown);
    let jumped = now(6 * SECOND_US, 1_000_900);
    assert!(clocks.has_jumped(jumped));
    assert_eq!(clocks.judge(jumped, 3, true, &config).standing, Standing::Fenced);
    let later = now(7 * SECOND_US, 1_001_900);
    assert!(!clocks.has_jumped(later));
    assert_eq!(clocks.judge(later, 3, false, &config).standing, Standing::Fenced, "nobody to compare with yet");
    remeasure(&mut clocks, [10, -10], later, &config);
    assert_eq!(clocks.judge(later, 3, false, &config).standing, Standing::Good);
}

#[test]
fn a_jump_to_a_wrong_time_shows_at_once() {
    let config = Config::default();
    let at = now(5 * SECOND_US, 1_000_000);
    let mut clocks = measured([0, 0], at, &config);
    assert_eq!(clocks.judge(at, 3, false, &config).standing, Standing::Good);
    let jumped = now(at.mono_us + 10, at.wall_ms + 3_600_000);
    assert!(clocks.has_jumped(jumped));
    assert_eq!(clocks.judge(jumped, 3, true, &config).standing, Standing::Fenced, "without a new measurement");
}

#[test]
fn a_peer_s_jump_replaces_a_better_measurement_of_before() {
    let config = Config::default();
    let at = now(5 * SECOND_US, 1_000_000);
    let mut clocks = measured([0, 0], at, &config);
    let later = now(at.mono_us + SECOND_US, at.wall_ms + 1_000);
    clocks.measure(NodeId(1), later.wall_ms + 4_000, 80_000, later, &config);
    let (offset_us, error_us) = clocks.offset_us(NodeId(1), later, &config).unwrap();
    assert!(offset_us.abs_diff(4_040_000) < 1_000 && error_us < 42_000, "{offset_us} {error_us}");
    // A vague one that agrees does not replace a better one.
    clocks.measure(NodeId(2), later.wall_ms - 20, 80_000, later, &config);
    let (offset_us, _) = clocks.offset_us(NodeId(2), later, &config).unwrap();
    assert!(offset_us.abs() < 2_000, "{offset_us}");
}

#[test]
fn absurd_readings_are_ignored() {
    let config = Config::default();
    let at = now(5 * SECOND_US, 1_000_000);
    let mut clocks = Clocks::default();
    clocks.measure(NodeId(1), u64::MAX, u64::MAX, at, &config);
    assert_eq!(clocks.offset_us(NodeId(1), at, &config), None);
    clocks.measure(NodeId(1), 0, u64::MAX, at, &config);
    assert!(clocks.offset_us(NodeId(1), at, &config).is_some_and(|(_, error_us)| error_us >= SAMPLE_AGE_US_MAX));
}
