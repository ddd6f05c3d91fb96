//! Reader of standard input, a file or a prompt, on its own thread: reading blocks, and a connection must be kept alive meanwhile. The
//! program does not wait for the thread, so that an open terminal does not delay its end.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::mpsc;
use tokio::sync::oneshot;

const BUFFER_BYTES: usize = 256 << 10;

/// Purpose of a line, which decides the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A command.
    Command,
    /// Data of a command.
    Data,
}

/// Outcome of reading a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// A line, without its end.
    Line(Vec<u8>),
    /// The line was longer than allowed and has been skipped.
    TooLong,
    /// The person abandoned the line (Ctrl-C).
    Interrupted,
    /// End of the input.
    End,
}

/// Source of lines. Its methods may block.
pub trait Source {
    /// Reads one line.
    fn line(&mut self, purpose: Purpose, bytes_max: usize) -> io::Result<Reading>;

    /// Reads the rest of the input, cut off at one byte more than allowed.
    fn rest(&mut self, bytes_max: usize) -> io::Result<Vec<u8>>;

    /// Whether the next line of a batch is available without blocking for long.
    fn ready(&self) -> bool;

    /// Drops lines typed ahead at a terminal. A file or a pipe keeps its lines.
    fn discard(&mut self) {}
}

/// A file or a pipe.
pub struct Stream<R> {
    reader: BufReader<R>,
    /// True for a file, which always has its next line at once; a pipe may block.
    patient: bool,
}

impl<R: Read> Source for Stream<R> {
    fn line(&mut self, _: Purpose, bytes_max: usize) -> io::Result<Reading> {
        let mut line = Vec::new();
        let limit = bytes_max as u64 + 2;
        if self.reader.by_ref().take(limit).read_until(b'\n', &mut line)? == 0 {
            return Ok(Reading::End);
        }
        let ended = line.ends_with(b"\n");
        if ended {
            line.pop();
        }
        if line.ends_with(b"\r") {
            line.pop();
        }
        if line.len() <= bytes_max {
            return Ok(Reading::Line(line));
        }
        if !ended {
            self.reader.skip_until(b'\n')?;
        }
        Ok(Reading::TooLong)
    }

    fn rest(&mut self, bytes_max: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.reader.by_ref().take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn ready(&self) -> bool {
        self.patient || self.reader.buffer().contains(&b'\n')
    }
}

enum Ask {
    Lines { purpose: Purpose, lines_max: usize, bytes_max: usize, reply: oneshot::Sender<io::Result<Vec<Reading>>> },
    Rest { bytes_max: usize, reply: oneshot::Sender<io::Result<Vec<u8>>> },
    Discard,
}

type Open = Box<dyn FnOnce() -> io::Result<Box<dyn Source>> + Send>;

/// An asynchronous handle on a [`Source`].
pub struct Input {
    /// Opener, until the first request, so that a verb that reads nothing starts no thread.
    open: Option<Open>,
    asks: Option<mpsc::Sender<Ask>>,
}

impl Input {
    /// Creates an input whose source is opened, on the reading thread, at the first request.
    pub fn new(open: impl FnOnce() -> io::Result<Box<dyn Source>> + Send + 'static) -> Input {
        Input { open: Some(Box::new(open)), asks: None }
    }

    /// Creates an input from standard input of the process.
    pub fn stdin() -> Input {
        Input::pipe(io::stdin())
    }

    /// Creates an input from a reader that may block.
    pub fn pipe(reader: impl Read + Send + 'static) -> Input {
        Input::new(|| Ok(Box::new(Stream { reader: BufReader::with_capacity(BUFFER_BYTES, reader), patient: false })))
    }

    /// Creates an input from a file.
    pub fn file(path: &Path) -> io::Result<Input> {
        let file = std::fs::File::open(path)?;
        Ok(Input::new(|| Ok(Box::new(Stream { reader: BufReader::with_capacity(BUFFER_BYTES, file), patient: true }))))
    }

    /// Reads one line.
    pub async fn line(&mut self, purpose: Purpose, bytes_max: usize) -> io::Result<Reading> {
        let mut readings = self.ask_lines(purpose, 1, bytes_max).await?;
        Ok(readings.pop().unwrap_or(Reading::End))
    }

    /// Reads lines of data: waits for the first, then takes those available. `bytes_max` bounds each line, and all but the last together.
    pub async fn batch(&mut self, lines_max: usize, bytes_max: usize) -> io::Result<Vec<Reading>> {
        self.ask_lines(Purpose::Data, lines_max, bytes_max).await
    }

    /// Reads the rest of the input, cut off at one byte more than allowed.
    pub async fn rest(&mut self, bytes_max: usize) -> io::Result<Vec<u8>> {
        let (reply, answer) = oneshot::channel();
        self.ask(Ask::Rest { bytes_max, reply })?;
        answer.await.map_err(|_| closed())?
    }

    /// Drops lines typed ahead, before the next line is read.
    pub fn discard(&mut self) -> io::Result<()> {
        self.ask(Ask::Discard)
    }

    async fn ask_lines(&mut self, purpose: Purpose, lines_max: usize, bytes_max: usize) -> io::Result<Vec<Reading>> {
        let (reply, answer) = oneshot::channel();
        self.ask(Ask::Lines { purpose, lines_max, bytes_max, reply })?;
        answer.await.map_err(|_| closed())?
    }

    fn ask(&mut self, ask: Ask) -> io::Result<()> {
        if let Some(open) = self.open.take() {
            let (sender, receiver) = mpsc::channel();
            std::thread::Builder::new().name("input".to_owned()).spawn(move || serve(open, &receiver))?;
            self.asks = Some(sender);
        }
        self.asks.as_ref().and_then(|asks| asks.send(ask).ok()).ok_or_else(closed)
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the input is closed")
}

fn serve(open: Open, asks: &mpsc::Receiver<Ask>) {
    let mut source = open();
    while let Ok(ask) = asks.recv() {
        // A dropped reply channel means that the caller was interrupted; the data read for it is lost with it.
        match (ask, &mut source) {
            (Ask::Lines { purpose, lines_max, bytes_max, reply }, Ok(source)) => {
                let _ = reply.send(read_lines(source.as_mut(), purpose, lines_max, bytes_max));
            }
            (Ask::Rest { bytes_max, reply }, Ok(source)) => {
                let _ = reply.send(source.rest(bytes_max));
            }
            (Ask::Discard, Ok(source)) => source.discard(),
            (Ask::Discard, Err(_)) => {}
            (Ask::Lines { reply, .. }, Err(error)) => {
                let _ = reply.send(Err(io::Error::new(error.kind(), error.to_string())));
            }
            (Ask::Rest { reply, .. }, Err(error)) => {
                let _ = reply.send(Err(io::Error::new(error.kind(), error.to_string())));
            }
        }
    }
}

fn read_lines(
    source: &mut dyn Source,
    purpose: Purpose,
    lines_max: usize,
    bytes_max: usize,
) -> io::Result<Vec<Reading>> {
    let mut readings = Vec::new();
    let mut bytes = 0;
    loop {
        let reading = source.line(purpose, bytes_max)?;
        let ended = match &reading {
            Reading::Line(line) => {
                bytes += line.len();
                false
            }
            Reading::TooLong | Reading::Interrupted | Reading::End => true,
        };
        readings.push(reading);
        if ended || readings.len() >= lines_max || bytes >= bytes_max || !source.ready() {
            return Ok(readings);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_lose_their_ends_and_long_ones_are_skipped() {
        let mut input = Input::pipe(&b"one\r\ntwo\n\ntoo long\n12345\r\nlast"[..]);
        let mut readings = Vec::new();
        loop {
            match input.line(Purpose::Command, 5).await.unwrap() {
                Reading::End => break,
                reading => readings.push(reading),
            }
        }
        let line = |text: &str| Reading::Line(text.as_bytes().to_vec());
        assert_eq!(readings, [line("one"), line("two"), line(""), Reading::TooLong, line("12345"), line("last")]);
        assert_eq!(input.line(Purpose::Command, 5).await.unwrap(), Reading::End);
    }

    #[tokio::test]
    async fn the_rest_follows_the_lines_and_is_cut_off() {
        let mut input = Input::pipe(&b"one\na\r\n\xff"[..]);
        assert_eq!(input.line(Purpose::Command, 9).await.unwrap(), Reading::Line(b"one".to_vec()));
        assert_eq!(input.rest(9).await.unwrap(), b"a\r\n\xff");
        assert_eq!(Input::pipe(&b"12345"[..]).rest(3).await.unwrap(), b"1234");
    }

    #[tokio::test]
    async fn batches_are_bounded_by_lines_and_by_bytes() {
        let mut input = Input::pipe(&b"a\nb\nc\n123456\nd\n"[..]);
        assert_eq!(input.batch(2, 6).await.unwrap().len(), 2);
        assert_eq!(input.batch(9, 6).await.unwrap().len(), 2);
        let last = input.batch(9, 6).await.unwrap();
        assert_eq!(last[0], Reading::Line(b"d".to_vec()));
    }
}
