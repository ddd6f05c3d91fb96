//! The command line as a script uses it.

use crate::binary;
use crate::terminal::Terminal;
use crate::wait::{found, received};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;

/// Output of a finished command.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Exit code; absent if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Answer {
    /// The lines of standard output, each a JSON value.
    pub fn lines(&self) -> Vec<Value> {
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {self:?}"));
        self.stdout.lines().map(parse).collect()
    }

    /// The only line of standard output, a JSON object.
    pub fn object(&self) -> Value {
        let lines = self.lines();
        assert!(lines.len() == 1 && lines[0].is_object(), "not one object: {self:?}");
        lines.into_iter().next().expect("there is one")
    }

    /// The same answer, after asserting that the command succeeded.
    pub fn done(&self) -> &Answer {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// Asserts the exit code of a JSON command that must fail, and returns its error object.
    pub fn refusal(&self, code: i32) -> Value {
        assert_eq!(self.code, Some(code), "{self:?}");
        let error = self.object()["error"].clone();
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{self:?}");
        assert!(matches!(error["retry"].as_str(), Some("now" | "later" | "never")), "{self:?}");
        error
    }
}

/// Runs verbs against a cluster.
#[derive(Debug, Clone)]
pub struct Cli {
    directory: PathBuf,
    addresses: Vec<String>,
    certificates: PathBuf,
    program: Option<PathBuf>,
    timeout: Option<&'static str>,
}

impl Cli {
    /// Commands run in `directory` and connect to `addresses`.
    pub fn new(directory: &Path, addresses: Vec<String>, certificates: &Path) -> Cli {
        let (directory, certificates) = (directory.to_owned(), certificates.to_owned());
        Cli { directory, addresses, certificates, program: None, timeout: None }
    }

    /// The same with another program than the one built beside the tests.
    #[must_use]
    pub fn of_program(self, program: Option<PathBuf>) -> Cli {
        Cli { program, ..self }
    }

    /// The same for tests without faults, with a timeout long enough that no call fails because the machine is slow.
    #[must_use]
    pub fn patient(self) -> Cli {
        Cli { timeout: Some("60s"), ..self }
    }

    /// The program with its addresses, and with a timeout unless the verb has its own.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = plain(self.program.as_deref().unwrap_or_else(|| binary::norn()), &self.directory);
        command.arg("--connect").arg(self.addresses.join(",")).arg("--certs").arg(&self.certificates);
        if let Some(timeout) = self.timeout.filter(|_| !arguments.contains(&"--timeout")) {
            command.args(["--timeout", timeout]);
        }
        command.args(arguments);
        command
    }

    /// The working directory of commands.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Runs a verb.
    pub fn run(&self, arguments: &[&str]) -> Answer {
        self.run_with(arguments, b"")
    }

    /// Runs a verb with `--json`.
    pub fn json(&self, arguments: &[&str]) -> Answer {
        self.run(&[&["--json"], arguments].concat())
    }

    /// Claims with `--json`. Repeats the claim while some partition is unavailable, for example just after its leader stalled.
    pub fn claim(&self, arguments: &[&str]) -> Answer {
        let asked = |answer: &Answer| answer.code != Some(3);
        found("all partitions can be asked", || Some(self.json(&[&["claim"], arguments].concat())).filter(asked))
    }

    /// Runs a verb with these bytes on standard input.
    pub fn run_with(&self, arguments: &[&str], input: &[u8]) -> Answer {
        finish(&mut self.command(arguments), input)
    }

    /// Runs a verb whose standard output accepts nothing, like a full disk.
    pub fn unheard(&self, arguments: &[&str]) -> Answer {
        let full = OpenOptions::new().write(true).open("/dev/full").expect("it is a device of the system");
        let mut command = self.command(arguments);
        command.stdin(Stdio::null()).stdout(full).stderr(Stdio::piped());
        answer(command.spawn().expect("the binary runs"))
    }

    /// Starts a verb with `--json`, which runs until it ends or is stopped.
    pub fn begin(&self, arguments: &[&str]) -> Begun {
        let mut command = self.command(&[&["--json"], arguments].concat());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Begun(Some(command.spawn().expect("the binary runs")))
    }

    /// Runs a verb at a terminal, as a person would.
    pub fn terminal(&self, arguments: &[&str]) -> Terminal {
        Terminal::start(&mut self.command(arguments))
    }

    /// Opens a REPL on a pipe that answers each command with one line of JSON.
    pub fn repl(&self) -> Repl {
        Repl::start(&mut self.command(&["repl", "--json"]))
    }
}

/// Runs a command that needs no cluster.
pub fn run(directory: &Path, arguments: &[&str]) -> Answer {
    run_program(binary::norn(), directory, arguments)
}

/// The same with another program.
pub fn run_program(program: &Path, directory: &Path, arguments: &[&str]) -> Answer {
    finish(plain(program, directory).args(arguments), b"")
}

fn plain(program: &Path, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(directory).env_remove("NORN_CLIENT").env("HOME", directory);
    command
}

/// A running command. Dropping it kills the command.
#[derive(Debug)]
pub struct Begun(Option<Child>);

impl Begun {
    /// Starts a command that needs no cluster.
    pub fn of(directory: &Path, arguments: &[&str]) -> Begun {
        let mut command = plain(binary::norn(), directory);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Begun(Some(command.spawn().expect("the binary runs")))
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let child = self.0.as_ref().expect("it runs");
        kill_process(Pid::from_child(child), signal).expect("the process is there");
    }

    /// Waits for the command to end, and returns its output.
    pub fn end(mut self) -> Answer {
        answer(self.0.take().expect("it runs"))
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn finish(command: &mut Command, input: &[u8]) -> Answer {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    let mut stdin = child.stdin.take().expect("it is a pipe");
    // A command that does not read its input may have exited already. Input here either fits a pipe's buffer or is read.
    let _ = stdin.write_all(input);
    drop(stdin);
    answer(child)
}

fn answer(child: Child) -> Answer {
    let output = child.wait_with_output().expect("the command ends");
    Answer {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("output is text"),
        stderr: String::from_utf8(output.stderr).expect("diagnostics are text"),
    }
}

/// `norn repl --json` on a pipe: one command a line, one answer a line.
#[derive(Debug)]
pub struct Repl {
    child: Child,
    input: Option<ChildStdin>,
    answers: mpsc::Receiver<String>,
}

impl Repl {
    /// Opens one without a cluster, with these flags.
    pub fn with(directory: &Path, flags: &[&str]) -> Repl {
        Repl::start(plain(binary::norn(), directory).args(flags).args(["repl", "--json"]))
    }

    /// Kills it as a power failure would: SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    fn start(command: &mut Command) -> Repl {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let output = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let (sender, answers) = mpsc::channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Repl { input: child.stdin.take(), child, answers }
    }

    /// Sends a command, and returns its answer: one line of JSON.
    pub fn ask(&mut self, command: &str) -> Value {
        let input = self.input.as_mut().expect("it is open");
        input.write_all(format!("{command}\n").as_bytes()).expect("the REPL reads");
        let line = received(&format!("an answer to {command:?}"), &self.answers);
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in the answer to {command:?}: {line}"))
    }

    /// The rows in a command's answer.
    pub fn rows(&mut self, command: &str) -> Vec<Value> {
        match self.ask(command) {
            Value::Array(rows) => rows,
            other => panic!("no array in answer to {command:?}: {other}"),
        }
    }

    /// The tasks that a claim returns. Repeats the claim while some partition is unavailable.
    pub fn claim(&mut self, arguments: &str) -> Vec<Value> {
        let command = format!("claim {arguments}");
        match found("all partitions can be asked", || {
            Some(self.ask(&command)).filter(|answer| answer["error"]["code"] != "unavailable")
        }) {
            Value::Array(tasks) => tasks,
            other => panic!("no array in answer to {command:?}: {other}"),
        }
    }

    /// The error of a command that must fail.
    pub fn refusal(&mut self, command: &str) -> Value {
        let answer = self.ask(command);
        assert!(answer["error"]["code"].is_string(), "{command:?} must fail: {answer}");
        answer["error"].clone()
    }

    /// Closes the input, and returns the exit code. Asserts that there is no further output.
    pub fn finish(mut self) -> Option<i32> {
        drop(self.input.take());
        let status = self.child.wait().expect("the REPL ends");
        assert_eq!(self.answers.iter().next(), None, "a line too much");
        status.code()
    }
}

impl Drop for Repl {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
