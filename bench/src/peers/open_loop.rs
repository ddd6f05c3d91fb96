//! Lifecycles that begin at times which are drawn beforehand, however long those before them take. Latencies count from these times, so
//! that a slow answer also counts for what had to wait behind it.

use super::peer::Peer;
use super::table::{Measured, Value};
use crate::load::{self, Latencies, Payloads};
use crate::system::Client;
use anyhow::{Context, Result, ensure};
use norn_wire::QueueName;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;

/// Lifecycles before the measurement.
const WARM_UP: Duration = Duration::from_secs(1);
/// Most lifecycles of one measurement.
const ARRIVALS_MAX: usize = 10_000_000;

/// Latencies of one client.
struct Seen {
    enqueue: Latencies,
    whole: Latencies,
    failures: u64,
}

impl Seen {
    fn new() -> Result<Seen> {
        Ok(Seen { enqueue: load::latencies()?, whole: load::latencies()?, failures: 0 })
    }
}

/// Measures lifecycles at this rate, over as many connections as there are clients.
pub async fn measure(peer: &dyn Peer, rate: f64, plan: &load::Plan) -> Result<Measured> {
    let queue = QueueName::new("open-loop")?;
    peer.prepare(&queue).await?;
    load::fill(peer, &queue, 1_000.max(4 * plan.clients), plan.payload_bytes).await?;
    peer.filled().await?;
    let (sender, arrivals) = unbounded_channel();
    let arrivals = Arc::new(Mutex::new(arrivals));
    let mut connected = Vec::new();
    for number in 0..plan.clients {
        connected.push(peer.connect(number, &queue).await?);
    }
    let mut clients = JoinSet::new();
    for client in connected {
        let payloads = Payloads::new(plan.payload_bytes);
        clients.spawn(work(client, payloads, arrivals.clone(), Instant::now() + WARM_UP, Seen::new()?));
    }
    let times = arrival_times(rate, WARM_UP + plan.duration)?;
    // A timer of the runtime would be late by up to a millisecond.
    let clock = std::thread::spawn(move || {
        let begin = Instant::now();
        for time in times {
            let at = begin + time;
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            if sender.send(at).is_err() {
                return;
            }
        }
    });
    let mut all = Seen::new()?;
    while let Some(seen) = clients.join_next().await {
        let seen = seen?;
        all.enqueue.add(seen.enqueue)?;
        all.whole.add(seen.whole)?;
        all.failures += seen.failures;
    }
    clock.join().ok().context("the clock of the arrivals has failed")?;
    ensure!(!all.whole.is_empty(), "nothing was completed");
    let at = |latencies: &Latencies, quantile| latencies.value_at_quantile(quantile) as f64 / 1e3;
    let values = vec![
        Value::plain("offered_per_s", rate, 0),
        Value::compared("lifecycle_p50_ms", at(&all.whole, 0.5), 2),
        Value::compared("lifecycle_p99_ms", at(&all.whole, 0.99), 2),
        Value::compared("lifecycle_p999_ms", at(&all.whole, 0.999), 2),
        Value::plain("enqueue_p50_ms", at(&all.enqueue, 0.5), 2),
        Value::plain("enqueue_p99_ms", at(&all.enqueue, 0.99), 2),
        Value::plain("enqueue_p999_ms", at(&all.enqueue, 0.999), 2),
        Value::plain("completed", all.whole.len() as f64, 0),
        Value::plain("failures", all.failures as f64, 0),
    ];
    Ok(Measured { work: "half of its peak".to_owned(), system: String::new(), turn: 0, values })
}

/// Times of independent arrivals at a mean rate.
fn arrival_times(rate: f64, duration: Duration) -> Result<Vec<Duration>> {
    ensure!(rate.is_finite() && rate > 0.0, "the rate of arrivals is {rate}");
    let (mut times, mut time) = (Vec::new(), 0.0);
    while times.len() < ARRIVALS_MAX {
        let uniform: f64 = rand::random();
        time -= (1.0 - uniform).ln() / rate;
        if time >= duration.as_secs_f64() {
            break;
        }
        times.push(Duration::from_secs_f64(time));
    }
    Ok(times)
}

/// Takes one arrival after the other until there are no more.
async fn work(
    mut client: Box<dyn Client>,
    payloads: Payloads,
    arrivals: Arc<Mutex<UnboundedReceiver<Instant>>>,
    counts_from: Instant,
    mut seen: Seen,
) -> Seen {
    loop {
        let Some(arrived) = arrivals.lock().await.recv().await else { break };
        let failures = client.enqueue(&[payloads.numbered(rand::random())]).await;
        let enqueued = Instant::now();
        seen.failures += failures.len() as u64;
        let claimed = client.claim(1).await;
        if !matches!(claimed, Ok(tasks) if !tasks.is_empty()) {
            seen.failures += 1;
            continue;
        }
        let (_, failures) = client.complete().await;
        seen.failures += failures.len() as u64;
        if arrived >= counts_from {
            load::record(&mut seen.enqueue, enqueued - arrived);
            load::record(&mut seen.whole, arrived.elapsed());
        }
    }
    client.close().await;
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_have_the_rate_that_was_asked_for() {
        let times = arrival_times(1_000.0, Duration::from_secs(10)).expect("times");
        assert!((9_000..11_000).contains(&times.len()), "{}", times.len());
        assert!(times.is_sorted() && times.last() < Some(&Duration::from_secs(10)));
        arrival_times(0.0, Duration::from_secs(1)).expect_err("no rate");
        arrival_times(f64::NAN, Duration::from_secs(1)).expect_err("no number");
    }
}
