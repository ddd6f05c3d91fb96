//! The promises of a task queue, as scenes that are written once and played on two hosts: on real nodes, which are processes that talk
//! QUIC ([`real`]), and on the stage of the simulator, in virtual time and with any faults ([`simulated`]).
//!
//! A scene is an asynchronous function of a [`Scene`], which has the verbs of a client, a clock, and nodes that can be killed. A scene
//! does not know its host, and each is listed in [`PLAYS`], so no scene is played on one host alone. Each has its own queues, so that
//! many can be played at once on the same cluster.

mod claims;
mod dependencies;
mod effects;
mod endings;
mod groups;
mod keys;
mod logs;
mod nodes;
mod queues;
pub mod real;
mod scene;
mod schedules;
mod sessions;
pub mod simulated;
mod transactions;
mod watches;

pub use real::Real;
pub use scene::Scene;
pub use simulated::Simulated;

use norn_client::session::Call;
use norn_wire::{Error, Response};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

/// Number of clients of a host; their indices start at 0.
pub const CLIENTS: usize = 3;
/// Number of nodes of a host; their indices start at 0.
pub const NODES: usize = 3;

/// The environment in which scenes are played.
pub trait Host {
    /// Makes a client's call, with a time limit of `patience` plus any time that the call waits on purpose.
    fn call(&self, client: usize, call: Call, patience: Duration) -> impl Future<Output = Result<Response, Error>>;

    /// Time since a fixed earlier moment.
    fn now(&self) -> Duration;

    /// Completes after this length of time.
    fn pass(&self, length: Duration) -> impl Future<Output = ()>;

    /// Time limit for anything that is expected to happen.
    fn patience(&self) -> Duration;

    /// A length of time in which calls are made, scaled up where calls take longer than on an idle machine.
    fn scaled(&self, length: Duration) -> Duration;

    /// Completes once all nodes have heard of all earlier settings.
    fn heard(&self) -> impl Future<Output = ()>;

    /// Kills a node at once.
    fn kill(&self, node: usize);

    /// Restarts a killed node. The node may not serve yet.
    fn restart(&self, node: usize);
}

/// A scene that is being played.
pub type Playing = Pin<Box<dyn Future<Output = ()>>>;

/// A scene, for both hosts.
#[derive(Clone, Copy)]
pub struct Play {
    /// Name of the scene.
    pub name: &'static str,
    /// Whether the scene kills nodes, so that scenes beside it may have to wait longer.
    pub kills: bool,
    /// Plays the scene on the simulator's stage.
    pub simulated: fn(Rc<Simulated>) -> Playing,
    /// Plays the scene on real nodes.
    pub real: fn(Rc<Real>) -> Playing,
}

/// The scenes that `wanted` selects and whose names contain the value of `NORN_SCENE`.
pub fn chosen(wanted: impl Fn(&Play) -> bool) -> Vec<Play> {
    let part = std::env::var("NORN_SCENE").unwrap_or_default();
    PLAYS.iter().copied().filter(|play| wanted(play) && play.name.contains(&part)).collect()
}

macro_rules! plays {
    ($($kind:ident: $($module:ident::$scene:ident,)*;)*) => {
        /// All scenes.
        pub const PLAYS: &[Play] = &[$($(Play {
            name: stringify!($scene),
            kills: plays!(@kills $kind),
            simulated: |host| Box::pin($module::$scene(Scene::new(stringify!($scene), host))),
            real: |host| Box::pin($module::$scene(Scene::new(stringify!($scene), host))),
        },)*)*];
    };
    (@kills peaceful) => { false };
    (@kills deadly) => { true };
}

plays! {
    peaceful:
        claims::what_is_enqueued_is_read_claimed_and_completed_as_it_was,
        claims::an_enqueue_that_is_repeated_is_stored_once,
        claims::the_highest_priority_goes_first_and_then_the_oldest,
        claims::what_is_not_due_is_granted_to_nobody,
        claims::a_second_claim_finds_nothing_and_tokens_grow,
        claims::a_lease_that_ran_out_is_taken_over,
        claims::a_renewal_prolongs_and_never_shortens,
        claims::what_is_given_back_was_no_attempt,
        claims::tasks_are_held_at_once_and_end_in_any_order,
        claims::a_worker_chooses_how_long_it_waits_for_work,
        claims::a_claim_that_is_repeated_gets_the_same,
        claims::who_stops_waiting_takes_nothing,
        logs::a_log_is_seen_without_gaps_and_repeats_change_nothing,
        logs::the_next_worker_reads_on_in_the_logs_of_those_before,
        endings::a_completion_is_repeated_without_effect,
        endings::whoever_claimed_a_task_may_complete_it,
        endings::the_latest_holder_alone_completes_where_the_queue_says_so,
        endings::a_failed_attempt_waits_as_long_as_it_says,
        endings::a_queue_backs_off_and_gives_up,
        endings::what_is_invalid_is_dead_and_is_redriven_once,
        endings::what_dies_leaves_a_letter,
        endings::what_is_cancelled_is_over_for_its_holder_too,
        endings::what_was_cancelled_while_it_ran_and_is_done_shows_both,
        endings::what_is_purged_is_gone_and_what_is_open_stays,
        endings::who_waits_is_told_of_the_end,
        endings::what_a_completion_brings_is_there_once,
        effects::work_that_is_found_done_is_just_completed,
        effects::a_service_that_tells_repetitions_apart_has_one_effect,
        dependencies::a_task_waits_for_what_nobody_knows_yet,
        dependencies::a_queue_says_what_becomes_of_a_failed_dependency,
        groups::a_join_comes_behind_all_members_with_their_results,
        groups::a_group_that_is_generated_again_is_the_same,
        groups::one_failure_ends_a_group_that_says_so,
        groups::a_group_waits_for_the_groups_that_its_members_bring,
        keys::of_a_key_there_is_one_at_a_time,
        keys::of_a_key_there_are_as_many_as_a_queue_says,
        keys::a_unique_task_is_there_once_however_many_ask,
        sessions::a_session_that_ends_frees_all_at_once,
        sessions::a_session_that_is_not_renewed_is_over_for_good,
        sessions::sessions_that_claim_at_once_get_a_task_each,
        sessions::who_comes_and_goes_shares_all_work,
        queues::a_paused_queue_grants_nothing,
        queues::a_queue_of_random_order_gives_any,
        queues::no_more_is_held_at_once_than_a_queue_allows,
        queues::claims_come_no_faster_than_a_queue_allows,
        queues::a_full_queue_takes_no_more,
        queues::a_queue_is_full_by_bytes_too,
        queues::a_low_priority_does_not_starve_where_it_ages,
        queues::keys_take_turns_where_a_queue_is_fair,
        queues::a_queue_says_how_long_leases_are,
        queues::a_listing_tells_what_is_left,
        schedules::a_schedule_makes_one_task_for_each_time,
        transactions::tasks_change_together,
        transactions::tasks_with_one_key_change_together,
        transactions::nothing_changes_where_one_is_not_as_it_was,
        transactions::a_claim_depends_on_a_signal,
        watches::who_watches_a_queue_is_told_of_all_endings,
        watches::who_watches_a_group_is_told_of_its_members_and_its_join,
    ;
    deadly:
        nodes::claims_and_their_logs_outlive_each_node,
        nodes::of_a_key_there_is_one_whoever_leads,
        nodes::a_group_comes_to_its_end_whoever_is_killed,
        nodes::children_are_there_once_whoever_is_killed,
        nodes::a_session_outlives_each_node,
        nodes::what_is_granted_as_a_node_dies_is_told,
    ;
}
