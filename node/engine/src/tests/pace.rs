//! When heartbeats are sent.

use super::*;
use norn_model::message::{PeerMessage, Peering};

/// A heartbeat: when it arrived, its sender and its receiver.
type Beat = (u64, usize, usize);

impl Cluster {
    /// Heartbeats that arrive within a time. Those from a node to one that it is cut off from are lost.
    fn beats(&mut self, for_ms: u64, cut: &[(usize, usize)]) -> Vec<Beat> {
        let mut beats = Vec::new();
        for _ in 0..for_ms {
            self.now.mono_us += 1_000;
            self.now.wall_ms += 1;
            for index in 0..self.nodes.len() {
                if self.nodes[index].next_wake().is_some_and(|at_us| at_us <= self.now.mono_us) {
                    self.queue.push_back((index, Event::Wake));
                }
            }
            while let Some((to, event)) = self.queue.front() {
                let sender = match event {
                    Event::Peer { from, message: PeerMessage::Peering(Peering::Heartbeat(_)) } => {
                        Some(from.0 as usize - 1)
                    }
                    _ => None,
                };
                let is_lost = sender.is_some_and(|from| cut.contains(&(from, *to)) || self.down.contains(to));
                beats.extend(sender.filter(|_| !is_lost).map(|from| (self.now.mono_us / 1_000, from, *to)));
                match is_lost {
                    true => drop(self.queue.pop_front()),
                    false => assert!(self.handle_next()),
                }
            }
        }
        beats
    }
}

/// Heartbeats from one node to another.
fn between(beats: &[Beat], from: usize, to: usize) -> Vec<u64> {
    beats.iter().filter(|beat| (beat.1, beat.2) == (from, to)).map(|beat| beat.0).collect()
}

/// Longest time between two heartbeats from one node to another.
fn longest_gap_ms(beats: &[Beat], from: usize, to: usize) -> u64 {
    let times = between(beats, from, to);
    times.windows(2).map(|pair| pair[1] - pair[0]).max().expect("there are some")
}

/// Nodes whose rounds begin at different times.
fn out_of_step() -> Cluster {
    let mut cluster = Cluster::new(3);
    for index in [0, 1] {
        cluster.down.insert(index);
        cluster.advance(20);
        cluster.down.clear();
        cluster.advance(7);
    }
    cluster
}

/// Goal: an idle node wakes rarely, as all heartbeats of a cluster fall together, and each pair exchanges one in each direction.
#[test]
fn nodes_that_hear_each_other_send_their_heartbeats_together() {
    let mut cluster = out_of_step();
    let heartbeat_ms = cluster.nodes[0].config.heartbeat_ms;
    let _ = cluster.beats(2 * heartbeat_ms, &[]);
    let beats = cluster.beats(20 * heartbeat_ms, &[]);
    let moments: BTreeSet<u64> = beats.iter().map(|beat| beat.0).collect();
    assert_eq!((moments.len(), beats.len()), (20, 20 * 6), "{beats:?}");
    assert!(moments.iter().zip(moments.iter().skip(1)).all(|(a, b)| b - a == heartbeat_ms), "{moments:?}");
}

/// Goal: a node waits for no other: whatever is silent, all others hear from it about as often.
#[test]
fn no_node_waits_for_the_heartbeat_of_a_silent_one() {
    let cuts: [&[(usize, usize)]; 4] = [&[(0, 2)], &[(2, 0)], &[(1, 2), (2, 1)], &[(0, 1), (0, 2), (1, 0), (2, 0)]];
    for cut in cuts {
        let mut cluster = out_of_step();
        let heartbeat_ms = cluster.nodes[0].config.heartbeat_ms;
        let _ = cluster.beats(10 * heartbeat_ms, cut);
        let beats = cluster.beats(20 * heartbeat_ms, cut);
        for (from, to) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
            if cut.contains(&(from, to)) {
                assert_eq!(between(&beats, from, to), [0; 0]);
                continue;
            }
            let gap_ms = longest_gap_ms(&beats, from, to);
            assert!(gap_ms <= heartbeat_ms + heartbeat_ms / 16 + 2, "{from} to {to} without {cut:?}: {gap_ms} ms");
        }
    }
}

/// Goal: while nodes fall out of step, no node is silent towards another for two intervals. Method: each node in turn stops.
#[test]
fn no_pair_is_silent_for_long_while_another_node_falls_silent() {
    for silent in 0..3 {
        let mut cluster = out_of_step();
        let heartbeat_ms = cluster.nodes[0].config.heartbeat_ms;
        let mut beats = cluster.beats(5 * heartbeat_ms, &[]);
        cluster.down.insert(silent);
        beats.extend(cluster.beats(20 * heartbeat_ms, &[]));
        cluster.down.clear();
        beats.extend(cluster.beats(20 * heartbeat_ms, &[]));
        let others: Vec<usize> = (0..3).filter(|index| *index != silent).collect();
        for (from, to) in [(others[0], others[1]), (others[1], others[0])] {
            let gap_ms = longest_gap_ms(&beats, from, to);
            assert!(gap_ms < 2 * heartbeat_ms, "{from} to {to} while {silent} is silent: {gap_ms} ms");
        }
    }
}
