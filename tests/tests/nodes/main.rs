//! Tests of real processes: nodes, the command line, examples. They spend most of their time waiting, and run in parallel.
//!
//! Each takes its ports from `norn_tests::ports`, keeps its files in its own directory, and waits with `norn_tests::wait`, so that
//! none depends on the others or on their order.

mod addresses;
mod at_length;
mod certificates;
mod children;
mod compacting;
mod crash;
mod crawl;
mod damage;
mod doctor;
mod doors_health;
mod doors_rest;
mod doors_skuld;
mod doors_tasks;
mod doors_taskstore;
mod forgetting;
mod groups;
mod hints;
mod hostile;
mod keys;
mod letters;
mod limits;
mod mapreduce;
mod memory;
mod network;
mod outcomes;
mod program;
mod prompt;
mod purging;
mod reach;
mod recover;
mod render;
mod restarts;
mod schedules;
mod seals;
mod several;
mod space;
mod store;
mod text_ids;
mod transactions;
mod uniques;
mod upgrade;
mod waits;
mod walkthrough;
mod watch;
mod worker;
