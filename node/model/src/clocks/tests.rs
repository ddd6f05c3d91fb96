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

fn measure(clocks: &mut Clocks, node: u128, wall_ms: u64, round_trip_us: u64, at: Now, config: &Config) {
    let trip = RoundTrip { sent_us: at.mono_us - round_trip_us, kept_us: 0 };
    clocks.measure(NodeId(node), wall_ms, trip, at, config);
}

fn remeasure(clocks: &mut Clocks, offsets_ms: [i64; 2], at: Now, config: &Config) {
    for (node, offset_ms) in (1..).zip(offsets_ms) {
        measure(clocks, node, at.wall_ms.saturating_add_signed(offset_ms), 1_000, at, config);
    }
}

// S39
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
    // The clock is set right.
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
fn a_jump_fences_until_a_majority_is_there_to_compare_with_or_for_a_while() {
    let config = Config::default();
    let mut clocks = Clocks::default();
    let at = now(5 * SECOND_US, 1_000_000);
    assert!(!clocks.has_jumped(at));
    assert_eq!(clocks.judge(at, 3, false, &config).standing, Standing::Unknown);
    let jumped = now(6 * SECOND_US, 1_000_900);
    assert!(!clocks.has_jumped(now(6 * SECOND_US, 1_001_000)));
    assert!(clocks.has_jumped(jumped));
    assert_eq!(clocks.judge(jumped, 3, true, &config).standing, Standing::Fenced);
    let later = now(7 * SECOND_US, 1_001_900);
    assert!(!clocks.has_jumped(later));
    assert_eq!(clocks.judge(later, 3, false, &config).standing, Standing::Fenced, "nobody to compare with yet");
    let much_later = now(jumped.mono_us + config.clock_calm_ms * 1_000, 1_031_900);
    assert_eq!(clocks.judge(much_later, 3, false, &config).standing, Standing::Unknown, "nor will there be");
    clocks.judge(much_later, 3, true, &config);
    let compared = now(much_later.mono_us + SECOND_US, 1_032_900);
    remeasure(&mut clocks, [10, -10], compared, &config);
    assert_eq!(clocks.judge(compared, 3, false, &config).standing, Standing::Good);
}

#[test]
fn a_jump_to_a_wrong_time_fences_at_once_and_stays() {
    let config = Config::default();
    let at = now(5 * SECOND_US, 1_000_000);
    let mut clocks = measured([0, 0], at, &config);
    assert_eq!(clocks.judge(at, 3, false, &config).standing, Standing::Good);
    let jumped = now(at.mono_us + 10, at.wall_ms + 3_600_000);
    assert!(clocks.has_jumped(jumped));
    assert_eq!(clocks.judge(jumped, 3, true, &config).standing, Standing::Fenced, "without a new measurement");
    let later = now(jumped.mono_us + SECOND_US, jumped.wall_ms + 1_000);
    remeasure(&mut clocks, [-3_600_000; 2], later, &config);
    assert_eq!(clocks.judge(later, 3, false, &config).standing, Standing::Fenced);
}

#[test]
fn clocks_that_jump_together_are_good_as_soon_as_they_are_compared() {
    let config = Config::default();
    let at = now(5 * SECOND_US, 1_000_000);
    let mut clocks = measured([0, 0], at, &config);
    clocks.judge(at, 3, false, &config);
    // All machines slept for an hour: the monotonic clocks stood still.
    let awake = now(at.mono_us + 10, at.wall_ms + 3_600_000);
    assert!(clocks.has_jumped(awake));
    clocks.judge(awake, 3, true, &config);
    let soon = now(awake.mono_us + 60_000, awake.wall_ms + 60);
    // A round trip that was under way meanwhile is an hour old, and is ignored.
    let stale = RoundTrip { sent_us: at.mono_us - 1_000, kept_us: 0 };
    clocks.measure(NodeId(1), at.wall_ms, stale, soon, &config);
    assert_eq!(clocks.offset_us(NodeId(1), soon, &config), None);
    remeasure(&mut clocks, [0, 0], soon, &config);
    assert_eq!(clocks.judge(soon, 3, false, &config).standing, Standing::Good);
}

#[test]
fn a_peer_s_jump_replaces_a_better_measurement_of_before() {
    let config = Config::default();
    let at = now(5 * SECOND_US, 1_000_000);
    let mut clocks = measured([0, 0], at, &config);
    let later = now(at.mono_us + SECOND_US, at.wall_ms + 1_000);
    measure(&mut clocks, 1, later.wall_ms + 4_000, 80_000, later, &config);
    let (offset_us, error_us) = clocks.offset_us(NodeId(1), later, &config).unwrap();
    assert!(offset_us.abs_diff(4_040_000) < 1_000 && error_us < 42_000, "{offset_us} {error_us}");
    // A less exact one that agrees does not replace a better one.
    measure(&mut clocks, 2, later.wall_ms - 20, 80_000, later, &config);
    let (offset_us, _) = clocks.offset_us(NodeId(2), later, &config).unwrap();
    assert!(offset_us.abs() < 2_000, "{offset_us}");
}

#[test]
fn absurd_readings_are_ignored() {
    let config = Config::default();
    let at = now(20 * SECOND_US, 1_000_000);
    let trips = [(u64::MAX, 0, 0), (0, SAMPLE_AGE_US_MAX + 1, 0), (0, 1_000, u64::MAX), (0, 1_000, 3_000)];
    for (wall_ms, length_us, kept_us) in trips {
        let mut clocks = Clocks::default();
        clocks.measure(NodeId(1), wall_ms, RoundTrip { sent_us: at.mono_us - length_us, kept_us }, at, &config);
        assert_eq!(clocks.offset_us(NodeId(1), at, &config), None, "{wall_ms} {length_us} {kept_us}");
    }
    let mut clocks = measured([i64::MAX; 2], at, &config);
    assert_eq!(clocks.judge(at, 3, false, &config).standing, Standing::Unknown);
    for node in 1..3 {
        measure(&mut clocks, node, WALL_MS_MAX, 1_000, at, &config);
    }
    assert_eq!(clocks.judge(at, 3, false, &config).standing, Standing::Fenced);
}

/// Leases of another leadership are compared with an allowance for how far the clocks really are apart.
#[test]
fn the_margin_of_leases_follows_what_was_measured() {
    let config = Config::default();
    let at = now(5 * SECOND_US, 1_000_000);
    let margin_ms = |offsets_ms: [i64; 2]| measured(offsets_ms, at, &config).margin_ms(at, &config);
    let epsilon_ms = config.clock_epsilon_ms;
    assert_eq!(Clocks::default().margin_ms(at, &config), epsilon_ms, "nothing is known");
    assert_eq!(margin_ms([0, -400]), epsilon_ms);
    for sign in [-1, 1] {
        let widest_ms = margin_ms([0, 1_500 * sign]);
        assert!((1_500..1_510).contains(&widest_ms), "{widest_ms}");
        assert_eq!(margin_ms([0, 3_600_000 * sign]), 4 * epsilon_ms, "such a clock does not lead for long");
    }
    let later = now(at.mono_us + SAMPLE_AGE_US_MAX + 1, at.wall_ms + 10_000);
    assert_eq!(measured([0, 1_500], at, &config).margin_ms(later, &config), epsilon_ms, "that was long ago");
}
