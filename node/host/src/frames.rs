//! Reads frames off a stream, within bounds of size, memory and time.

use norn_wire::codec::{FrameError, HEADER_BYTES, Header, split};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes requested from a stream at once.
const READ_BYTES: usize = 16 << 10;
/// Larger frames count against the common budget while they are read.
const SMALL_FRAME_BYTES: usize = 64 << 10;
/// Most capacity that an idle reader keeps.
const KEPT_BYTES_MAX: usize = 256 << 10;
/// Unit of the budget.
const BUDGET_UNIT_BYTES: usize = 1 << 10;

/// Why reading ended.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The bytes are not a frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The stream broke.
    #[error("stream: {0}")]
    Stream(#[from] io::Error),
    /// The stream ended within a frame.
    #[error("the stream ended within a frame")]
    Torn,
    /// A frame was begun and not finished in time.
    #[error("a frame was not finished within {0:?}")]
    Slow(Duration),
}

/// Memory for large frames that are being read, shared by all streams of a node: a sender that announces a large frame and delivers
/// it slowly delays other large frames for a while, and nothing else.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Semaphore>);

impl Budget {
    /// A budget of this many bytes.
    pub fn new(bytes: usize) -> Self {
        Budget(Arc::new(Semaphore::new(bytes / BUDGET_UNIT_BYTES)))
    }

    async fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let units = u32::try_from(bytes.div_ceil(BUDGET_UNIT_BYTES)).ok()?;
        // The semaphore is never closed, so acquiring does not fail.
        Arc::clone(&self.0).acquire_many_owned(units).await.ok()
    }
}

/// Frames of one stream, in order.
#[derive(Debug)]
pub struct FrameReader<S> {
    stream: S,
    buffer: Vec<u8>,
    /// Consumed bytes at the front of the buffer.
    used: usize,
    version: u8,
    limit: usize,
    timeout: Duration,
    budget: Budget,
    held: Option<OwnedSemaphorePermit>,
}

impl<S: AsyncRead + Unpin> FrameReader<S> {
    /// Reads frames of a protocol version with bodies of up to `limit` bytes, each within `timeout` of its first byte.
    pub fn new(stream: S, version: u8, limit: usize, timeout: Duration, budget: Budget) -> Self {
        FrameReader { stream, buffer: Vec::new(), used: 0, version, limit, timeout, budget, held: None }
    }

    /// The next frame, or `None` at the end of the stream. Waits for its first byte without a limit.
    pub async fn next(&mut self) -> Result<Option<(Header, &[u8])>, ReadError> {
        self.release();
        let mut deadline = (self.used < self.buffer.len()).then(|| tokio::time::Instant::now() + self.timeout);
        loop {
            if let Some((header, end)) = split(&self.buffer[self.used..], self.version, self.limit)? {
                let start = self.used;
                self.used += end;
                return Ok(Some((header, &self.buffer[start + HEADER_BYTES..start + end])));
            }
            let read = match deadline {
                None => self.fill().await?,
                Some(deadline) => tokio::time::timeout_at(deadline, self.fill())
                    .await
                    .map_err(|_| ReadError::Slow(self.timeout))??,
            };
            deadline = deadline.or_else(|| Some(tokio::time::Instant::now() + self.timeout));
            match read {
                0 if self.used == self.buffer.len() => return Ok(None),
                0 => return Err(ReadError::Torn),
                _ => {}
            }
        }
    }

    /// The first frame, which must arrive whole within the timeout of a frame, counted from the start of the stream.
    pub async fn first(&mut self) -> Result<Option<(Header, &[u8])>, ReadError> {
        let timeout = self.timeout;
        tokio::time::timeout(timeout, self.next()).await.map_err(|_| ReadError::Slow(timeout))?
    }

    /// Changes the limit on bodies, once the sender is known.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Reads more bytes; takes from the budget before a large frame grows the buffer.
    async fn fill(&mut self) -> Result<usize, ReadError> {
        if self.used > 0 {
            self.buffer.drain(..self.used);
            self.used = 0;
        }
        if self.held.is_none()
            && let Some(head) = self.buffer.first_chunk::<HEADER_BYTES>()
        {
            let length = norn_wire::codec::decode_header(head, self.version, self.limit)?.length;
            if length > SMALL_FRAME_BYTES {
                self.held = self.budget.take(length).await;
                self.buffer.reserve((HEADER_BYTES + length).saturating_sub(self.buffer.len()));
            }
        }
        self.buffer.reserve(READ_BYTES);
        Ok(self.stream.read_buf(&mut self.buffer).await?)
    }

    /// Releases the resources of the last frame.
    fn release(&mut self) {
        self.held = None;
        if self.used == self.buffer.len() {
            self.used = 0;
            self.buffer.clear();
            if self.buffer.capacity() > KEPT_BYTES_MAX {
                self.buffer = Vec::new();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use norn_wire::Request;
    use norn_wire::codec::{Kind, decode_body, encode_named};
    use tokio::io::AsyncWriteExt;

    const LIMIT: usize = 1 << 20;
    const VERSION: u8 = 2;

    fn frame(number: u64, name: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_named(
            &mut bytes,
            VERSION,
            Kind::Request,
            number,
            &Request::Hello { name: name.to_owned(), bare: false },
        );
        bytes
    }

    fn reader<S: AsyncRead + Unpin>(stream: S) -> FrameReader<S> {
        FrameReader::new(stream, VERSION, LIMIT, Duration::from_secs(1), Budget::new(4 * LIMIT))
    }

    #[tokio::test]
    async fn frames_large_and_small_come_in_order_whatever_the_pieces() {
        let names: Vec<String> = [3, 200_000, 0, 70_000].into_iter().map(|length| "x".repeat(length)).collect();
        let bytes: Vec<u8> = names.iter().enumerate().flat_map(|(number, name)| frame(number as u64, name)).collect();
        let (mut near, far) = tokio::io::duplex(777);
        tokio::spawn(async move { near.write_all(&bytes).await });
        let mut reader = reader(far);
        for (number, name) in names.iter().enumerate() {
            let (header, body) = reader.next().await.unwrap().expect("a frame");
            assert_eq!(header.request, number as u64);
            assert_eq!(
                decode_body::<Request>(&header, body).unwrap(),
                Request::Hello { name: name.clone(), bare: false }
            );
        }
        assert!(reader.next().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_torn_an_oversized_and_a_foreign_frame_are_errors() {
        let whole = frame(1, "name");
        assert!(matches!(reader(&whole[..whole.len() - 1]).next().await, Err(ReadError::Torn)));
        let mut long = whole.clone();
        long[0] = 0xff;
        assert!(matches!(reader(&long[..]).next().await, Err(ReadError::Frame(FrameError::Length { .. }))));
        assert!(matches!(reader(&b"GET / HTTP/1.1\r\nHost: norn\r\n"[..]).next().await, Err(ReadError::Frame(_))));
    }

    #[tokio::test]
    async fn a_frame_must_be_finished_in_time_but_may_be_begun_late() {
        let (mut near, far) = tokio::io::duplex(777);
        let patience = Duration::from_millis(20);
        let mut reader = FrameReader::new(far, VERSION, LIMIT, patience, Budget::new(4 * LIMIT));
        let waits = tokio::time::timeout(patience * 5, reader.next()).await;
        assert!(waits.is_err(), "no byte, no hurry");
        near.write_all(&frame(1, "name")[..10]).await.unwrap();
        assert!(matches!(reader.next().await, Err(ReadError::Slow(_))));
    }
}
