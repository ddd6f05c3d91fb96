//! Child processes of `norn dev`: started, restarted when they end, stopped together.
//!
//! Each child has a thread of its own that starts it and waits for it. The thread lives as long as the child, which
//! matters: the system tells a child about the death of the *thread* that started it.

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Before a child that ended is started again.
const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// How long children may take to stop.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// How to start a child.
#[derive(Debug, Clone)]
pub struct Plan {
    /// For people.
    pub name: String,
    /// After the program's own name.
    pub arguments: Vec<OsString>,
    /// Where its output goes.
    pub log: PathBuf,
}

/// A child ended although nobody asked it to.
#[derive(Debug)]
pub struct Ended {
    /// Which.
    pub name: String,
    /// How.
    pub how: String,
    /// Where its last words are.
    pub log: PathBuf,
}

#[derive(Debug)]
struct State {
    stopping: bool,
    running: Vec<Option<Pid>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All children.
#[derive(Debug)]
pub struct Children {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Children {
    /// Starts them. Ends of children are told on the channel, for as long as anybody listens.
    pub fn start(plans: &[Plan]) -> io::Result<(Children, mpsc::UnboundedReceiver<Ended>)> {
        let program = std::env::current_exe()?;
        let state = State { stopping: false, running: vec![None; plans.len()] };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let (ended, ends) = mpsc::unbounded_channel();
        let mut children = Children { shared, threads: Vec::new() };
        for (place, plan) in plans.iter().enumerate() {
            let keeper = Keeper {
                place,
                plan: plan.clone(),
                program: program.clone(),
                shared: Arc::clone(&children.shared),
                ended: ended.clone(),
            };
            let name = format!("keeper-{}", plan.name);
            children.threads.push(std::thread::Builder::new().name(name).spawn(move || keeper.run())?);
        }
        Ok((children, ends))
    }

    /// Process numbers, in the order of the plans; absent while a child is down.
    pub fn processes(&self) -> Vec<Option<i32>> {
        self.shared.lock().running.iter().map(|pid| pid.map(Pid::as_raw_pid)).collect()
    }

    /// Asks all children to stop, waits, and ends those that do not. Blocks for a few seconds at most.
    pub fn stop(mut self) {
        self.signal_all(Signal::TERM);
        let deadline = Instant::now() + STOP_PATIENCE;
        let mut state = self.shared.lock();
        while state.running.iter().any(Option::is_some) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(state);
        self.signal_all(Signal::KILL);
        for thread in self.threads.drain(..) {
            // A keeper that panicked has said so itself.
            let _ = thread.join();
        }
    }

    fn signal_all(&self, signal: Signal) {
        let mut state = self.shared.lock();
        state.stopping = true;
        // A number is taken off the list before its process is reaped, so it cannot belong to anybody else.
        for pid in state.running.iter().flatten() {
            if let Err(error) = kill_process(*pid, signal) {
                eprintln!("warning: cannot signal process {}: {error}", pid.as_raw_pid());
            }
        }
        drop(state);
        self.shared.changed.notify_all();
    }
}

/// Keeps one child alive.
struct Keeper {
    place: usize,
    plan: Plan,
    program: PathBuf,
    shared: Arc<Shared>,
    ended: mpsc::UnboundedSender<Ended>,
}

impl Keeper {
    fn run(self) {
        loop {
            let Some(child) = self.spawn() else { return };
            let how = match child {
                Ok(child) => match self.wait(child) {
                    Ok(status) => status.to_string(),
                    Err(error) => format!("cannot be waited for: {error}"),
                },
                Err(error) => format!("cannot be started: {error}"),
            };
            let mut state = self.shared.lock();
            if state.stopping {
                return;
            }
            let name = &self.plan.name;
            eprintln!("warning: {name} ended ({how}); starting it again in {RESTART_PAUSE:?}");
            let _ = self.ended.send(Ended { name: name.clone(), how, log: self.plan.log.clone() });
            let deadline = Instant::now() + RESTART_PAUSE;
            while !state.stopping && Instant::now() < deadline {
                let left = deadline.saturating_duration_since(Instant::now());
                state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }

    /// Starts the child, unless all are being stopped.
    fn spawn(&self) -> Option<io::Result<Child>> {
        let mut state = self.shared.lock();
        if state.stopping {
            return None;
        }
        let child = self.command().and_then(|mut command| command.spawn());
        state.running[self.place] = child.as_ref().ok().map(Pid::from_child);
        Some(child)
    }

    fn command(&self) -> io::Result<Command> {
        let log = OpenOptions::new().create(true).append(true).open(&self.plan.log);
        let log = log.map_err(|error| io::Error::other(format!("{}: {error}", self.plan.log.display())))?;
        let mut command = Command::new(&self.program);
        command
            .args(&self.plan.arguments)
            .arg("--die-with-parent")
            .arg(std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Ctrl-C at the terminal is for the person's command, not for the nodes.
            .process_group(0);
        Ok(command)
    }

    fn wait(&self, mut child: Child) -> io::Result<ExitStatus> {
        let pid = Pid::from_child(&child);
        loop {
            match waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(_) => break,
            }
        }
        let mut state = self.shared.lock();
        state.running[self.place] = None;
        let status = child.wait();
        drop(state);
        self.shared.changed.notify_all();
        status
    }
}
