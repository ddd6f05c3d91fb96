//! Tasks that create more tasks, while a worker and a node are killed: the example that crawls pages with links between them.

use norn_tests::wait::{PATIENCE, eventually};
use norn_tests::{Cluster, Example};
use norn_wire::{QueueName, State};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const PAGES: usize = 60;
const WORKERS: usize = 4;

#[derive(Debug)]
struct Page {
    words: u64,
    links: BTreeSet<usize>,
}

fn name(page: usize) -> String {
    format!("page-{page}.html")
}

/// Pages with links in cycles, to themselves, and to missing pages. All pages are reachable from the first.
fn site(random: &mut StdRng) -> Vec<Page> {
    let page = |number: usize| {
        let mut links = BTreeSet::from([2 * number + 1, 2 * number + 2]);
        links.extend((0..random.random_range(0..6)).map(|_| random.random_range(0..PAGES)));
        Page { words: random.random_range(0..50), links }
    };
    (0..PAGES).map(page).collect()
}

fn write(folder: &Path, pages: &[Page]) {
    fs::create_dir(folder).expect("a folder for the pages");
    for (number, page) in pages.iter().enumerate() {
        let links: String = page.links.iter().map(|link| format!("<a href=\"{}\"></a>\n", name(*link))).collect();
        let text = format!("<html>{}{links}</html>", "word ".repeat(page.words as usize));
        fs::write(folder.join(name(number)), text).expect("a page");
    }
}

/// Expected output of the example: the words of each page, and the sum over it and the pages it links to.
fn expected(pages: &[Page]) -> BTreeMap<String, (u64, u64)> {
    let words = |number: usize| pages.get(number).map_or(0, |page| page.words);
    let area = |number: usize| {
        let links = pages.get(number).into_iter().flat_map(|page| &page.links).filter(|link| **link != number);
        words(number) + links.map(|link| words(*link)).sum::<u64>()
    };
    // Links of the last pages lead nowhere. Such pages have no words, but are read all the same.
    (0..2 * PAGES + 1).map(|number| (name(number), (words(number), area(number)))).collect()
}

// T4, O14, O16
/// One task reads each page, however many pages link to it, and no area is summed before its pages are read, though a worker and a
/// node are killed meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_crawl_example_reads_each_page_once() {
    let mut cluster = Cluster::start();
    let seed: u64 = rand::rng().random();
    eprintln!("draws from {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let pages = site(&mut random);
    write(&cluster.directory().join("site"), &pages);
    let mut workers: Vec<Example> = (0..WORKERS).map(|_| Example::start(&cluster, "crawl", &["work"])).collect();
    let submitter = Example::start(&cluster, "crawl", &["submit", "site", &name(0)]);
    let client = cluster.client().await;
    let queue = QueueName::new("crawl/pages").expect("a name");
    let done = || client.count(Some(queue.clone()), Some(State::Done));
    eventually("some pages are read", PATIENCE, || async { done().await.ok().filter(|done| *done >= 5) }).await;
    drop(workers.pop());
    cluster.kill(random.random_range(0..3));
    let told = submitter.told().await;
    let line = |line: &str| {
        let [words, area, page] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("WORDS AREA PAGE: {line}") };
        (page.to_owned(), (words.parse().expect("a number"), area.parse().expect("a number")))
    };
    let told: BTreeMap<String, (u64, u64)> = told.lines().map(line).collect();
    assert_eq!(told, expected(&pages));
    let all =
        eventually("all are counted", PATIENCE, || async { client.count(Some(queue.clone()), None).await.ok() }).await;
    assert_eq!(all, 2 * PAGES as u64 + 1, "one task for each page");
    drop(workers);
}
