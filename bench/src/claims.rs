//! Cost of a claim beside tasks that cannot be claimed: a thousand to a million blocked, delayed, claimed or finished ones.
//!
//! Two clusters run side by side, one with such tasks and one without, and the same load is measured on each in turns. So other
//! activity of the machine affects both alike. The results are relative: ratios of the two, as medians over the turns.

use crate::ClusterOptions;
use crate::backlog::Kind;
use crate::cluster::Cluster;
use crate::load::{self, Latencies, Outcome, Plan};
use crate::report::{Report, Row};
use crate::worker::Way;
use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use norn_wire::QueueName;
use std::time::Duration;

/// Ready tasks in both clusters, so that no claim finds nothing.
const STOCK: usize = 1_000;

/// Flags.
#[derive(Debug, Args)]
pub struct Options {
    /// How many tasks of a kind there are, from few to many.
    #[arg(long, value_delimiter = ',', default_value = "1000,10000,100000,1000000")]
    tasks: Vec<usize>,
    /// Kinds of these tasks; each kind has its own cluster.
    #[arg(long, value_delimiter = ',', value_enum, default_value = "blocked,delayed,claimed,finished")]
    kinds: Vec<Kind>,
    /// Clients, each with its own connection.
    #[arg(long, default_value_t = 4)]
    clients: usize,
    /// Turns for each number of tasks.
    #[arg(long, default_value_t = 5)]
    turns: usize,
    /// Measured seconds of a turn, at each of the two clusters.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Bytes of a task.
    #[arg(long, default_value_t = 64)]
    payload: usize,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// Names of the compared quantities.
const NAMES: [&str; 5] = ["claim_p50", "claim_p99", "complete_p50", "complete_p99", "cpu"];

/// One value for each name: latencies in milliseconds, and CPU seconds of the nodes for 10,000 lifecycles.
type Costs = [f64; NAMES.len()];

fn costs(outcome: &Outcome) -> Result<Costs> {
    let seen = &outcome.seen;
    ensure!(seen.completed > 0, "nothing was completed: {:?}", seen.failure_last);
    let at = |latencies: &Latencies, quantile| latencies.value_at_quantile(quantile) as f64 / 1e3;
    Ok([
        at(&seen.claim, 0.5),
        at(&seen.claim, 0.99),
        at(&seen.complete, 0.5),
        at(&seen.complete, 0.99),
        outcome.usage.cpu_seconds * 1e4 / seen.completed as f64,
    ])
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    if numbers.len() % 2 == 1 { numbers[middle] } else { f64::midpoint(numbers[middle - 1], numbers[middle]) }
}

/// Costs beside many tasks and beside none, in each turn.
struct Turns(Vec<(Costs, Costs)>);

impl Turns {
    /// Medians of the ratios.
    fn ratios(&self) -> Costs {
        std::array::from_fn(|place| median(self.0.iter().map(|(with, without)| with[place] / without[place]).collect()))
    }

    /// Medians of the costs beside none.
    fn without(&self) -> Costs {
        std::array::from_fn(|place| median(self.0.iter().map(|(_, without)| without[place]).collect()))
    }
}

/// Measures all kinds, one after the other, and prints a table in Markdown at the end.
pub async fn run(options: &Options, mut report: Report) -> Result<()> {
    let plan = Plan {
        clients: options.clients,
        batch: 1,
        payload_bytes: options.payload,
        duration: Duration::from_secs_f64(options.seconds),
    };
    ensure!(options.turns > 0 && options.tasks.is_sorted(), "turns are to be taken, and tasks come from few to many");
    let queue = QueueName::new("claims")?;
    let without = Cluster::start(&options.cluster).await?;
    load::fill(&without.over(Way::Quic), &queue, STOCK, options.payload).await?;
    let mut cells = Vec::new();
    for kind in &options.kinds {
        let with = Cluster::start(&options.cluster).await?;
        load::fill(&with.over(Way::Quic), &queue, STOCK, options.payload).await?;
        let mut there = 0;
        for tasks in &options.tasks {
            kind.fill(&with, &queue, tasks - there, options.payload).await?;
            there = *tasks;
            let mut turns = Turns(Vec::new());
            for turn in 0..options.turns {
                // Each cluster goes first in every other turn.
                let first =
                    load::run(&if turn % 2 == 0 { &with } else { &without }.over(Way::Quic), &queue, &plan).await?;
                let second =
                    load::run(&if turn % 2 == 0 { &without } else { &with }.over(Way::Quic), &queue, &plan).await?;
                let (with, without) = if turn % 2 == 0 { (first, second) } else { (second, first) };
                turns.0.push((costs(&with)?, costs(&without)?));
            }
            let name = kind.to_possible_value().expect("no kind is hidden").get_name().to_owned();
            let row = Row::default().text("kind", &name).count("tasks", *tasks as u64);
            let ratios = turns.ratios();
            report.row(NAMES.into_iter().zip(ratios).fold(row, |row, (name, ratio)| row.number(name, ratio, 2)))?;
            cells.push((name, *tasks, ratios, turns.without()));
        }
    }
    report.lines(&table(&cells))
}

/// A Markdown table of all ratios, and the absolute values that they refer to.
fn table(cells: &[(String, usize, Costs, Costs)]) -> Vec<String> {
    let mut lines = vec![
        "| kind | tasks | claim p50 | claim p99 | complete p50 | complete p99 | CPU of a lifecycle |".to_owned(),
        "|---|---|---|---|---|---|---|".to_owned(),
    ];
    for (kind, tasks, ratios, _) in cells {
        let ratios: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
        lines.push(format!("| {kind} | {tasks} | {} |", ratios.join(" | ")));
    }
    let [claim, claim_high, complete, complete_high, cpu] =
        std::array::from_fn(|place| median(cells.iter().map(|(.., without)| without[place]).collect()));
    lines.push(String::new());
    lines.push(format!(
        "beside none: claims {claim:.2} and {claim_high:.2} ms, completions {complete:.2} and {complete_high:.2} ms, {cpu:.1} CPU \
         seconds of the nodes for 10,000 lifecycles"
    ));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_turn_by_turn() {
        // A turn in which the machine was slow for both clusters gives the same ratio as the others.
        let turn = |slow: f64| ([2.0 * slow; NAMES.len()], [slow; NAMES.len()]);
        let turns = Turns(vec![turn(1.0), turn(100.0), turn(1.5)]);
        assert_eq!((turns.ratios(), turns.without()), ([2.0; NAMES.len()], [1.5; NAMES.len()]));
    }
}
