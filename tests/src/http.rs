//! Requests over HTTP to the doors of nodes, as a simple program makes them: one connection for each.

use crate::wait;
use serde_json::Value;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longest time without a byte of an answer.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// A node's door.
#[derive(Debug, Clone, Copy)]
pub struct Http {
    address: SocketAddr,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Status.
    pub status: u16,
    /// Headers, with their names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
}

impl Reply {
    /// Value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

impl Http {
    /// The door at an address.
    pub fn new(address: SocketAddr) -> Http {
        Http { address }
    }

    /// Makes a request. An answer that breaks off is an error.
    pub fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> io::Result<Reply> {
        let mut stream = TcpStream::connect_timeout(&self.address, SILENCE_MAX)?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", self.address);
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
        stream.write_all(&[head.as_bytes(), body].concat())?;
        read(BufReader::new(stream))
    }

    /// Makes a request without a body.
    pub fn get(&self, path: &str) -> io::Result<Reply> {
        self.ask("GET", path, &[], &[])
    }

    /// Makes a request with a JSON body.
    pub fn post(&self, path: &str, body: &Value) -> io::Result<Reply> {
        self.ask("POST", path, &[("content-type", "application/json")], body.to_string().as_bytes())
    }

    /// Repeats a request for as long as the node says that it did not take effect and may later: 429 and 503.
    pub fn served(&self, mut request: impl FnMut(&Http) -> io::Result<Reply>) -> Reply {
        wait::found("the node serves", || {
            let reply = request(self).expect("the node runs");
            (![429, 503].contains(&reply.status)).then_some(reply)
        })
    }
}

fn line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    line.strip_suffix("\r\n").map(str::to_owned).ok_or_else(|| broken("the answer broke off within a line"))
}

fn read(mut stream: impl BufRead) -> io::Result<Reply> {
    let status = line(&mut stream)?;
    let status = status.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(|| broken(&status))?;
    let mut headers = Vec::new();
    loop {
        let line = line(&mut stream)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or_else(|| broken(&line))?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut reply = Reply { status, headers, body: Vec::new() };
    if reply.header("transfer-encoding") == Some("chunked") {
        loop {
            let size = line(&mut stream)?;
            let size = usize::from_str_radix(size.trim(), 16).map_err(|_| broken(&size))?;
            let before = reply.body.len();
            reply.body.resize(before + size, 0);
            stream.read_exact(&mut reply.body[before..])?;
            line(&mut stream)?;
            if size == 0 {
                return Ok(reply);
            }
        }
    }
    let size = reply.header("content-length").and_then(|size| size.parse().ok());
    match size {
        Some(size) => {
            reply.body.resize(size, 0);
            stream.read_exact(&mut reply.body)?;
        }
        None => {
            stream.read_to_end(&mut reply.body)?;
        }
    }
    Ok(reply)
}
