//! Directories, ports and processes of the systems under test.

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Number of the user and group without rights that every system has. Peers run so when this program runs as root, as some refuse that.
const ORDINARY_USER: u32 = 65_534;
/// How long a process may take to end before it is killed.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// Time between two looks at something that is about to happen.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Last bytes of a server's output that an error shows.
const OUTPUT_BYTES_SHOWN: usize = 800;

/// Directory of one peer's data. Dropping it removes all in it.
#[derive(Debug)]
pub struct Place {
    directory: PathBuf,
    /// The user that the peer's processes run as, if that is another than the present one.
    user: Option<u32>,
}

impl Place {
    /// Makes an unused directory below another.
    pub fn new(parent: &Path, name: &str) -> Result<Place> {
        let directory = (0..)
            .map(|number| parent.join(format!("norn-bench-{}-{name}-{number}", std::process::id())))
            .find(|directory| !directory.exists())
            .context("numbers do not run out")?;
        fs::create_dir(&directory).with_context(|| directory.display().to_string())?;
        let user = (fs::metadata("/proc/self")?.uid() == 0).then_some(ORDINARY_USER);
        let place = Place { directory, user };
        place.hand_over(&place.directory)?;
        Ok(place)
    }

    /// A path in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Makes a directory that belongs to the peer's user.
    pub fn make_directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.path(name);
        fs::create_dir_all(&path)?;
        self.hand_over(&path)?;
        Ok(path)
    }

    /// Writes a file that belongs to the peer's user.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.path(name);
        fs::write(&path, text).with_context(|| path.display().to_string())?;
        self.hand_over(&path)?;
        Ok(path)
    }

    fn hand_over(&self, path: &Path) -> Result<()> {
        if let Some(user) = self.user {
            chown(path, Some(user), Some(user)).with_context(|| format!("giving {} away", path.display()))?;
        }
        Ok(())
    }

    /// A command as the peer's user that gets `signal` when this program ends, however that ends.
    fn command(&self, program: &Program, signal: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", signal]);
        if let Some(user) = self.user {
            let user = user.to_string();
            command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
        }
        command.arg("--").arg(&program.path).args(&program.arguments);
        command.env("HOME", &self.directory).envs(program.variables.iter().map(|(name, value)| (name, value)));
        command.current_dir(&self.directory).stdin(Stdio::null());
        command
    }

    /// Runs a program to its end; returns its output.
    pub fn run(&self, program: &Program) -> Result<String> {
        let output = self.command(program, "KILL").output().with_context(|| program.describe())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        ensure!(output.status.success(), "{}: {}{}", program.describe(), tail(&out), tail(&err));
        Ok(out)
    }

    /// Starts a server. It is ended by `signal`, as which it gets the end of this program, too.
    pub fn start(&self, name: &str, program: &Program, signal: Signal) -> Result<Server> {
        let path = self.path(&format!("{name}.out"));
        let output = File::create(&path)?;
        let mut command = self.command(program, if signal == Signal::QUIT { "QUIT" } else { "KILL" });
        command.stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().with_context(|| format!("{}: is setpriv there?", program.describe()))?;
        Ok(Server { name: name.to_owned(), child, output: path, signal })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.directory) {
            eprintln!("norn-bench: {} stays: {error}", self.directory.display());
        }
    }
}

/// A program with its arguments and variables.
#[derive(Debug, Clone)]
pub struct Program {
    path: PathBuf,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
}

impl Program {
    /// A program without arguments.
    pub fn new(path: impl Into<PathBuf>) -> Program {
        Program { path: path.into(), arguments: Vec::new(), variables: Vec::new() }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<'a>(mut self, arguments: impl IntoIterator<Item = &'a str>) -> Program {
        self.arguments.extend(arguments.into_iter().map(str::to_owned));
        self
    }

    /// Adds a path as an argument.
    #[must_use]
    pub fn path(mut self, path: &Path) -> Program {
        self.arguments.push(path.display().to_string());
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Program {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    fn describe(&self) -> String {
        format!("{} {}", self.path.display(), self.arguments.join(" "))
    }
}

/// A running process. Dropping it ends it.
#[derive(Debug)]
pub struct Server {
    name: String,
    child: Child,
    output: PathBuf,
    signal: Signal,
}

impl Server {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills the process at once.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Waits until `is_ready` gives something, unless the process ends or the time is over.
    pub async fn ready<T>(&mut self, patience: Duration, mut is_ready: impl AsyncFnMut() -> Result<T>) -> Result<T> {
        let deadline = Instant::now() + patience;
        loop {
            let error = match is_ready().await {
                Ok(ready) => return Ok(ready),
                Err(error) => error,
            };
            let ended = self.child.try_wait()?;
            let said = || tail(&fs::read_to_string(&self.output).unwrap_or_default());
            ensure!(ended.is_none(), "{} ended while it started: {}", self.name, said());
            ensure!(Instant::now() < deadline, "{} does not get ready: {error:#}: {}", self.name, said());
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    fn end(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        kill_process(Pid::from_child(&self.child), self.signal)?;
        let deadline = Instant::now() + END_PATIENCE;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                return self.kill();
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("norn-bench: {} may still run: {error:#}", self.name);
        }
    }
}

/// TCP ports that are free now. All are reserved before any is released.
pub fn free_ports(count: usize) -> Result<Vec<u16>> {
    let sockets = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<Vec<_>, _>>()?;
    sockets.iter().map(|socket| Ok(socket.local_addr()?.port())).collect()
}

fn tail(text: &str) -> String {
    let from = text.len().saturating_sub(OUTPUT_BYTES_SHOWN);
    let from = (from..text.len()).find(|place| text.is_char_boundary(*place)).unwrap_or(text.len());
    text[from..].trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_is_named_with_what_it_said() {
        let parent = tempdir();
        let place = Place::new(&parent, "failing").expect("a place");
        let program = Program::new("/bin/sh").args(["-c", "echo no such thing >&2; exit 3"]);
        let error = place.run(&program).expect_err("it fails").to_string();
        assert!(error.contains("/bin/sh") && error.contains("no such thing"), "{error}");
        drop(place);
        assert_eq!(fs::read_dir(&parent).expect("the parent").count(), 0);
        fs::remove_dir(&parent).expect("the parent goes");
    }

    #[tokio::test]
    async fn a_server_that_ends_at_once_is_not_waited_for() {
        let parent = tempdir();
        let place = Place::new(&parent, "ending").expect("a place");
        let program = Program::new("/bin/sh").args(["-c", "echo bad option"]);
        let mut server = place.start("ending", &program, Signal::KILL).expect("it starts");
        let waited = server.ready(Duration::from_secs(60), async || anyhow::bail!("not there")).await as Result<()>;
        let error = waited.expect_err("it has ended").to_string();
        assert!(error.contains("bad option"), "{error}");
        drop((server, place));
        fs::remove_dir(&parent).expect("the parent goes");
    }

    #[test]
    fn ports_differ() {
        let mut ports = free_ports(8).expect("ports");
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 8);
    }

    fn tempdir() -> PathBuf {
        let directory = std::env::temp_dir().join(format!("norn-bench-test-{}", rand::random::<u64>()));
        fs::create_dir(&directory).expect("a directory");
        directory
    }
}
