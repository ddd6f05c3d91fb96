//! What the machine allows at most: syncs of its disk, and messages over QUIC with nothing else around them.

use super::table::{Measured, Value, median};
use crate::process;
use anyhow::{Context, Result, anyhow, ensure};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, Endpoint, ServerConfig};
use rustls::RootCertStore;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Name of what is no system.
pub const NAME: &str = "bare";
/// Measured time of each limit.
const DURATION: Duration = Duration::from_secs(2);
/// Bytes of a synced write, and of the space in which they are.
const WRITE_BYTES: usize = 512;
const SPACE_BYTES: usize = 4 << 20;
/// Bytes of a message.
const MESSAGE_BYTES: usize = 256;
/// Name in the certificate.
const HOST: &str = "localhost";

/// Measures all limits; the disk in this directory.
pub async fn measure(directory: &Path, turn: usize) -> Result<Vec<Measured>> {
    let disk = sync_disk(directory).context("syncing the bare disk")?;
    let (ping_pong, stream) = exchange().await.context("bare QUIC")?;
    let named = [
        (format!("{WRITE_BYTES} bytes synced"), disk),
        (format!("QUIC, {MESSAGE_BYTES} bytes back and forth"), ping_pong),
        (format!("QUIC, {MESSAGE_BYTES} bytes one way"), stream),
    ];
    let measured = |(work, values)| Measured { work, system: NAME.to_owned(), turn, values };
    Ok(named.into_iter().map(measured).collect())
}

/// Loops of one thing.
struct Loops {
    started: Instant,
    cpu_seconds: f64,
    count: u64,
    each_ms: Vec<f64>,
}

impl Loops {
    fn start() -> Result<Loops> {
        let cpu_seconds = process::cpu_seconds(std::process::id())?;
        Ok(Loops { started: Instant::now(), cpu_seconds, count: 0, each_ms: Vec::new() })
    }

    fn are_over(&self) -> bool {
        self.started.elapsed() >= DURATION
    }

    fn values(self) -> Result<Vec<Value>> {
        let seconds = self.started.elapsed().as_secs_f64();
        let cpu_seconds = process::cpu_seconds(std::process::id())? - self.cpu_seconds;
        ensure!(self.count > 0, "nothing was done");
        Ok(vec![
            Value::compared("per_s", self.count as f64 / seconds, 0),
            Value::plain("p50_ms", if self.each_ms.is_empty() { 0.0 } else { median(self.each_ms) }, 3),
            Value::plain("cpu_s_per_10k", cpu_seconds * 1e4 / self.count as f64, 3),
        ])
    }
}

/// Writes and syncs, one after the other, in space that has been written before.
fn sync_disk(directory: &Path) -> Result<Vec<Value>> {
    let path = directory.join(format!("norn-bench-{}-limit", std::process::id()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    // It goes with the last handle.
    std::fs::remove_file(&path)?;
    file.write_all_at(&vec![0; SPACE_BYTES], 0)?;
    file.sync_all()?;
    let mut loops = Loops::start()?;
    while !loops.are_over() {
        let begin = Instant::now();
        file.write_all_at(&[loops.count as u8; WRITE_BYTES], loops.count * WRITE_BYTES as u64 % SPACE_BYTES as u64)?;
        file.sync_data()?;
        loops.each_ms.push(begin.elapsed().as_secs_f64() * 1e3);
        loops.count += 1;
    }
    loops.values()
}

/// Messages between two ends on loopback: each answered before the next one, and as many as go one way.
async fn exchange() -> Result<(Vec<Value>, Vec<Value>)> {
    let (server, client) = endpoints()?;
    let address = server.local_addr()?;
    let accepting = tokio::spawn(async move {
        let connection = server.accept().await.context("no connection")?.await?;
        serve(&connection).await?;
        connection.closed().await;
        anyhow::Ok(())
    });
    let connection = client.connect(address, HOST)?.await?;
    let ping_pong = ping_pong(&connection).await?;
    let stream = stream(&connection).await?;
    connection.close(0_u32.into(), b"");
    accepting.await??;
    client.wait_idle().await;
    Ok((ping_pong, stream))
}

fn endpoints() -> Result<(Endpoint, Endpoint)> {
    let signed = rcgen::generate_simple_self_signed([HOST.to_owned()])?;
    let certificate = signed.cert.der().clone();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(signed.signing_key.serialize_der()));
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = [&rustls::version::TLS13];
    let server = rustls::ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(&versions)?;
    let server = server.with_no_client_auth().with_single_cert(vec![certificate], key)?;
    let server = quinn::crypto::rustls::QuicServerConfig::try_from(server)?;
    let client = rustls::ClientConfig::builder_with_provider(provider).with_protocol_versions(&versions)?;
    let client = client.with_root_certificates(roots).with_no_client_auth();
    let client = ClientConfig::new(Arc::new(QuicClientConfig::try_from(client)?));
    let server = Endpoint::server(ServerConfig::with_crypto(Arc::new(server)), "127.0.0.1:0".parse()?)?;
    let mut from = Endpoint::client("127.0.0.1:0".parse()?)?;
    from.set_default_client_config(client);
    Ok((server, from))
}

/// Answers each message of one stream, and then counts those of another.
async fn serve(connection: &Connection) -> Result<()> {
    let (mut answers, mut questions) = connection.accept_bi().await?;
    let mut message = [0; MESSAGE_BYTES];
    while questions.read_exact(&mut message).await.is_ok() {
        answers.write_all(&message).await?;
    }
    let (mut answers, mut messages) = connection.accept_bi().await?;
    let mut count = 0_u64;
    while messages.read_exact(&mut message).await.is_ok() {
        count += 1;
    }
    answers.write_all(&count.to_be_bytes()).await?;
    answers.finish()?;
    Ok(())
}

async fn ping_pong(connection: &Connection) -> Result<Vec<Value>> {
    let (mut questions, mut answers) = connection.open_bi().await?;
    let mut message = [7; MESSAGE_BYTES];
    let mut loops = Loops::start()?;
    while !loops.are_over() {
        let begin = Instant::now();
        questions.write_all(&message).await?;
        answers.read_exact(&mut message).await?;
        loops.each_ms.push(begin.elapsed().as_secs_f64() * 1e3);
        loops.count += 1;
    }
    questions.finish()?;
    loops.values()
}

async fn stream(connection: &Connection) -> Result<Vec<Value>> {
    let (mut messages, mut answer) = connection.open_bi().await?;
    let mut loops = Loops::start()?;
    while !loops.are_over() {
        messages.write_all(&[7; MESSAGE_BYTES]).await?;
    }
    messages.finish()?;
    let mut count = [0; 8];
    answer.read_exact(&mut count).await.map_err(|error| anyhow!("no count: {error}"))?;
    loops.count = u64::from_be_bytes(count);
    loops.values()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_limits_are_measured() {
        let measured = measure(&std::env::temp_dir(), 3).await.expect("limits");
        assert_eq!(measured.len(), 3);
        assert!(measured.iter().all(|limit| limit.turn == 3 && limit.values[0].number > 0.0), "{measured:?}");
    }
}
