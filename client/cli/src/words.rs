//! Splits a command line into words, like a shell.
//!
//! White space separates words. `'...'` is literal. `"..."` knows the escapes of JSON, so that a program can write any text on one line.
//! Outside quotes, a backslash makes the next character literal.

/// One word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// Text without its quotes.
    pub text: String,
    /// Whether its first character was quoted or escaped, so that it has no special meaning.
    pub literal: bool,
}

/// Which quote is open at the end of a command that arrives line by line.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quoting {
    open: Option<char>,
    escaped: bool,
}

impl Quoting {
    /// Continues over the next part of the command.
    pub fn take(&mut self, part: &str) {
        for character in part.chars() {
            if std::mem::take(&mut self.escaped) {
                continue;
            }
            match (self.open, character) {
                (None | Some('"'), '\\') => self.escaped = true,
                (None, '\'' | '"') => self.open = Some(character),
                (Some(open), character) if open == character => self.open = None,
                _ => {}
            }
        }
    }

    /// Returns the open quote.
    pub fn open(self) -> Option<char> {
        self.open
    }
}

/// Splits a line into words.
pub fn split(line: &str) -> Result<Vec<Word>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let (word, after) = take_word(rest)?;
        words.push(word);
        rest = after.trim_start();
    }
    Ok(words)
}

fn take_word(line: &str) -> Result<(Word, &str), String> {
    let literal = line.starts_with(['\'', '"', '\\']);
    let mut text = String::new();
    let mut characters = line.chars();
    loop {
        let after = characters.as_str();
        match characters.next() {
            None => return Ok((Word { text, literal }, "")),
            Some('\'') => take_single(&mut characters, &mut text)?,
            Some('"') => take_double(&mut characters, &mut text)?,
            Some('\\') => text.push(characters.next().ok_or("a backslash at the end of the line escapes nothing")?),
            Some(space) if space.is_whitespace() => return Ok((Word { text, literal }, after)),
            Some(other) => text.push(other),
        }
    }
}

fn take_single(characters: &mut std::str::Chars<'_>, text: &mut String) -> Result<(), String> {
    for character in characters {
        if character == '\'' {
            return Ok(());
        }
        text.push(character);
    }
    Err("a single quote (') is not closed".to_owned())
}

fn take_double(characters: &mut std::str::Chars<'_>, text: &mut String) -> Result<(), String> {
    while let Some(character) = characters.next() {
        match character {
            '"' => return Ok(()),
            '\\' => match characters.next() {
                Some('n') => text.push('\n'),
                Some('r') => text.push('\r'),
                Some('t') => text.push('\t'),
                Some('b') => text.push('\u{8}'),
                Some('f') => text.push('\u{c}'),
                Some('u') => text.push(take_unicode(characters)?),
                Some(same @ ('"' | '\\' | '/' | '$' | '`')) => text.push(same),
                Some(other) => text.extend(['\\', other]),
                None => break,
            },
            other => text.push(other),
        }
    }
    Err("a double quote (\") is not closed".to_owned())
}

/// Reads `XXXX` after `\u`; characters outside the basic plane take two of them, as in JSON.
fn take_unicode(characters: &mut std::str::Chars<'_>) -> Result<char, String> {
    let high = take_unit(characters)?;
    if !(0xd800..0xdc00).contains(&high) {
        return char::from_u32(high).ok_or_else(|| format!("\\u{high:04x} is half of a character"));
    }
    let low = match (characters.next(), characters.next()) {
        (Some('\\'), Some('u')) => take_unit(characters)?,
        _ => return Err(format!("\\u{high:04x} is half of a character")),
    };
    match low {
        0xdc00..0xe000 => char::from_u32(0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00)),
        _ => None,
    }
    .ok_or_else(|| format!("\\u{high:04x}\\u{low:04x} is no character"))
}

fn take_unit(characters: &mut std::str::Chars<'_>) -> Result<u32, String> {
    let digits: String = characters.take(4).collect();
    if digits.len() == 4 && digits.chars().all(|digit| digit.is_ascii_hexdigit()) {
        return u32::from_str_radix(&digits, 16).map_err(|error| error.to_string());
    }
    Err(format!("\\u wants four hexadecimal digits, not {digits:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(line: &str) -> Vec<String> {
        split(line).expect(line).into_iter().map(|word| word.text).collect()
    }

    #[test]
    fn words_split_as_in_a_shell() {
        assert_eq!(texts(""), Vec::<String>::new());
        assert_eq!(texts("  a \t b  "), ["a", "b"]);
        assert_eq!(texts("a 'b c' \"d e\""), ["a", "b c", "d e"]);
        assert_eq!(texts(r#"a'b'"c"\ d"#), ["abc d"]);
        assert_eq!(texts("a '' \"\""), ["a", "", ""]);
        assert_eq!(texts(r#"'it'"'"'s'"#), ["it's"]);
        assert_eq!(texts(r"'a\nb'"), [r"a\nb"]);
        assert_eq!(texts("a#b"), ["a#b"]);
    }

    #[test]
    fn double_quotes_know_the_escapes_of_json() {
        assert_eq!(texts(r#""a\nb\t\"\\\/""#), ["a\nb\t\"\\/"]);
        assert_eq!(texts(r#""\u00e9 \ud83d\ude00""#), ["é 😀"]);
        assert_eq!(texts(r#""\d""#), [r"\d"]);
    }

    #[test]
    fn what_is_not_closed_is_refused() {
        for bad in ["'a", "\"a", "a\\", "\"a\\", r#""\u12""#, r#""\ud800x""#, r#""\udc00""#, r#""\ud800\u0041""#] {
            assert!(split(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn quoted_words_are_literal() {
        let words = split(r"@a '@b' \@c a'@d' -").unwrap();
        assert_eq!(words.iter().map(|word| word.literal).collect::<Vec<_>>(), [false, true, true, false, false]);
    }

    #[test]
    fn quoting_knows_the_quote_that_is_open() {
        for (text, quote) in [("a 'b", '\''), ("a \"b", '"'), ("a\\'b 'c\\", '\''), ("\"a\\\"", '"'), ("'a' \"'", '"')]
        {
            let mut quoting = Quoting::default();
            quoting.take(text);
            assert_eq!(quoting.open(), Some(quote), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_text_that_splits_has_no_open_quote_and_one_with_an_open_quote_does_not_split(text in "[a'\"\\\\\n ]*") {
            let mut quoting = Quoting::default();
            text.chars().for_each(|character| quoting.take(character.encode_utf8(&mut [0; 4])));
            match split(&text) {
                Ok(_) => prop_assert_eq!(quoting.open(), None),
                Err(message) => prop_assert_eq!(quoting.open().is_some(), message.contains("is not closed")),
            }
        }

        #[test]
        fn any_text_in_json_quotes_reads_back(text in ".*") {
            let line = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(texts(&line), [text]);
        }

        #[test]
        fn no_line_panics(line in ".*") {
            let _ = split(&line);
        }
    }
}
