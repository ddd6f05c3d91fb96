//! A web crawl: reads pages that link to each other, each once, with any number of workers.
//!
//! A *page* task reads a page, and its completion enqueues a page task for each link. The ids of those follow from the names of their
//! pages (`TaskId::named`), so that a page with many links to it is one task, whichever task finds it first. The completion also
//! enqueues an *area* task: it waits for the pages to which this one links (`after`), whether or not these have been found yet, and
//! adds up their words. Pages may link in a circle; no task waits for itself, as page tasks do not wait. There is no coordinator.
//!
//! ```text
//! norn dev                                                   # a cluster to try things with
//! cargo run --release -p norn-client --example crawl -- work                     # as often as you like, and kill any of them
//! cargo run --release -p norn-client --example crawl -- submit SITE index.html   # prints `WORDS AREA PAGE` of each page
//! ```

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand};
use norn_client::client::{Client, ClientConfig};
use norn_client::session::Draft;
use norn_client::wire::limits::CHILDREN_MAX;
use norn_client::wire::{ErrorCode, QueueName, State, TaskId};
use norn_client::worker::{Context, Outcome, Worker};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

const PAGES: &str = "crawl/pages";
const AREAS: &str = "crawl/areas";
/// Greatest number of links of a page: its completion enqueues a task for each, and one for its area.
const LINKS_MAX: usize = CHILDREN_MAX - 1;
/// Silence of a worker after which another one gets its task.
const LEASE: Duration = Duration::from_secs(5);
/// Duration of one call of an endless wait.
const WAIT: Duration = Duration::from_secs(60);
/// Pause before a read is repeated of a task that is about to be enqueued.
const SOON: Duration = Duration::from_millis(100);

#[derive(Debug, Parser)]
struct Arguments {
    /// What `norn dev` or an operator has written for clients
    #[arg(long, default_value = ".norn/client.toml")]
    client: PathBuf,
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Works until it is interrupted
    Work,
    /// Has all pages read that can be reached from one, and prints the words of each, and of it and those to which it links
    Submit {
        /// Folder that has the pages, the same for all workers
        site: PathBuf,
        /// Where to begin
        page: String,
    },
}

/// Payload of a task.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Job {
    site: PathBuf,
    /// Distinguishes this crawl from others: its start, in milliseconds since the Unix epoch.
    crawl_ms: u64,
    page: String,
}

/// Result of a page task.
#[derive(Debug, Serialize, Deserialize)]
struct Found {
    words: u64,
    links: Vec<String>,
}

impl Job {
    fn of(context: &Context) -> Result<Job, Outcome> {
        serde_json::from_slice(context.payload()).map_err(|error| Outcome::Invalid { reason: error.to_string() })
    }

    /// The same work for another page.
    fn on(&self, page: &str) -> Job {
        Job { page: page.to_owned(), ..self.clone() }
    }

    fn id(&self, queue: &str) -> TaskId {
        TaskId::named(self.crawl_ms, format!("{queue} {}", self.page).as_bytes())
    }

    fn draft(&self, queue: &str) -> Draft {
        let payload = serde_json::to_vec(self).expect("names are JSON");
        Draft::new(QueueName::new(queue).expect("a good name"), payload).id(self.id(queue))
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let client = Client::connect(ClientConfig::load(&arguments.client)?).await?;
    match arguments.role {
        Role::Work => work(client).await,
        Role::Submit { site, page } => submit(&client, site, page).await,
    }
}

async fn work(client: Client) -> Result<()> {
    let name = format!("crawl {}", std::process::id());
    let worker = Worker::new(client).name(name).lease(LEASE).handler(PAGES, page).handler(AREAS, area);
    let interrupted = async { tokio::signal::ctrl_c().await.expect("signals can be waited for") };
    let summary = worker.run_until(interrupted).await?;
    eprintln!("{} tasks done, {} given back, {} lost to others", summary.done, summary.released, summary.lost);
    Ok(())
}

async fn page(context: Context) -> Outcome {
    let job = match Job::of(&context) {
        Ok(job) => job,
        Err(outcome) => return outcome,
    };
    let text = match std::fs::read(job.site.join(&job.page)) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        // A link to a page that does not exist.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Outcome::Retry { reason: format!("{}: {error}", job.page) },
    };
    let links = links(&text);
    if links.len() > LINKS_MAX {
        return Outcome::Invalid { reason: format!("{} has {} links: more than {LINKS_MAX}", job.page, links.len()) };
    }
    let mut area = job.draft(AREAS);
    for link in &links {
        let job = job.on(link);
        area.spec.after.push(job.id(PAGES));
        context.spawn(job.draft(PAGES));
    }
    context.spawn(area);
    done(&Found { words: words(&text), links })
}

async fn area(context: Context) -> Outcome {
    let job = match Job::of(&context) {
        Ok(job) => job,
        Err(outcome) => return outcome,
    };
    match sum(context.client(), &job).await {
        Ok(words) => done(&words),
        Err(error) => Outcome::Retry { reason: format!("{error:#}") },
    }
}

async fn sum(client: &Client, job: &Job) -> Result<u64> {
    let found: Found = result(client, job.id(PAGES)).await?;
    let mut words = found.words;
    for link in found.links.iter().filter(|link| **link != job.page) {
        words += result::<Found>(client, job.on(link).id(PAGES)).await?.words;
    }
    Ok(words)
}

fn done(result: &impl Serialize) -> Outcome {
    Outcome::Done(Some(serde_json::to_vec(result).expect("numbers and names are JSON")))
}

/// The names of other pages in quotes after `href=`, each once. Only plain ones: no page is outside the site.
fn links(text: &str) -> Vec<String> {
    let quoted = text.split("href=\"").skip(1).filter_map(|rest| rest.split_once('"'));
    let plain = |name: &&str| {
        !name.is_empty()
            && !name.starts_with('.')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    let mut links: Vec<String> = quoted.map(|(name, _)| name).filter(plain).map(str::to_owned).collect();
    links.sort_unstable();
    links.dedup();
    links
}

/// Number of words: text between spaces, outside of tags.
fn words(text: &str) -> u64 {
    let outside = text.split('<').map(|part| part.split_once('>').map_or(part, |(_, outside)| outside));
    outside.map(|part| part.split_whitespace().count() as u64).sum()
}

async fn submit(client: &Client, site: PathBuf, page: String) -> Result<()> {
    let site = site.canonicalize().with_context(|| site.display().to_string())?;
    let crawl_ms = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_millis() as u64;
    let start = Job { site, crawl_ms, page };
    client.enqueue(start.draft(PAGES)).await?;
    let mut seen = BTreeSet::from([start.page.clone()]);
    let mut open = vec![start];
    let mut all = Vec::new();
    while let Some(job) = open.pop() {
        let found: Found = result(client, job.id(PAGES)).await?;
        for link in found.links {
            if seen.insert(link.clone()) {
                open.push(job.on(&link));
            }
        }
        all.push((job, found.words));
    }
    all.sort_unstable_by(|(one, _), (other, _)| one.page.cmp(&other.page));
    let mut out = std::io::stdout().lock();
    for (job, words) in all {
        let area: u64 = result(client, job.id(AREAS)).await?;
        writeln!(out, "{words} {area} {}", job.page)?;
    }
    Ok(())
}

/// The result of a task once it is done. The task may not exist yet: it is enqueued by a completion.
async fn result<T: DeserializeOwned>(client: &Client, id: TaskId) -> Result<T> {
    loop {
        match client.wait(id, WAIT).await {
            Ok(task) if task.state == State::Done => {
                let result = task.result.with_context(|| format!("task {id} has no result"))?;
                return Ok(serde_json::from_slice(&result)?);
            }
            Ok(task) if matches!(task.state, State::Dead | State::Cancelled) => {
                bail!("task {id} is {}: {}", task.state, task.reason.unwrap_or_default())
            }
            Ok(_) => {}
            Err(error) if error.passes() || error.code == ErrorCode::NotFound => tokio::time::sleep(SOON).await,
            Err(error) => return Err(error.into()),
        }
    }
}
