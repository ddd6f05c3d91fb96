//! The prompt: line editing, history, completion and hints.

use super::CommandLine;
use super::ahead::{Ahead, Asked, Terminal};
use crate::input::{Input, Purpose, Reading, Source};
use crate::{Meant, Recent, ShownIds, queue, several, text, words};
use clap::CommandFactory as _;
use norn_wire::{State, TaskId};
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::{Hint, Hinter, HistoryHinter};
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

const HISTORY_LINES_MAX: usize = 10_000;
const CANDIDATES_MAX: usize = 50;
/// Most characters of the cluster's name in the prompt, so that there is room to type.
const NAME_CHARACTERS_MAX: usize = 24;

/// Creates an input that reads from a prompt.
///
/// The prompt shows the name of the cluster.
pub(super) fn input(history: Option<PathBuf>, known: Known, color: bool, cluster: Option<String>) -> Input {
    let name: String = cluster.as_deref().unwrap_or("norn").chars().take(NAME_CHARACTERS_MAX).collect();
    Input::new(move || Ok(Box::new(Prompt::new(history, known, color, name).map_err(into_io)?)))
}

/// Ids and queues that completion offers.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// Ids and queues of this session.
    pub recent: Arc<Mutex<Recent>>,
    /// Ids that earlier commands of this user have shown, if they are kept.
    pub shown: Option<ShownIds>,
}

impl Known {
    /// Returns each id once: those of this session first, and later ones before earlier ones.
    fn ids(&self) -> Vec<TaskId> {
        let recent: Vec<TaskId> = self.recent.lock().unwrap_or_else(PoisonError::into_inner).ids().collect();
        let shown = self.shown.as_ref().map_or_else(Vec::new, ShownIds::load);
        let mut seen = BTreeSet::new();
        recent.into_iter().chain(shown.into_iter().rev()).filter(|id| seen.insert(*id)).collect()
    }
}

struct Prompt {
    ahead: Ahead,
    screen: Screen,
}

/// The line editor and its history.
struct Screen {
    editor: Editor<Assistant, FileHistory>,
    config: Config,
    known: Known,
    history: Option<PathBuf>,
    color: bool,
    /// Name of the cluster.
    name: String,
}

fn into_io(error: ReadlineError) -> io::Error {
    match error {
        ReadlineError::Io(error) => error,
        other => io::Error::other(other.to_string()),
    }
}

impl Prompt {
    fn new(history: Option<PathBuf>, known: Known, color: bool, name: String) -> rustyline::Result<Prompt> {
        let config = Config::builder()
            .max_history_size(HISTORY_LINES_MAX)?
            .history_ignore_dups(true)?
            .history_ignore_space(true)
            .completion_type(CompletionType::List)
            .build();
        let mut editor = Editor::with_config(config.clone())?;
        editor.set_helper(Some(Assistant::new(known.clone(), color)));
        if let Some(path) = &history {
            if let Some(parent) = path.parent() {
                let _ = std::fs::create_dir_all(parent);
            }
            // The first start has no history file, and a prompt works without a history.
            let _ = editor.load_history(path);
        }
        Ok(Prompt { ahead: Ahead::default(), screen: Screen { editor, config, known, history, color, name } })
    }
}

impl Screen {
    fn remember(&mut self, line: &str) {
        let added = self.editor.add_history_entry(line).unwrap_or(false);
        if let Some(path) = self.history.as_ref().filter(|_| added) {
            let _ = self.editor.append_history(path);
        }
    }

    /// Returns a prompt, without and with its style.
    fn prompt(&self, asked: Asked) -> (String, String) {
        let raw = match asked {
            Asked::Command => format!("{}> ", self.name),
            Asked::Quoted(quote) => format!("{quote:>width$}> ", width = self.name.chars().count()),
            Asked::Data => "... ".to_owned(),
        };
        let styled = if self.color { format!("\x1b[1m{raw}\x1b[0m") } else { raw.clone() };
        (raw, styled)
    }

    /// Drops what the editor has read from the terminal beyond the last line. Only the editor knows it, so a new editor replaces it.
    fn discard(&mut self) {
        let history = std::mem::replace(self.editor.history_mut(), FileHistory::with_config(&self.config));
        if let Ok(mut editor) = Editor::with_history(self.config.clone(), history) {
            editor.set_helper(Some(Assistant::new(self.known.clone(), self.color)));
            self.editor = editor;
        }
    }
}

impl Terminal for Screen {
    fn read(&mut self, asked: Asked) -> io::Result<Reading> {
        let (raw, styled) = self.prompt(asked);
        if let Some(assistant) = self.editor.helper_mut() {
            assistant.suggests = asked == Asked::Command;
        }
        match self.editor.readline(&(raw.as_str(), styled.as_str())) {
            Ok(line) => Ok(Reading::Line(line.into_bytes())),
            Err(ReadlineError::Eof) => Ok(Reading::End),
            Err(ReadlineError::Interrupted | ReadlineError::Signal(_)) => Ok(Reading::Interrupted),
            Err(error) => Err(into_io(error)),
        }
    }

    fn show(&mut self, asked: Asked, line: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{}{}", self.prompt(asked).1, text::clean(line))?;
        out.flush()
    }
}

impl Source for Prompt {
    fn line(&mut self, purpose: Purpose, bytes_max: usize) -> io::Result<Reading> {
        let Prompt { ahead, screen } = self;
        match purpose {
            Purpose::Data => ahead.line(Asked::Data, screen, bytes_max),
            Purpose::Command => {
                let reading = ahead.command(screen, bytes_max)?;
                if let Reading::Line(line) = &reading
                    && let Ok(line) = std::str::from_utf8(line)
                    && !line.trim().is_empty()
                {
                    screen.remember(line);
                }
                Ok(reading)
            }
        }
    }

    fn rest(&mut self, bytes_max: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while bytes.len() <= bytes_max {
            match self.line(Purpose::Data, bytes_max)? {
                Reading::Line(line) => {
                    bytes.extend(line);
                    bytes.push(b'\n');
                }
                Reading::TooLong => return Ok(vec![0; bytes_max + 1]),
                Reading::Interrupted => return Err(io::Error::new(io::ErrorKind::Interrupted, "given up")),
                Reading::End => break,
            }
        }
        // Data typed on one line is meant without its line end.
        if bytes.iter().filter(|byte| **byte == b'\n').count() == 1 {
            bytes.pop();
        }
        Ok(bytes)
    }

    fn ready(&self) -> bool {
        false
    }

    fn discard(&mut self) {
        self.ahead.discard();
        self.screen.discard();
    }
}

/// Completion and hints: knows the verbs and recently seen ids and queues.
pub(super) struct Assistant {
    command: clap::Command,
    known: Known,
    files: FilenameCompleter,
    history: HistoryHinter,
    color: bool,
    /// Whether a command is being typed: data gets no suggestions.
    suggests: bool,
}

/// Kind of the word being typed.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Slot {
    Verb,
    Flag,
    Queue,
    Schedule,
    Id,
    File,
    Choice(Vec<String>),
    Other,
}

/// Typed line up to the cursor, split into the words before and the word being typed.
struct Typed<'a> {
    before: Vec<String>,
    word: &'a str,
    start: usize,
}

impl Assistant {
    pub(super) fn new(known: Known, color: bool) -> Assistant {
        let mut command = CommandLine::command();
        command.build();
        Assistant {
            command,
            known,
            files: FilenameCompleter::new(),
            history: HistoryHinter::new(),
            color,
            suggests: true,
        }
    }

    fn typed(line: &str) -> Option<Typed<'_>> {
        let start = line
            .rfind(char::is_whitespace)
            .map_or(0, |space| space + line[space..].chars().next().map_or(1, char::len_utf8));
        let before = words::split(&line[..start]).ok()?;
        Some(Typed { before: before.into_iter().map(|word| word.text).collect(), word: &line[start..], start })
    }

    /// Returns the typed verb, possibly one of a group, and the words behind it.
    fn verb<'a>(&self, words: &'a [String]) -> Option<(&clap::Command, &'a [String])> {
        let (first, arguments) = words.split_first()?;
        let command = self.command.find_subcommand(first)?;
        let of_group = arguments.split_first().and_then(|(verb, rest)| Some((command.find_subcommand(verb)?, rest)));
        Some(of_group.unwrap_or((command, arguments)))
    }

    /// Returns the kind of the word being typed.
    fn slot(&self, typed: &Typed<'_>) -> Slot {
        if typed.before.is_empty() {
            return Slot::Verb;
        }
        let Some((command, arguments)) = self.verb(&typed.before) else {
            return Slot::Other;
        };
        if command.has_subcommands() && arguments.is_empty() {
            return Slot::Choice(command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect());
        }
        let takes_value = |word: &str| {
            let flag = word.strip_prefix("--")?;
            let option = command.get_opts().find(|option| option.get_long() == Some(flag))?;
            (!option.is_require_equals_set()).then_some(option)
        };
        if let Some(option) = arguments.last().and_then(|word| takes_value(word)) {
            return match (option.get_long(), states_of(command.get_name())) {
                (Some("state"), Some(states)) => Slot::Choice(states.iter().map(State::to_string).collect()),
                _ => slot_of(option),
            };
        }
        if typed.word.starts_with('-') {
            return Slot::Flag;
        }
        let mut index = 0;
        let mut previous = "";
        for word in arguments {
            if !word.starts_with("--") && takes_value(previous).is_none() {
                index += 1;
            }
            previous = word;
        }
        if command.get_name() == "help" {
            return self.slot_of_help(arguments);
        }
        let takes_many = |positional: &&clap::Arg| positional.get_num_args().is_some_and(|many| many.max_values() > 1);
        let last = || command.get_positionals().last().filter(takes_many);
        let Some(positional) = command.get_positionals().nth(index).or_else(last) else { return Slot::Other };
        let is_given = |other: &&clap::Arg| {
            other.get_long().is_some_and(|long| arguments.iter().any(|word| word.strip_prefix("--") == Some(long)))
        };
        if command.get_arg_conflicts_with(positional).iter().any(is_given) {
            return Slot::Other;
        }
        let names = slot_of(positional);
        match arguments.last() {
            Some(key) if positional.get_id() == "value" => match queue::choices(key) {
                Some(choices) => Slot::Choice(choices.into_iter().map(str::to_owned).collect()),
                None if key == "dead-letter" => Slot::Queue,
                None => names,
            },
            _ if positional.get_id() == "name" && typed.before[0] == "schedule" => Slot::Schedule,
            _ => names,
        }
    }

    /// Returns the kind of a word behind `help`: a verb, or a verb of the group whose name was typed.
    fn slot_of_help(&self, arguments: &[String]) -> Slot {
        if arguments.is_empty() {
            return Slot::Verb;
        }
        let group = arguments.iter().try_fold(&self.command, |command, word| command.find_subcommand(word));
        group.map_or(Slot::Other, |group| {
            Slot::Choice(group.get_subcommands().map(|verb| verb.get_name().to_owned()).collect())
        })
    }

    /// Returns the candidates for the word being typed: the text shown for each, and the text that replaces the word.
    fn candidates(&self, typed: &Typed<'_>) -> Vec<Pair> {
        let all: Vec<String> = match self.slot(typed) {
            Slot::Verb => {
                let verbs = self.command.get_subcommands().map(|verb| verb.get_name().to_owned());
                verbs.chain(["quit".to_owned()]).collect()
            }
            Slot::Flag => {
                let verb = self.verb(&typed.before).map(|(verb, _)| verb);
                let flags = verb.into_iter().flat_map(|verb| verb.get_arguments()).filter_map(clap::Arg::get_long);
                flags.map(|flag| format!("--{flag}")).collect()
            }
            Slot::Queue => {
                let (listed, _) = last_of_list(typed.word);
                let recent = self.known.recent.lock().unwrap_or_else(PoisonError::into_inner);
                recent.queues().map(|queue| format!("{listed}{queue}")).collect()
            }
            Slot::Schedule => {
                let recent = self.known.recent.lock().unwrap_or_else(PoisonError::into_inner);
                recent.schedules().map(str::to_owned).collect()
            }
            Slot::Id => return self.ids(typed.word),
            Slot::Choice(choices) => choices,
            Slot::File | Slot::Other => Vec::new(),
        };
        let fitting = all.into_iter().filter(|text| text.starts_with(typed.word)).take(CANDIDATES_MAX);
        fitting.map(|text| Pair { display: text.clone(), replacement: format!("{text} ") }).collect()
    }

    /// Returns the ids that begin with the word, or else those that end with it or contain it. Only for ids that begin with it may their
    /// common beginning replace the word: in place of an end, a common beginning would lose what tells the ids apart.
    fn ids(&self, word: &str) -> Vec<Pair> {
        let (listed, typed) = last_of_list(word);
        let (ids, begin_so) = match Meant::of(&self.known.ids(), typed) {
            Meant::Beginning(ids) => (ids, true),
            Meant::Having(ids) => (ids, false),
        };
        let replaces = begin_so || ids.len() == 1;
        let pair = |id: TaskId| {
            let replacement = if replaces { format!("{listed}{id} ") } else { word.to_owned() };
            Pair { display: id.to_string(), replacement }
        };
        ids.into_iter().take(CANDIDATES_MAX).map(pair).collect()
    }

    /// Returns the arguments that a verb still requires.
    fn usage(&self, line: &str) -> Option<String> {
        let typed = Assistant::typed(line).filter(|typed| typed.word.is_empty())?;
        let (command, arguments) = self.verb(&typed.before)?;
        if arguments.iter().any(|word| word.starts_with('-')) {
            return None;
        }
        let wanted = command.get_positionals().skip(arguments.len()).map(|positional| {
            let name = positional.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
            if positional.is_required_set() { name.to_owned() } else { format!("[{name}]") }
        });
        let wanted: Vec<String> = wanted.collect();
        (!wanted.is_empty()).then(|| wanted.join(" "))
    }
}

/// Returns the states of tasks that a verb for many tasks accepts.
fn states_of(verb: &str) -> Option<&'static [State]> {
    match verb {
        "cancel" => Some(several::OPEN),
        "release" => Some(several::HELD),
        "purge" => Some(several::OVER),
        _ => None,
    }
}

/// Splits a typed list before its last element.
fn last_of_list(word: &str) -> (&str, &str) {
    word.split_at(word.rfind(',').map_or(0, |comma| comma + 1))
}

fn slot_of(argument: &clap::Arg) -> Slot {
    let name = argument.get_value_names().and_then(|names| names.first()).map(|name| name.as_str());
    match name {
        Some("QUEUE") => Slot::Queue,
        Some("ID" | "ID,...") => Slot::Id,
        Some("VERB") => Slot::Verb,
        Some("FILE" | "DATA") => Slot::File,
        Some(_) | None => {
            let choices: Vec<String> =
                argument.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
            if choices.is_empty() { Slot::Other } else { Slot::Choice(choices) }
        }
    }
}

impl Completer for Assistant {
    type Candidate = Pair;

    fn complete(&self, line: &str, position: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let typed = line.get(..position).and_then(Assistant::typed);
        let Some(typed) = typed.filter(|_| self.suggests) else {
            return Ok((position, Vec::new()));
        };
        let names_file = typed.word.starts_with('@') || typed.before.last().is_some_and(|word| word == "--file");
        if names_file && self.slot(&typed) == Slot::File {
            return self.files.complete_path(line, position);
        }
        Ok((typed.start, self.candidates(&typed)))
    }
}

/// Hint: the rest of an earlier line, which can be accepted, or the arguments that are still required.
pub(super) struct Suggestion {
    text: String,
    taken_over: bool,
}

impl Hint for Suggestion {
    fn display(&self) -> &str {
        &self.text
    }

    fn completion(&self) -> Option<&str> {
        self.taken_over.then_some(&self.text)
    }
}

impl Hinter for Assistant {
    type Hint = Suggestion;

    fn hint(&self, line: &str, position: usize, context: &Context<'_>) -> Option<Suggestion> {
        if !self.suggests || position < line.len() || line.trim().is_empty() {
            return None;
        }
        if let Some(text) = self.usage(line) {
            return Some(Suggestion { text, taken_over: false });
        }
        // A hint of several lines would overwrite the lines below.
        let earlier = self.history.hint(line, position, context).filter(|text| !text.contains('\n'));
        earlier.map(|text| Suggestion { text, taken_over: true })
    }
}

impl Highlighter for Assistant {
    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        match self.color {
            true => format!("\x1b[2m{hint}\x1b[0m").into(),
            false => hint.into(),
        }
    }
}

impl Validator for Assistant {}

impl Helper for Assistant {}

#[cfg(test)]
mod tests {
    use super::*;
    use norn_wire::QueueName;
    use rustyline::history::MemHistory;

    fn assistant() -> Assistant {
        let mut recent = Recent::default();
        recent.see(TaskId::MIN);
        recent.see(TaskId::MAX);
        recent.see_queue(&QueueName::new("mail").unwrap());
        recent.see_queue(&QueueName::new("team/maps").unwrap());
        recent.see_schedules(["nightly", "night-shift", "hourly"].map(str::to_owned));
        of(recent)
    }

    fn of(recent: Recent) -> Assistant {
        Assistant::new(Known { recent: Arc::new(Mutex::new(recent)), shown: None }, false)
    }

    fn offered(line: &str) -> Vec<String> {
        let pairs = assistant().candidates(&Assistant::typed(line).unwrap());
        pairs.into_iter().map(|pair| pair.replacement.trim_end().to_owned()).collect()
    }

    /// Returns a line after Tab, and the list of candidates if the word is still incomplete.
    fn completed(assistant: &Assistant, line: &str) -> (String, Vec<String>) {
        let history = MemHistory::new();
        let (start, pairs) = assistant.complete(line, line.len(), &Context::new(&history)).unwrap();
        // The editor replaces the word by the common beginning if that is longer.
        let common = rustyline::completion::longest_common_prefix(&pairs).unwrap_or_default();
        let word = if pairs.len() == 1 || common.len() > line.len() - start { common } else { &line[start..] };
        let listed = pairs.iter().filter(|_| pairs.len() > 1).map(|pair| pair.display.clone());
        (format!("{}{word}", &line[..start]), listed.collect())
    }

    /// Goal: Tab completes what verbs accept: the end of a shown id, or characters inside it.
    #[test]
    fn an_id_is_completed_by_its_end() {
        let minted = |counter: u32, tag: u32| TaskId::new(1_700_000_000_000, counter, 0x12_3456_789a, tag);
        let ids = [minted(7, 0xab_cdef), minted(8, 0x12_3456), minted(9, 0x12_3456)];
        let mut recent = Recent::default();
        ids.iter().for_each(|id| recent.see(*id));
        let assistant = of(recent);
        let [one, two, three] = ids.map(|id| id.to_string());
        for length in [3, 6, 20] {
            let tail = &one[32 - length..];
            assert_eq!(completed(&assistant, &format!("get {tail}")), (format!("get {one} "), Vec::new()), "{length}");
        }
        let tail = one[26..].to_uppercase();
        assert_eq!(completed(&assistant, &format!("cancel {tail}")).0, format!("cancel {one} "));
        assert_eq!(
            completed(&assistant, &format!("get {two} {tail}")).0,
            format!("get {two} {one} "),
            "the second, too"
        );
        let line = format!("enqueue mail x --after {two},");
        assert_eq!(completed(&assistant, &format!("{line}{tail}")).0, format!("{line}{one} "));
        // For several ids with the same end, the end stays, so that more can be typed before it.
        let line = format!("get {}", &two[26..]);
        assert_eq!(completed(&assistant, &line), (line.clone(), vec![three.clone(), two.clone()]));
        assert_eq!(completed(&assistant, &format!("get {}", &two[10..20])), (format!("get {two} "), Vec::new()));
        assert_eq!(completed(&assistant, "get zzzzzz"), ("get zzzzzz".to_owned(), Vec::new()));
    }

    /// Goal: ids shown by earlier commands of this user are completed like those of this session.
    #[test]
    fn ids_that_earlier_commands_have_shown_are_offered_after_those_of_the_session() {
        let directory = tempfile::tempdir().unwrap();
        let shown = ShownIds::new(directory.path().to_owned());
        shown.add(&[TaskId::MIN, TaskId::MAX]).unwrap();
        let mut recent = Recent::default();
        recent.see(TaskId::MIN);
        let known = Known { recent: Arc::new(Mutex::new(recent)), shown: Some(shown) };
        assert_eq!(known.ids(), [TaskId::MIN, TaskId::MAX]);
        assert_eq!(completed(&Assistant::new(known, false), "get zzz").0, format!("get {} ", TaskId::MAX));
    }

    #[test]
    fn each_place_offers_what_belongs_there() {
        assert_eq!(offered("en"), ["enqueue"]);
        assert_eq!(offered("schedule re"), ["remove", "resume"]);
        assert_eq!(offered("schedule set nightly ma"), ["mail"]);
        assert_eq!(offered("schedule set nightly mail --catch-up "), ["skip", "last", "all"]);
        assert_eq!(offered("schedule set nightly mail --cr"), ["--cron"]);
        assert_eq!(offered("help st"), ["status"]);
        assert_eq!(offered("help schedule re"), ["remove", "resume"]);
        assert_eq!(offered("help cluster set moves-"), ["moves-each"]);
        for line in ["purge", "cancel", "release", "redrive", "redrive --limit 5"] {
            assert_eq!(offered(&format!("{line} --queue ma")), ["mail"], "{line}");
            assert_eq!(offered(&format!("{line} --queue mail ")), Vec::<String>::new(), "{line}");
        }
        for line in ["redrive --letters ma", "redrive --queue dead --to ma", "queue set other dead-letter ma"] {
            assert_eq!(offered(line), ["mail"], "{line}");
        }
        for verb in ["show", "remove", "pause", "resume", "set"] {
            assert_eq!(offered(&format!("schedule {verb} night")), ["night-shift", "nightly"], "{verb}");
        }
        assert_eq!(offered("schedule show nightly "), Vec::<String>::new());
        assert_eq!(offered("queue set mail mode "), ["any", "holder"]);
        assert_eq!(offered("queue set mail order "), ["priority", "random", "fair"]);
        assert_eq!(offered("queue set mail paused y"), ["yes"]);
        assert_eq!(offered("queue set mail failed-dependency "), ["fail", "skip", "wait"]);
        assert_eq!(offered("queue set mail mode any "), Vec::<String>::new());
        assert_eq!(offered("cancel --queue mail --state "), ["waiting", "ready", "claimed"]);
        assert_eq!(offered("release --queue mail --state "), ["claimed"]);
        assert_eq!(offered("purge --queue mail --state d"), ["done", "dead"]);
        assert_eq!(offered("enqueue ma"), ["mail"]);
        assert_eq!(offered("enqueue --priority 5 ma"), ["mail"]);
        assert_eq!(offered("claim mail,te"), ["mail,team/maps"]);
        assert_eq!(offered("get zz"), [TaskId::MAX.to_string()]);
        assert_eq!(offered("list --state d"), ["done", "dead"]);
        assert_eq!(offered("enqueue mail --acks "), ["one", "quorum", "all"]);
        assert_eq!(offered("claim mail --le"), ["--lease"]);
        assert_eq!(offered("enqueue mail ma"), Vec::<String>::new());
        assert_eq!(offered("nonsense a"), Vec::<String>::new());
        assert!(Assistant::typed("enqueue mail 'open quote ").is_none());
    }

    #[test]
    fn hints_name_the_arguments_that_are_wanted() {
        let assistant = assistant();
        assert_eq!(assistant.usage("complete ").as_deref(), Some("ID TOKEN [-]"));
        assert_eq!(assistant.usage("complete x ").as_deref(), Some("TOKEN [-]"));
        assert_eq!(assistant.usage("enqueue ").as_deref(), Some("QUEUE [DATA]"));
        assert_eq!(assistant.usage("queues "), None);
        assert_eq!(assistant.usage("enqueue"), None);
    }
}
