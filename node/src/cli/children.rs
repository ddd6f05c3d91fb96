//! Child processes of `norn dev`: started, restarted when they end, stopped together.
//!
//! Each child has a thread of its own that starts it and waits for it. The thread must live as long as the child, because the system
//! notifies a child of the death of the *thread* that started it.

use norn_node::runtime::server::STOP_TIME_MAX;
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

/// Pause before a child that ended is restarted.
const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// Longest wait for children to stop: what a node needs for its callers and its leaderships, and a moment for its disk.
const STOP_PATIENCE: Duration = STOP_TIME_MAX.saturating_add(Duration::from_secs(2));

/// How to start a child.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Name, for people.
    pub name: String,
    /// Arguments after the program's name.
    pub arguments: Vec<OsString>,
    /// File for its output.
    pub log: PathBuf,
}

/// End of a child that was not asked to stop.
#[derive(Debug)]
pub struct Ended {
    /// Name of the child.
    pub name: String,
    /// How it ended.
    pub how: String,
    /// File with its last output.
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
    /// Starts the children. Their ends are sent on the channel as long as it has a receiver.
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

    /// Returns process numbers, in the order of the plans; `None` while a child is down.
    pub fn processes(&self) -> Vec<Option<i32>> {
        self.shared.lock().running.iter().map(|pid| pid.map(Pid::as_raw_pid)).collect()
    }

    /// Asks all children to stop, waits, and kills those that do not. Blocks for a few seconds at most.
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
            // A keeper that panicked has reported that itself.
            let _ = thread.join();
        }
    }

    fn signal_all(&self, signal: Signal) {
        let mut state = self.shared.lock();
        state.stopping = true;
        // A number is removed from the list before its process is reaped, so it cannot belong to another process.
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
            // Ctrl-C at the terminal is meant for the person's command, not for the nodes.
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
