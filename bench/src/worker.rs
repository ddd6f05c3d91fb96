//! A client of the closed loop: over QUIC by the library, or over HTTP with one connection that is kept alive.

use crate::cluster::Cluster;
use crate::system::{Answer, Client as Loops, System, Usage};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use clap::ValueEnum;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use norn_client::client::{ClaimOptions, Client, ClientConfig, CompleteOptions};
use norn_client::session::Draft;
use norn_wire::{Acks, QueueName, TaskId, Token};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// Way of the clients to the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// The library, over QUIC.
    Quic,
    /// JSON over HTTP/1.1 in plain text.
    Http,
}

/// A cluster, reached in one of the ways.
#[derive(Debug, Clone, Copy)]
pub struct Reached<'a> {
    /// The nodes.
    pub cluster: &'a Cluster,
    /// Way to them.
    pub way: Way,
}

impl System for Reached<'_> {
    fn connect<'a>(&'a self, number: usize, queue: &'a QueueName) -> Answer<'a, Result<Box<dyn Loops>>> {
        Box::pin(async move {
            let worker: Box<dyn Loops> = match self.way {
                Way::Quic => Box::new(LibraryWorker::connect(self.cluster.config(number), queue.clone(), None).await?),
                Way::Http => Box::new(HttpWorker::connect(self.cluster.http_address(number)?, queue.clone()).await?),
            };
            Ok(worker)
        })
    }

    fn usage(&self) -> Answer<'_, Result<Usage>> {
        Box::pin(self.cluster.usage())
    }
}

/// A client of the library.
pub struct LibraryWorker {
    client: Client,
    queue: QueueName,
    lease: Option<Duration>,
    /// Claimed tasks.
    held: Vec<(TaskId, Token)>,
}

impl LibraryWorker {
    /// Connects over QUIC. Without a lease, claims have that of the queue.
    pub async fn connect(config: ClientConfig, queue: QueueName, lease: Option<Duration>) -> Result<LibraryWorker> {
        Ok(LibraryWorker::new(Client::connect(config).await?, queue, lease))
    }

    /// Works through this client.
    pub fn new(client: Client, queue: QueueName, lease: Option<Duration>) -> LibraryWorker {
        LibraryWorker { client, queue, lease, held: Vec::new() }
    }
}

impl Loops for LibraryWorker {
    fn enqueue<'a>(&'a mut self, payloads: &'a [Vec<u8>]) -> Answer<'a, Vec<String>> {
        Box::pin(enqueue(&self.client, &self.queue, payloads))
    }

    fn claim(&mut self, max: usize) -> Answer<'_, Result<Vec<Vec<u8>>>> {
        Box::pin(async move {
            let mut claim = ClaimOptions::new([self.queue.clone()]).max(max as u32).worker("bench");
            claim.lease = self.lease;
            let tasks = self.client.claim(claim).await?.tasks;
            self.held.extend(tasks.iter().map(|task| (task.granted.id, task.granted.token)));
            Ok(tasks.into_iter().map(|task| task.granted.payload).collect())
        })
    }

    fn complete(&mut self) -> Answer<'_, (u64, Vec<String>)> {
        Box::pin(complete(&self.client, std::mem::take(&mut self.held)))
    }

    fn close(self: Box<Self>) -> Answer<'static, ()> {
        Box::pin(async move { self.client.close().await })
    }
}

/// A client over HTTP, with one connection.
struct HttpWorker {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    connection: JoinHandle<()>,
    queue: QueueName,
    /// Claimed tasks.
    held: Vec<(TaskId, Token)>,
}

impl Loops for HttpWorker {
    fn enqueue<'a>(&'a mut self, payloads: &'a [Vec<u8>]) -> Answer<'a, Vec<String>> {
        Box::pin(async move {
            let task = |payload: &Vec<u8>| json!({ "queue": self.queue, "data": String::from_utf8_lossy(payload) });
            let body = match payloads {
                [payload] => task(payload),
                several => several.iter().map(task).collect::<Vec<Value>>().into(),
            };
            failures_in(self.call("/v1/tasks", &body).await)
        })
    }

    fn claim(&mut self, max: usize) -> Answer<'_, Result<Vec<Vec<u8>>>> {
        Box::pin(async move {
            let body = json!({ "queues": [self.queue], "max": max, "worker": "bench" });
            let answer = self.call("/v1/claims", &body).await?;
            let tasks = answer["tasks"].as_array().context("an answer without tasks")?;
            let field = |task: &Value, name: &str| task[name].as_str().unwrap_or_default().to_owned();
            for task in tasks {
                self.held.push((field(task, "id").parse()?, field(task, "token").parse()?));
            }
            Ok(tasks.iter().map(|task| field(task, "data").into_bytes()).collect())
        })
    }

    fn complete(&mut self) -> Answer<'_, (u64, Vec<String>)> {
        Box::pin(async {
            let held = std::mem::take(&mut self.held);
            let failed = failures_in(match held.as_slice() {
                [(id, token)] => self.call(&format!("/v1/tasks/{id}/claims/{token}/complete"), &json!({})).await,
                several => {
                    let items: Vec<Value> = several
                        .iter()
                        .map(|(id, token)| json!({ "id": id.to_string(), "token": token.to_string() }))
                        .collect();
                    self.call("/v1/claims/complete", &json!({ "items": items })).await
                }
            });
            (held.len().saturating_sub(failed.len()) as u64, failed)
        })
    }

    fn close(self: Box<Self>) -> Answer<'static, ()> {
        Box::pin(async move { self.connection.abort() })
    }
}

/// Enqueues a task for each payload, over QUIC. Returns failures.
pub async fn enqueue(client: &Client, queue: &QueueName, payloads: &[Vec<u8>]) -> Vec<String> {
    let drafts = payloads.iter().map(|payload| Draft::new(queue.clone(), payload.clone())).collect();
    failures(client.enqueue_many(drafts, Acks::Quorum).await)
}

/// Completes claimed tasks over QUIC. Returns how many it completed, and failures.
pub async fn complete(client: &Client, held: Vec<(TaskId, Token)>) -> (u64, Vec<String>) {
    let done = held.iter().map(|(id, token)| CompleteOptions::new(*id, *token)).collect();
    let failed = failures(client.complete_many(done, Acks::Quorum).await);
    (held.len().saturating_sub(failed.len()) as u64, failed)
}

fn failures<T, E: std::fmt::Display>(results: Vec<Result<T, E>>) -> Vec<String> {
    results.into_iter().filter_map(Result::err).map(|error| error.to_string()).collect()
}

/// Failures in the answer to a call, or to its items.
fn failures_in(answer: Result<Value>) -> Vec<String> {
    match answer {
        Ok(answer) => {
            let items = answer.as_array().or_else(|| answer["items"].as_array()).into_iter().flatten();
            items.map(|item| &item["error"]).filter(|error| !error.is_null()).map(Value::to_string).collect()
        }
        Err(error) => vec![format!("{error:#}")],
    }
}

impl HttpWorker {
    async fn connect(address: &str, queue: QueueName) -> Result<HttpWorker> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // Its end shows at the next call.
        let connection = tokio::spawn(async move { drop(connection.await) });
        Ok(HttpWorker { sender, host: address.to_owned(), connection, queue, held: Vec::new() })
    }

    async fn call(&mut self, path: &str, body: &Value) -> Result<Value> {
        let body = Full::new(Bytes::from(serde_json::to_vec(body)?));
        let request = Request::builder().method(Method::POST).uri(path);
        let request = request.header(HOST, &self.host).header(CONTENT_TYPE, "application/json").body(body)?;
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let status = response.status();
        let bytes = response.into_body().collect().await?.to_bytes();
        ensure!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&bytes));
        Ok(serde_json::from_slice(&bytes)?)
    }
}
