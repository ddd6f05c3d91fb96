//! Parsers of command-line texts.
//!
//! A malformed flag (a duration, a number, a state) is a usage failure and ends in exit code 2. Names, ids and tokens are values of the
//! domain: they are checked later, and a wrong one ends in exit code 1.

use super::error::Failure;
use clap::builder::{PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser};
use clap::{Arg, Args, Command};
pub use norn_client::api::{duration_ms, instant_ms};
use norn_wire::address::parse_address;
use norn_wire::limits::PARTITIONS_MAX;
use norn_wire::{Acks, QueueName, State, Token};
use std::ffi::OsStr;
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

/// Parses a whole number within these bounds; a refusal names the example.
pub fn whole<T>(low: T, high: T, example: T) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Copy + Send + Sync + 'static,
{
    assert!(low <= example && example <= high, "the example is one");
    move |text| {
        let number = text.parse().ok().filter(|number| (low..=high).contains(number));
        number.ok_or_else(|| format!("wanted is a whole number from {low} to {high}, for example {example}"))
    }
}

/// Parses the number of a partition. The cluster checks whether the partition exists.
pub fn partition(text: &str) -> Result<u16, String> {
    let wanted = || format!("wanted is the number of a partition, 0 to {}, for example 3", PARTITIONS_MAX - 1);
    text.parse()
        .ok()
        .filter(|number| u32::from(*number) < PARTITIONS_MAX)
        .ok_or_else(|| wanted() + "; `partitions` lists them")
}

/// Parses the positional argument of a result that is read from standard input.
pub fn dash(text: &str) -> Result<String, String> {
    match text {
        "-" => Ok(text.to_owned()),
        _ => Err("a result goes with its flag, --result DATA; only `-`, for standard input, stands alone".to_owned()),
    }
}

/// Parses a number of bytes, with an optional unit `KiB`, `MiB` or `GiB`.
pub fn bytes(text: &str) -> Option<u64> {
    let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("", 1)];
    let (number, unit) = units.into_iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
    number.trim_end().parse::<u64>().ok()?.checked_mul(unit)
}

/// Parses `HOST:PORT`.
pub fn address(text: &str) -> Result<String, String> {
    match parse_address(text) {
        Some(_) => Ok(text.to_owned()),
        None => {
            Err("an address is HOST:PORT, an IPv6 one [HOST]:PORT, for example 127.0.0.1:7400 or [::1]:7400".to_owned())
        }
    }
}

/// Parses `NAME=VALUE`.
pub fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("a header is NAME=VALUE, for example trace=7f3a".to_owned()),
    }
}

/// Parses `one`, `quorum`, `all` or a number of replicas, and offers the words.
#[derive(Debug, Clone)]
struct AcksParser;

impl TypedValueParser for AcksParser {
    type Value = Acks;

    fn parse_ref(&self, command: &Command, argument: Option<&Arg>, value: &OsStr) -> Result<Acks, clap::Error> {
        let parse = |text: &str| text.parse::<Acks>();
        StringValueParser::new().try_map(move |text| parse(&text)).parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(["one", "quorum", "all"].into_iter().map(PossibleValue::new)))
    }
}

/// Parses a state by its name.
pub fn state() -> impl TypedValueParser<Value = State> {
    PossibleValuesParser::new(State::ALL.map(State::name)).try_map(|text| text.parse::<State>())
}

/// Parses a queue's name.
pub fn queue(text: &str) -> Result<QueueName, Failure> {
    Ok(QueueName::new(text)?)
}

/// Parses a queue's name, if there is one.
pub fn queue_if_any(text: Option<&String>) -> Result<Option<QueueName>, Failure> {
    text.map(|text| queue(text)).transpose()
}

/// Parses a fencing token.
pub fn token(text: &str) -> Result<Token, Failure> {
    Ok(text.parse()?)
}

/// Durability that a write must reach before it is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Args)]
pub struct DurabilityArguments {
    /// Replicas that must have it on disk before the answer: one, quorum (the default), all, or a number
    #[arg(
        long,
        value_name = "ACKS",
        value_parser = AcksParser,
        default_value = "quorum",
        hide_possible_values = true,
        hide_default_value = true
    )]
    pub acks: Acks,
}

/// Data given on the command line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct DataArguments {
    /// Data as text; `-` reads it from standard input. In the REPL, @FILE reads it from a file, and quotes make '-' and '@...' literal
    #[arg(value_name = "DATA", conflicts_with = "file")]
    pub data: Option<String>,
    /// Read the data from this file instead
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// Source of data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    /// Text in the command line.
    Text(String),
    /// A file.
    File(PathBuf),
    /// Standard input.
    Stdin,
}

impl Data {
    /// Decides which source an argument names. `names_files`: `@FILE` names a file, as in the REPL. `literal`: whether the text was
    /// quoted there, so that it stands for itself.
    pub fn new(
        data: Option<&str>,
        file: Option<&PathBuf>,
        names_files: bool,
        literal: impl Fn(&str) -> bool,
    ) -> Option<Data> {
        match (data, file) {
            (None, None) => None,
            (_, Some(path)) if path.as_os_str() == "-" => Some(Data::Stdin),
            (_, Some(path)) => Some(Data::File(path.clone())),
            (Some(text), None) if literal(text) => Some(Data::Text(text.to_owned())),
            (Some("-"), None) => Some(Data::Stdin),
            (Some(text), None) => match text.strip_prefix('@').filter(|path| names_files && !path.is_empty()) {
                Some(path) => Some(Data::File(path.into())),
                None => Some(Data::Text(text.to_owned())),
            },
        }
    }
}

/// Refuses data over its limit.
pub fn bounded(bytes: Vec<u8>, bytes_max: usize) -> Result<Vec<u8>, Failure> {
    if bytes.len() > bytes_max {
        return Err(Failure::invalid(format!("the data is larger than {bytes_max} bytes, the most that is taken")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers() {
        assert_eq!(header("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(header("a="), Ok(("a".to_owned(), String::new())));
        assert!(header("=b").is_err() && header("a").is_err());
    }

    #[test]
    fn data_is_named_in_several_ways() {
        let file = PathBuf::from("f");
        let plain = |text: &str, names_files| Data::new(Some(text), None, names_files, |_| false);
        assert_eq!(Data::new(None, None, true, |_| false), None);
        assert_eq!(Data::new(None, Some(&file), false, |_| false), Some(Data::File(file.clone())));
        assert_eq!(Data::new(None, Some(&PathBuf::from("-")), false, |_| false), Some(Data::Stdin));
        assert_eq!(plain("-", false), Some(Data::Stdin));
        assert_eq!(plain("@f", false), Some(Data::Text("@f".into())));
        assert_eq!(plain("@f", true), Some(Data::File(file)));
        assert_eq!(plain("@", true), Some(Data::Text("@".into())));
        assert_eq!(Data::new(Some("-"), None, true, |_| true), Some(Data::Text("-".into())));
    }
}
