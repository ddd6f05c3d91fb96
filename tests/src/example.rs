//! The examples of the client library as programs that run against a cluster.

use crate::wait::{PATIENCE, within};
use crate::{Cluster, binary};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// A running example. Dropping it kills it.
#[derive(Debug)]
pub struct Example {
    child: Child,
    /// Reads the output, after a call of [`Example::lines`].
    listener: Option<JoinHandle<()>>,
}

/// The output of an example so far.
#[derive(Debug, Clone, Default)]
pub struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    fn add(&self, line: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    /// The lines that contain a text.
    pub fn with(&self, text: &str) -> Vec<String> {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().filter(|line| line.contains(text)).cloned().collect()
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        // The process may already have exited or been killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Example {
    /// Starts an example against a cluster.
    pub fn start(cluster: &Cluster, name: &str, arguments: &[impl AsRef<OsStr>]) -> Example {
        let certificates =
            "ca = \"certs/ca.crt\"\ncertificate = \"certs/client-tests.crt\"\nkey = \"certs/client-tests.key\"\n";
        // There are no faults here, so no call may end because the machine is slow.
        let patience = format!("request_timeout_ms = {}", PATIENCE.as_millis());
        let config = format!("addresses = {:?}\n{patience}\n{certificates}", cluster.addresses());
        let file = cluster.directory().join("client.toml");
        // Other running examples may be reading the file.
        if !file.is_file() {
            fs::write(file, config).expect("a file for the example");
        }
        let mut command = Command::new(binary::example(name));
        command.current_dir(cluster.directory()).args(["--client", "client.toml"]).args(arguments);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the example runs");
        Example { child, listener: None }
    }

    /// The example's output. Can be taken once.
    pub fn output(&mut self) -> ChildStdout {
        self.child.stdout.take().expect("it is taken once")
    }

    /// Pauses the example: SIGSTOP.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Resumes the example: SIGCONT.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Interrupts the example as Ctrl-C does: SIGINT.
    pub fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the process is there");
    }

    /// Collects the output from now on, line by line.
    pub fn lines(&mut self) -> Lines {
        let (lines, out) = (Lines::default(), BufReader::new(self.output()));
        let heard = lines.clone();
        let hear = move || out.lines().map_while(Result::ok).for_each(|line| heard.add(line));
        self.listener = Some(std::thread::spawn(hear));
        lines
    }

    /// Waits until the example has ended successfully and all its output has been read.
    pub fn succeed(mut self) {
        assert!(self.child.wait().expect("it ends").success());
        if let Some(listener) = self.listener.take() {
            listener.join().expect("hearing does not panic");
        }
    }

    /// All output until the example has ended successfully.
    pub async fn told(mut self) -> String {
        let out = self.output();
        let read = tokio::task::spawn_blocking(move || std::io::read_to_string(out).expect("it says text"));
        let told = within("the example ends", PATIENCE * 4, read).await.expect("reading does not panic");
        self.succeed();
        told
    }
}
