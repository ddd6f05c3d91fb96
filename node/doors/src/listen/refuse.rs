//! Refusals of connections that are not served. The reason arrives, as the connection is not closed on what the client has sent.

use crate::problem::Problem;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Refusals under way at once.
pub const REFUSALS_MAX: usize = 256;
/// Time limit for a refusal.
const REFUSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes of a refused client that are read past.
const LINGER_BYTES_MAX: usize = 256 << 10;
const LINGER_CHUNK_BYTES: usize = 2 << 10;

/// Closes a connection with the reason. What its client sends is read past for a moment: a connection that is closed with bytes unread
/// is reset, and the reason is lost with it.
pub async fn refuse<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, why: &Problem) {
    let text = text(why);
    let told = async {
        stream.write_all(text.as_bytes()).await?;
        stream.shutdown().await?;
        let (mut chunk, mut left) = ([0; LINGER_CHUNK_BYTES], LINGER_BYTES_MAX);
        while left > 0 {
            match stream.read(&mut chunk).await? {
                0 => break,
                bytes => left = left.saturating_sub(bytes),
            }
        }
        std::io::Result::Ok(())
    };
    // A client that hangs up first needs no reason.
    let _ = tokio::time::timeout(REFUSE_TIMEOUT, told).await;
}

fn text(why: &Problem) -> String {
    let status = why.status();
    let body = serde_json::to_string(why).unwrap_or_default();
    // As in other answers, a time is advised where a repeat helps.
    let again = if why.retry == norn_wire::Retry::Never { "" } else { "retry-after: 1\r\n" };
    format!(
        "HTTP/1.1 {} {}\r\nconnection: close\r\n{again}content-type: application/problem+json\r\ncontent-length: {}\r\n\r\n{body}",
        status.as_u16(),
        status.canonical_reason().unwrap_or_default(),
        body.len()
    )
}
