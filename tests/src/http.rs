//! A small client of HTTP/1.1, for the doors of nodes: one connection for each request, whole answers and streams of events.

use crate::wait::{PATIENCE, found};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// The door of a node.
#[derive(Debug, Clone)]
pub struct Http {
    address: String,
}

/// An answer, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpAnswer {
    /// Status.
    pub status: u16,
    /// Headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
}

impl HttpAnswer {
    /// The first header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The body as JSON of an answer with this status.
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        self.json()
    }
}

fn find<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
}

impl Http {
    /// The door at this address, `HOST:PORT`, in plain text.
    pub fn new(address: impl Into<String>) -> Http {
        Http { address: address.into() }
    }

    /// Asks for something.
    pub fn get(&self, target: &str) -> HttpAnswer {
        self.call("GET", target, "")
    }

    /// Sends a request with a JSON body; none if it is empty.
    pub fn call(&self, method: &str, target: &str, body: &str) -> HttpAnswer {
        let kind = [("content-type", "application/json")];
        let headers = if body.is_empty() { &[][..] } else { &kind[..] };
        self.send(method, target, headers, body.as_bytes()).unwrap_or_else(|error| panic!("{method} {target}: {error}"))
    }

    /// Asks for something, with a JSON body if one is given. An error means that the node did not answer.
    pub fn ask(&self, method: &str, target: &str, body: Option<&Value>) -> std::io::Result<HttpAnswer> {
        let text = body.map(Value::to_string).unwrap_or_default();
        let headers = [("content-type", "application/json")];
        self.send(method, target, if body.is_some() { &headers } else { &[] }, text.as_bytes())
    }

    /// Repeats a request for as long as the node says that it did not take effect and may later: 429 and 503.
    pub fn served(&self, mut request: impl FnMut(&Http) -> std::io::Result<HttpAnswer>) -> HttpAnswer {
        found("the node serves", || {
            let answer = request(self).expect("the node runs");
            (![429, 503].contains(&answer.status)).then_some(answer)
        })
    }

    /// Sends a request. An error means that the node did not answer it.
    pub fn send(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> std::io::Result<HttpAnswer> {
        let mut stream = self.open(method, target, headers, body)?;
        let mut whole = Vec::new();
        while let Some(chunk) = stream.chunk()? {
            whole.extend_from_slice(&chunk);
        }
        Ok(HttpAnswer { status: stream.status, headers: stream.headers, body: whole })
    }

    /// Sends a request and returns as soon as the headers of its answer are here.
    pub fn open(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> std::io::Result<HttpStream> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut head = format!("{method} {target} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", self.address);
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        if !body.is_empty() {
            head += &format!("content-length: {}\r\n", body.len());
        }
        stream.write_all(&[head.as_bytes(), b"\r\n", body].concat())?;
        HttpStream::begin(BufReader::new(stream))
    }
}

/// An answer whose body arrives.
#[derive(Debug)]
pub struct HttpStream {
    /// Status.
    pub status: u16,
    /// Headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    from: BufReader<TcpStream>,
    length: Length,
    /// Text of events that is not complete.
    text: String,
}

/// How the end of a body is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    /// This number of bytes is left.
    Known(usize),
    Chunked,
    /// The connection ends with it.
    Open,
    Over,
}

/// One of a stream of events.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HttpEvent {
    /// Place to go on from.
    pub id: Option<String>,
    /// Name; none for the usual kind.
    pub name: Option<String>,
    /// Data.
    pub data: String,
}

impl HttpEvent {
    /// The data as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

fn wrong(what: &str, text: &str) -> std::io::Error {
    std::io::Error::other(format!("{what}: {text:?}"))
}

fn line(from: &mut impl BufRead) -> std::io::Result<String> {
    let mut line = String::new();
    match from.read_line(&mut line)? {
        0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line.trim_end_matches(['\r', '\n']).to_owned()),
    }
}

impl HttpStream {
    fn begin(mut from: BufReader<TcpStream>) -> std::io::Result<HttpStream> {
        let first = line(&mut from)?;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| wrong("this is no answer", &first))?;
        let mut headers = Vec::new();
        loop {
            let text = line(&mut from)?;
            if text.is_empty() {
                break;
            }
            let (name, value) = text.split_once(':').ok_or_else(|| wrong("this is no header", &text))?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let length = match (find(&headers, "transfer-encoding"), find(&headers, "content-length")) {
            _ if status == 204 || status == 304 => Length::Over,
            (Some("chunked"), _) => Length::Chunked,
            (_, Some(length)) => Length::Known(length.parse().map_err(|_| wrong("this is no length", length))?),
            (_, None) => Length::Open,
        };
        Ok(HttpStream { status, headers, from, length, text: String::new() })
    }

    /// The next piece of the body; `None` at its end.
    pub fn chunk(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        let (size, ends_after) = match self.length {
            Length::Over | Length::Known(0) => return Ok(None),
            Length::Known(size) => (size, true),
            Length::Open => {
                let mut rest = Vec::new();
                self.from.read_to_end(&mut rest)?;
                self.length = Length::Over;
                return Ok(Some(rest));
            }
            Length::Chunked => {
                let text = line(&mut self.from)?;
                let size = text.split(';').next().unwrap_or_default();
                (usize::from_str_radix(size, 16).map_err(|_| wrong("this is no size of a chunk", &text))?, false)
            }
        };
        let mut chunk = vec![0; size];
        self.from.read_exact(&mut chunk)?;
        if ends_after {
            self.length = Length::Over;
        } else {
            line(&mut self.from)?;
            if size == 0 {
                self.length = Length::Over;
                return Ok(None);
            }
        }
        Ok(Some(chunk))
    }

    /// The next event, comments left out; `None` at the end of the stream.
    pub fn event(&mut self) -> std::io::Result<Option<HttpEvent>> {
        loop {
            while let Some((block, rest)) = self.text.split_once("\n\n") {
                let event = parse(block);
                self.text = rest.to_owned();
                if !event.data.is_empty() {
                    return Ok(Some(event));
                }
            }
            let Some(chunk) = self.chunk()? else { return Ok(None) };
            self.text.push_str(&String::from_utf8(chunk).map_err(std::io::Error::other)?);
        }
    }
}

fn parse(block: &str) -> HttpEvent {
    let mut event = HttpEvent::default();
    for line in block.lines() {
        match line.split_once(": ") {
            Some(("id", id)) => event.id = Some(id.to_owned()),
            Some(("event", name)) => event.name = Some(name.to_owned()),
            Some(("data", data)) => event.data.push_str(data),
            _ => {}
        }
    }
    event
}
