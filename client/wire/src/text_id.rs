//! Text ids: names that applications give to tasks, such as `recon/system-x`, instead of the 160 bits of a [`TaskId`](super::TaskId).
//!
//! The bits of an id begin with its time, and an id of another time than the present is refused: as too old, or as from the future. So no
//! function of the text alone gives an id. A text id is therefore a key by which its task is unique in its queue: the leader of the
//! key's partition gives a text to one open task at a time. When that has ended, the text is free for the next one.

use super::group::NAMED_GROUP;
use super::headers::{DEAD_TASK, TEXT_ID};
use super::ids::{ParseError, QueueName};
use super::limits::{GROUP_MEMBERS_MAX, HEADER_BYTES_MAX, KEY_BYTES_MAX};
use super::request::Spec;
use super::response::Granted;
use std::fmt;
use std::str::FromStr;

/// The longest text fits into a header: each byte of a name is three of an escape, and a member has two numbers.
const _: () = assert!(
    TEXT_ID.len() + QueueName::BYTES_MAX + 3 * (KEY_BYTES_MAX - NAMED_TASK.len()) + "/".len() <= HEADER_BYTES_MAX
        && TEXT_ID.len() + QueueName::BYTES_MAX + 3 * (KEY_BYTES_MAX - NAMED_GROUP.len()) + "//10000/10000".len()
            <= HEADER_BYTES_MAX
);

/// Prefix of the key of a task with a text id; the rest of the key is the name.
pub const NAMED_TASK: &str = "id:";

/// Text id of a task. Its text has the forms `QUEUE/NAME` and `QUEUE/GROUP/NUMBER/TOTAL`, where the queue may be `namespace/queue`: the
/// number of slashes tells them apart. In names, `%2F` stands for a slash and `%25` for `%`.
///
/// ```
/// use norn_client::wire::TextId;
/// let page: TextId = "pages/book-7/3/10".parse().unwrap();
/// assert_eq!((page.queue().as_str(), page.to_string().as_str()), ("pages", "pages/book-7/3/10"));
/// assert!("team/recon/system-x".parse::<TextId>().is_ok_and(|id| id.queue().as_str() == "team/recon"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TextId {
    /// A task by itself.
    Single {
        /// Queue, which is the task's type.
        queue: QueueName,
        /// Name within the queue.
        name: String,
    },
    /// A member of a group.
    Member {
        /// Queue of the member, which is its type.
        queue: QueueName,
        /// Name of the group.
        group: String,
        /// Number of the member, from 1.
        number: u32,
        /// Number of members.
        total: u32,
    },
}

impl TextId {
    /// A task by itself.
    pub fn single(queue: QueueName, name: impl Into<String>) -> Result<TextId, ParseError> {
        TextId::Single { queue, name: name.into() }.checked()
    }

    /// A member of a group.
    pub fn member(queue: QueueName, group: impl Into<String>, number: u32, total: u32) -> Result<TextId, ParseError> {
        TextId::Member { queue, group: group.into(), number, total }.checked()
    }

    /// The text id of a task with these headers, if it has one. A dead letter carries the headers of another task.
    pub fn of(queue: &QueueName, headers: &[(String, String)]) -> Option<TextId> {
        let value = |wanted: &str| headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value);
        let id: TextId = value(TEXT_ID)?.parse().ok()?;
        (id.queue() == queue && value(DEAD_TASK).is_none()).then_some(id)
    }

    /// Queue of the task.
    pub fn queue(&self) -> &QueueName {
        match self {
            TextId::Single { queue, .. } | TextId::Member { queue, .. } => queue,
        }
    }

    /// Key by which a task by itself is unique. A member of a group has none.
    pub fn key(&self) -> Option<String> {
        match self {
            TextId::Single { name, .. } => Some(format!("{NAMED_TASK}{name}")),
            TextId::Member { .. } => None,
        }
    }

    fn checked(self) -> Result<TextId, ParseError> {
        let (name, prefix) = match &self {
            TextId::Single { name, .. } => (name, NAMED_TASK),
            TextId::Member { group, .. } => (group, NAMED_GROUP),
        };
        let most = KEY_BYTES_MAX - prefix.len();
        if name.is_empty() || name.len() > most {
            let bytes = name.len();
            return Err(ParseError(format!("a name in a text id has 1 to {most} bytes, this has {bytes}")));
        }
        if let TextId::Member { number, total, .. } = self
            && !(1 <= number && number <= total && total <= GROUP_MEMBERS_MAX)
        {
            let message = format!(
                "member {number} of {total}: they are numbered from 1 to their total, {GROUP_MEMBERS_MAX} at most"
            );
            return Err(ParseError(message));
        }
        Ok(self)
    }
}

impl Spec {
    /// The task's text id, if it has one.
    pub fn text_id(&self) -> Option<TextId> {
        TextId::of(&self.queue, &self.headers)
    }
}

impl Granted {
    /// The task's text id, if it has one.
    pub fn text_id(&self) -> Option<TextId> {
        TextId::of(&self.queue, &self.headers)
    }
}

/// Whether a character of a name is written as an escape: one that separates the parts of a text id, or the ids of a list.
fn is_escaped(character: char) -> bool {
    matches!(character, '/' | '%' | ',' | '@') || character.is_whitespace() || character.is_control()
}

struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = [0; 4];
        for character in self.0.chars() {
            match character.encode_utf8(&mut bytes) {
                text if is_escaped(character) => text.bytes().try_for_each(|byte| write!(formatter, "%{byte:02X}"))?,
                text => formatter.write_str(text)?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for TextId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TextId::Single { queue, name } => write!(formatter, "{queue}/{}", Escaped(name)),
            TextId::Member { queue, group, number, total } => {
                write!(formatter, "{queue}/{}/{number}/{total}", Escaped(group))
            }
        }
    }
}

/// Resolves the escapes of a name.
fn unescaped(text: &str) -> Result<String, ParseError> {
    let wrong = || {
        ParseError(format!("{text:?}: a % in a text id stands before two hexadecimal digits of UTF-8; write %25 for %"))
    };
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('%');
    bytes.extend(parts.next().unwrap_or_default().bytes());
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).ok_or_else(wrong)?;
        let are_digits = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        bytes.push(u8::from_str_radix(digits, 16).ok().filter(|_| are_digits).ok_or_else(wrong)?);
        bytes.extend(rest.bytes());
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

impl FromStr for TextId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<TextId, ParseError> {
        let wrong = || {
            ParseError(format!(
                "a text id is QUEUE/NAME or QUEUE/GROUP/NUMBER/TOTAL, not {text:?}; write %2F for / in a name"
            ))
        };
        let number = |digits: &str| {
            let is_plain =
                !digits.is_empty() && !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|_| is_plain).ok_or_else(wrong)
        };
        let parts: Vec<&str> = text.split('/').collect();
        let queue = |parts: &[&str]| QueueName::new(&parts.join("/"));
        match parts[..] {
            [ref of @ .., name] if (1..=2).contains(&of.len()) => TextId::single(queue(of)?, unescaped(name)?),
            [ref of @ .., group, place, total] if (1..=2).contains(&of.len()) => {
                TextId::member(queue(of)?, unescaped(group)?, number(place)?, number(total)?)
            }
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(name: &str) -> QueueName {
        QueueName::new(name).unwrap()
    }

    // O34
    #[test]
    fn ids_of_type_and_name_and_of_type_group_number_and_total_have_a_text_that_reads_back() {
        for (id, text) in [
            (TextId::single(queue("recon"), "system-x"), "recon/system-x"),
            (TextId::single(queue("team/recon"), "system-x"), "team/recon/system-x"),
            (TextId::single(queue("recon"), "2026-11-30T02:30:00Z"), "recon/2026-11-30T02:30:00Z"),
            (TextId::single(queue("recon"), "a/b c,50%@d\u{e9}"), "recon/a%2Fb%20c%2C50%25%40d\u{e9}"),
            (TextId::member(queue("pages"), "book-7", 3, 10), "pages/book-7/3/10"),
            (TextId::member(queue("team/pages"), "7", 1, 1), "team/pages/7/1/1"),
            (TextId::member(queue("pages"), "a/b", 10_000, 10_000), "pages/a%2Fb/10000/10000"),
        ] {
            let id = id.unwrap();
            assert_eq!(id.to_string(), text);
            assert_eq!(text.parse(), Ok(id.clone()), "{text}");
            let headers = [("kind".to_owned(), "x".to_owned()), (TEXT_ID.to_owned(), text.to_owned())];
            assert_eq!(TextId::of(id.queue(), &headers), Some(id));
        }
        let lenient = "recon/a%2fb c".parse::<TextId>().unwrap();
        assert_eq!(lenient.to_string(), "recon/a%2Fb%20c", "one task has one text");
        assert_eq!(lenient.key().as_deref(), Some("id:a/b c"));
        assert_eq!("pages/book-7/3/10".parse::<TextId>().unwrap().key(), None, "its id follows from its group");
    }

    // O34
    #[test]
    fn a_text_that_is_no_id_is_refused() {
        let long = format!("recon/{}", "x".repeat(KEY_BYTES_MAX));
        for text in [
            "",
            "recon",
            "recon/",
            "/x",
            "a/b/",
            "a//x",
            "a/b/c/d/e/f",
            "pages/book/0/10",
            "pages/book/11/10",
            "pages/book/1/10001",
            "pages/book/x/10",
            "pages/book/+1/10",
            "pages/book/01/10",
            "pages/book/1/",
            "pages//1/2",
            "recon/50%",
            "recon/%2",
            "recon/%+1",
            "recon/%ff",
            "recon/%zz",
            "a b/x",
            long.as_str(),
        ] {
            assert!(text.parse::<TextId>().is_err(), "{text:?}");
        }
    }

    /// A letter carries the headers of the task that died, and a task that is sent on those of the one before.
    // O34
    #[test]
    fn a_copy_in_another_queue_and_a_dead_letter_do_not_have_the_text_id_of_their_origin() {
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let id = header(TEXT_ID, "recon/system-x");
        assert!(TextId::of(&queue("recon"), std::slice::from_ref(&id)).is_some());
        assert_eq!(TextId::of(&queue("later"), std::slice::from_ref(&id)), None);
        assert_eq!(TextId::of(&queue("recon"), &[id, header(DEAD_TASK, "x")]), None);
        assert_eq!(TextId::of(&queue("recon"), &[header(TEXT_ID, "recon")]), None);
    }
}
