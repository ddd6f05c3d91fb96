//! `norn completions` and `norn man`: what the shell and `man` know of the commands, made of the parser's own tree.

use super::failure::{Failure, Outcome};
use super::{Arguments, Global, LOG_GROUP, VERSION, told, write_line};
use clap::{Arg, ArgGroup, Args, Command, CommandFactory};
use clap_complete::{Shell, generate};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::fs::Permissions;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Name of the program.
const PROGRAM: &str = "norn";
/// Permissions of a page: all users read it.
const PAGE_MODE: u32 = 0o644;

/// Arguments of `norn completions`.
#[derive(Debug, Args)]
pub struct CompletionsOptions {
    /// Shell that reads the script.
    #[arg(value_name = "SHELL", value_enum)]
    shell: Shell,
}

/// Arguments of `norn man`.
#[derive(Debug, Args)]
pub struct ManOptions {
    /// Directory for the pages; created if need be. Pages of the same name are replaced.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Prints a script.
pub fn completions(options: &CompletionsOptions, global: &Global) -> Outcome {
    let script = script(options.shell);
    let written = match global.json {
        true => write_line(&serde_json::json!({ "script": script }).to_string()),
        false => {
            let mut out = io::stdout().lock();
            out.write_all(script.as_bytes()).and_then(|()| out.flush())
        }
    };
    told(written, None)
}

/// Writes the pages.
pub fn man(options: &ManOptions, global: &Global) -> Outcome {
    let directory = &options.directory;
    let pages = pages()?;
    write_pages(directory, &pages)?;
    let (count, shown) = (pages.len(), directory.display());
    let effect = format!("wrote {count} pages into {shown}");
    let line = match global.json {
        true => serde_json::json!({ "pages": count, "directory": directory }).to_string(),
        false => effect.clone(),
    };
    told(write_line(&line), Some(&effect)).map(|_| ExitCode::SUCCESS)
}

/// The commands as people type them, without what they are not shown. The parser has two commands named `log`, under different names; a
/// shell and `man` need one.
fn tree() -> Command {
    let parsed = Arguments::command();
    let group = parsed.find_subcommand(LOG_GROUP).expect("the parser has the group").clone();
    let tree = shown(&parsed).version(VERSION.as_str()).disable_help_subcommand(true);
    tree.mut_subcommand("log", |log| {
        let commands = group.get_subcommands().map(shown);
        log.subcommands(commands).subcommand_negates_reqs(true).args_conflicts_with_subcommands(true)
    })
}

/// A copy of a command without hidden arguments and commands: scripts of shells would offer them.
fn shown(command: &Command) -> Command {
    let mut copy = Command::new(command.get_name().to_owned())
        .args(command.get_arguments().filter(|argument| !argument.is_hide_set()).cloned())
        .groups(command.get_groups().map(|group| group_of(command, group)))
        .subcommands(command.get_subcommands().filter(|command| !command.is_hide_set()).map(shown))
        .subcommand_required(command.is_subcommand_required_set());
    if let Some(about) = command.get_about() {
        copy = copy.about(about.clone());
    }
    if let Some(about) = command.get_long_about() {
        copy = copy.long_about(about.clone());
    }
    match command.get_after_help() {
        Some(help) => copy.after_help(help.clone()),
        None => copy,
    }
}

/// A group of arguments without the hidden ones.
fn group_of(command: &Command, group: &ArgGroup) -> ArgGroup {
    let mut group = group.clone();
    let is_hidden = |argument: &&Arg| argument.is_hide_set();
    let hidden: Vec<_> = command.get_arguments().filter(is_hidden).map(|argument| argument.get_id().clone()).collect();
    let kept: Vec<_> = group.get_args().filter(|id| !hidden.contains(id)).cloned().collect();
    let is_multiple = group.is_multiple();
    ArgGroup::new(group.get_id().clone()).args(kept).multiple(is_multiple).required(group.is_required_set())
}

/// The script of a shell.
fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    generate(shell, &mut tree(), PROGRAM, &mut script);
    String::from_utf8(script).expect("help is text")
}

/// Name and content of each page.
fn pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    fn walk(command: &Command, path: &str, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
        for command in command.get_subcommands().filter(|command| command.get_name() != "help" || path == PROGRAM) {
            walk(command, &format!("{path}-{}", command.get_name()), pages)?;
        }
        pages.push((format!("{path}.1"), page(command, path)?));
        Ok(())
    }
    let mut tree = tree();
    tree.build();
    let mut pages = Vec::new();
    walk(&tree, PROGRAM, &mut pages)?;
    Ok(pages)
}

/// A page. Its examples keep their lines, which the generator would join.
fn page(command: &Command, path: &str) -> io::Result<Vec<u8>> {
    let man = Man::new(command.clone())
        .title(path.to_uppercase())
        .source(format!("{PROGRAM} {}", VERSION.as_str()))
        .manual("Norn");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut page)?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (examples, others) = help.split_once("See also: ").unwrap_or((&help, ""));
    let mut behind = Roff::new();
    let lines = ["Examples:", "Example:"].into_iter().find_map(|title| examples.trim().strip_prefix(title));
    if let Some(lines) = lines {
        behind.control("SH", ["EXAMPLES"]).control("nf", []);
        for line in lines.trim_matches('\n').lines() {
            behind.text([roman(line)]);
        }
        behind.control("fi", []);
    } else if !examples.trim().is_empty() {
        behind.control("SH", ["NOTES"]).text([roman(examples.trim())]);
    }
    let others: Vec<String> = others.trim().split(", ").filter(|name| !name.is_empty()).map(reference).collect();
    if !others.is_empty() {
        behind.control("SH", ["SEE ALSO"]).text([roman(others.join(", "))]);
    }
    behind.to_writer(&mut page)?;
    Ok(page)
}

fn reference(command: &str) -> String {
    format!("{PROGRAM}-{}(1)", command.replace(' ', "-"))
}

/// Writes each page under another name first, so that a reader finds each whole.
fn write_pages(directory: &Path, pages: &[(String, Vec<u8>)]) -> Result<(), Failure> {
    let failed = |file: &Path, error: &dyn std::fmt::Display| {
        Failure::refused(format!(
            "cannot write {}: {error}; name a directory in which files can be made, for example ~/.local/share/man/man1",
            file.display()
        ))
    };
    std::fs::create_dir_all(directory).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists | ErrorKind::NotADirectory => {
            Failure::usage(format!("{} is no directory", directory.display()))
        }
        _ => failed(directory, &error),
    })?;
    for (name, page) in pages {
        let file = directory.join(name);
        let write = || {
            let mut half = tempfile::NamedTempFile::new_in(directory)?;
            half.write_all(page)?;
            half.as_file().set_permissions(Permissions::from_mode(PAGE_MODE))?;
            half.persist(&file).map_err(|error| error.error)
        };
        write().map_err(|error| failed(&file, &error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::reference;
    use clap::ValueEnum;
    use std::collections::BTreeSet;
    use std::process::{Command as Process, Stdio};

    /// Goal: a verb that is added is completed by each shell. Method: the words of each command that the reference has.
    #[test]
    fn each_shell_knows_each_command_and_none_that_is_hidden() {
        for shell in Shell::value_variants() {
            let script = script(*shell);
            let words: BTreeSet<&str> =
                script.split(|byte: char| !byte.is_ascii_alphanumeric() && byte != '-').collect();
            for (path, _) in reference::commands() {
                for word in path.split(' ') {
                    assert!(words.contains(word), "{shell} does not know `{path}`");
                }
            }
            assert!(!script.contains(LOG_GROUP) && !script.contains("die-with-parent"), "{shell}");
        }
    }

    /// Goal: bash takes the script, and completes a command of a group by it.
    #[test]
    fn bash_reads_its_script_and_completes_by_it() {
        let ask = "\nCOMP_WORDS=(norn log ins); COMP_CWORD=2; _norn norn ins log; echo \"${COMPREPLY[*]}\"\n";
        let run = |flag: &str, text: &str| {
            let mut bash = Process::new("bash");
            bash.args(["--norc", flag]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut bash = bash.spawn()?;
            bash.stdin.take().expect("it is piped").write_all(text.as_bytes())?;
            bash.wait_with_output()
        };
        let script = script(Shell::Bash);
        match run("-n", &script) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                eprintln!("NOT TRIED: there is no bash here to read the script");
                return;
            }
            read => {
                let read = read.expect("bash runs");
                assert!(read.status.success() && read.stderr.is_empty(), "{}", String::from_utf8_lossy(&read.stderr));
            }
        }
        let completed = run("-s", &(script + ask)).expect("bash runs");
        let (said, complaint) =
            (String::from_utf8_lossy(&completed.stdout), String::from_utf8_lossy(&completed.stderr));
        assert_eq!((said.trim(), complaint.trim()), ("inspect", ""));
    }

    #[test]
    fn each_command_has_a_page_that_names_it_and_its_options() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("share/man1");
        let pages = pages().unwrap();
        write_pages(&place, &pages).unwrap();
        write_pages(&place, &pages).expect("pages are replaced");
        let files: Vec<_> = std::fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(files.len(), pages.len(), "no half of a page is left");
        let mut expected = BTreeSet::from([place.join("norn.1")]);
        for (path, command) in reference::commands() {
            let file = place.join(format!("norn-{}.1", path.replace(' ', "-")));
            let page = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            let plain = page.replace("\\-", "-");
            assert!(plain.contains(&format!("norn-{}", path.replace(' ', "-"))), "{path}: {page}");
            for option in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                let long = option.get_long().map_or_else(String::new, |long| format!("--{long}"));
                assert!(plain.contains(&long), "{path}: {long}");
            }
            expected.insert(file);
        }
        assert_eq!(files.into_iter().collect::<BTreeSet<_>>(), expected);
        assert!(pages.iter().all(|(_, page)| !String::from_utf8_lossy(page).contains(LOG_GROUP)));
    }

    #[test]
    fn a_file_in_place_of_the_directory_is_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("man1");
        std::fs::write(&file, "mine").unwrap();
        let refusal = write_pages(&file, &pages().unwrap()).expect_err("it is a file");
        assert!(format!("{refusal:?}").contains("man1 is no directory"), "{refusal:?}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    }
}
