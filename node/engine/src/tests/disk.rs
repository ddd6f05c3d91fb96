//! Nodes whose disks are full or slow.

use super::*;
use norn_model::host::{DiskReport, Room};
use norn_wire::error::{Cause, Retry};

impl Cluster {
    pub(super) fn report(&mut self, index: usize, room: Room, sync_us: u64) {
        self.report_spare(index, room, sync_us, 0);
    }

    pub(super) fn report_spare(&mut self, index: usize, room: Room, sync_us: u64, spare_bytes: u64) {
        self.queue.push_back((index, Event::Disk(DiskReport { room, sync_us, spare_bytes, bounded: false })));
        self.drain();
    }

    fn try_enqueue(&mut self, index: usize, tag: u32) -> Result<TaskId, norn_wire::Error> {
        let id = self.id(tag);
        let tasks = vec![NewTask { id, spec: spec(b"x", 0) }];
        match self.ask(index, Request::Enqueue { tasks, acks: Acks::Quorum }) {
            Response::Acked(mut results) => results.remove(0).map(|acked| acked.id),
            Response::Error(error) => Err(error),
            other => panic!("{other:?}"),
        }
    }

    /// Number of task partitions that a node leads.
    pub(super) fn led_by(&self, index: usize) -> usize {
        let replicas = self.nodes[index].partitions.values().filter(|replica| replica.id != PartitionId::METADATA);
        replicas.filter(|replica| replica.consensus.established()).count()
    }
}

#[test]
fn a_node_without_room_refuses_tasks_and_does_everything_else() {
    let mut cluster = Cluster::new(3);
    let before: Vec<TaskId> = (0..6).map(|number| cluster.enqueue(0, b"x", number << 21)).collect();
    cluster.report(1, Room::Short, 0);
    let error = cluster.try_enqueue(1, 1).expect_err("its disk is nearly full");
    assert_eq!((error.code, error.passes()), (ErrorCode::NoSpace, true));
    assert!(error.message.contains("node n1"), "{}", error.message);
    assert_eq!(error.cause, Some(Cause::TurnedAway), "it has asked nobody");
    let elsewhere = cluster.try_enqueue(0, 1).expect("two of three have room");
    let holder = &cluster.nodes[1].partitions[&cluster.nodes[1].partition_of(&elsewhere)];
    assert!(holder.store.task(&elsewhere).is_none(), "it does not take what others take");
    // Two such nodes leave no majority that can store anything.
    cluster.report(2, Room::Short, 0);
    let error = cluster.try_enqueue(0, 2).expect_err("one of three has room");
    assert_eq!(
        (error.code, error.retry),
        (ErrorCode::Unknown, Retry::Later),
        "one has stored it, and may tell the others"
    );
    let told = ["the disks of n1, n2 are nearly full", "repeat it"];
    assert!(told.iter().all(|words| error.message.contains(words)), "{}", error.message);
    for (number, _) in before.iter().enumerate() {
        let granted = cluster.claim(1 + number % 2, 30_000).remove(0);
        let renew = Request::Renew { items: vec![(granted.id, granted.token)], lease_ms: None };
        assert!(!matches!(cluster.ask(1, renew), Response::Error(_)));
        let done = cluster.complete(1, granted.id, granted.token);
        assert!(matches!(&done, Response::Acked(results) if results[0].is_ok()), "{done:?}");
    }
    // With space again, it catches up by itself.
    cluster.report(1, Room::Ample, 0);
    cluster.report(2, Room::Ample, 0);
    let id = cluster.try_enqueue(1, 3).expect("there is room again");
    cluster.run_until(|cluster| {
        let has =
            |id: &TaskId| cluster.nodes[1].partitions[&cluster.nodes[1].partition_of(id)].store.task(id).is_some();
        has(&id) && has(&elsewhere)
    });
}

/// Goal: an operator sees whether to free space on a disk, or to raise its setting.
#[test]
fn the_status_says_whether_a_disk_or_its_setting_is_why_tasks_are_refused() {
    let mut cluster = Cluster::new(3);
    for (room, bounded, shown) in [
        (Room::Short, false, vec!["disk_short"]),
        (Room::Short, true, vec!["disk_bounded", "disk_short"]),
        (Room::Ample, true, vec![]),
    ] {
        cluster.queue.push_back((1, Event::Disk(DiskReport { room, bounded, ..DiskReport::default() })));
        cluster.drain();
        let status = cluster.nodes[1].status(Default::default(), 0).expect("it has a cluster");
        let names = status.counters.iter().map(|(name, _)| name.as_str());
        let mut names: Vec<&str> = names.filter(|name| ["disk_short", "disk_bounded"].contains(name)).collect();
        names.sort_unstable();
        assert_eq!(names, shown, "{room:?}, {bounded}");
    }
}

#[test]
fn a_node_whose_last_room_is_gone_hands_over_and_stops() {
    let mut cluster = Cluster::new(3);
    cluster.run_until(|cluster| (0..3).all(|index| cluster.led_by(index) > 0));
    cluster.report(0, Room::Out, 0);
    cluster.run_until(|cluster| cluster.led_by(0) == 0);
    assert_eq!(cluster.led_by(1) + cluster.led_by(2), PARTITIONS as usize, "there was no moment without a leader");
}

/// Goal: leadership leaves a disk that is far slower than the others, and returns to it once that has been well for a while; neither a
/// slow disk among slow ones nor a slow moment moves anything.
#[test]
fn a_slow_disk_does_not_lead_for_as_long_as_it_is_slow() {
    let mut cluster = Cluster::new(3);
    let leads = |cluster: &Cluster| (0..3).map(|index| cluster.led_by(index)).collect::<Vec<usize>>();
    cluster.advance(8_000);
    let at_first = leads(&cluster);
    assert!(at_first.iter().all(|led| *led > 0), "{at_first:?}");
    for (own_us, others_us) in [(45_000, 1_000), (300_000, 200_000), (1_000, 0)] {
        (1..3).for_each(|other| cluster.report(other, Room::Ample, others_us));
        cluster.report(0, Room::Ample, own_us);
        cluster.advance(5_000);
        assert_eq!(leads(&cluster), at_first, "{own_us} against {others_us}");
    }
    (1..3).for_each(|other| cluster.report(other, Room::Ample, 3_000));
    cluster.report(0, Room::Ample, 400_000);
    cluster.advance(700);
    cluster.report(0, Room::Ample, 3_000);
    cluster.advance(3_000);
    assert_eq!(leads(&cluster), at_first, "it was a moment");
    cluster.report(0, Room::Ample, 400_000);
    cluster.run_until(|cluster| cluster.led_by(0) == 0);
    cluster.advance(20_000);
    assert_eq!((cluster.led_by(0), cluster.led_by(1) + cluster.led_by(2)), (0, PARTITIONS as usize));
    // Not even by an election: others are faster.
    cluster.down.insert(1);
    cluster.run_until(|cluster| cluster.led_by(2) == PARTITIONS as usize);
    cluster.restart(1);
    cluster.report(0, Room::Ample, 3_000);
    cluster.advance(8_000);
    assert_eq!(cluster.led_by(0), 0, "it must be well for a while");
    cluster.run_until(|cluster| leads(cluster) == at_first);
}

/// Where no other node can lead, a slow leader is better than none.
#[test]
fn a_slow_disk_leads_where_no_other_can() {
    let mut cluster = Cluster::new(3);
    (1..3).for_each(|other| cluster.report(other, Room::Ample, 1_000));
    cluster.report(0, Room::Ample, 400_000);
    cluster.run_until(|cluster| cluster.led_by(0) == 0);
    cluster.report(1, Room::Ample, 400_000);
    cluster.down.insert(2);
    cluster.run_until(|cluster| cluster.led_by(0) + cluster.led_by(1) == PARTITIONS as usize);
}
