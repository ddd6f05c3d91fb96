//! A client of the closed loop: over QUIC by the library, or over HTTP with one connection that is kept alive.

use crate::cluster::Cluster;
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use clap::ValueEnum;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use norn_client::client::{ClaimOptions, Client, CompleteOptions};
use norn_client::session::Draft;
use norn_wire::{Acks, QueueName, TaskId, Token};
use serde_json::{Value, json};
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

/// A client.
pub enum Worker {
    Quic(Client),
    Http(HttpWorker),
}

/// A connection for HTTP.
pub struct HttpWorker {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    connection: JoinHandle<()>,
}

impl Worker {
    /// Connects the client with this number: each starts with another node.
    pub async fn connect(cluster: &Cluster, number: usize, way: Way) -> Result<Worker> {
        match way {
            Way::Quic => Ok(Worker::Quic(Client::connect(cluster.config(number)).await?)),
            Way::Http => Ok(Worker::Http(HttpWorker::connect(cluster.http_address(number)?).await?)),
        }
    }

    /// Enqueues tasks in one call. Returns the failures.
    pub async fn enqueue(&mut self, queue: &QueueName, payload: &[u8], count: usize) -> Vec<String> {
        match self {
            Worker::Quic(client) => {
                let drafts = (0..count).map(|_| Draft::new(queue.clone(), payload)).collect();
                failures(client.enqueue_many(drafts, Acks::Quorum).await)
            }
            Worker::Http(http) => {
                let task = json!({ "queue": queue, "data": String::from_utf8_lossy(payload) });
                let body = if count == 1 { task } else { vec![task; count].into() };
                failures_in(http.call("/v1/tasks", &body).await)
            }
        }
    }

    /// Claims tasks.
    pub async fn claim(&mut self, queue: &QueueName, max: usize) -> Result<Vec<(TaskId, Token)>> {
        match self {
            Worker::Quic(client) => {
                let claim = ClaimOptions::new([queue.clone()]).max(max as u32).worker("bench");
                let claims = client.claim(claim).await?;
                Ok(claims.tasks.iter().map(|task| (task.granted.id, task.granted.token)).collect())
            }
            Worker::Http(http) => {
                let body = json!({ "queues": [queue], "max": max, "worker": "bench" });
                let answer = http.call("/v1/claims", &body).await?;
                let tasks = answer["tasks"].as_array().context("an answer without tasks")?;
                let field = |task: &Value, name: &str| task[name].as_str().unwrap_or_default().to_owned();
                tasks.iter().map(|task| Ok((field(task, "id").parse()?, field(task, "token").parse()?))).collect()
            }
        }
    }

    /// Completes claimed tasks in one call. Returns the number of those that are done, and the failures.
    pub async fn complete(&mut self, tasks: &[(TaskId, Token)]) -> (u64, Vec<String>) {
        let failed = match self {
            Worker::Quic(client) => {
                let done = |(id, token): &(TaskId, Token)| CompleteOptions::new(*id, *token);
                failures(client.complete_many(tasks.iter().map(done).collect(), Acks::Quorum).await)
            }
            Worker::Http(http) => failures_in(match tasks {
                [(id, token)] => http.call(&format!("/v1/tasks/{id}/claims/{token}/complete"), &json!({})).await,
                several => {
                    let items: Vec<Value> = several
                        .iter()
                        .map(|(id, token)| json!({ "id": id.to_string(), "token": token.to_string() }))
                        .collect();
                    http.call("/v1/claims/complete", &json!({ "items": items })).await
                }
            }),
        };
        ((tasks.len() as u64).saturating_sub(failed.len() as u64), failed)
    }

    /// Ends the connection.
    pub async fn close(self) {
        match self {
            Worker::Quic(client) => client.close().await,
            Worker::Http(http) => http.connection.abort(),
        }
    }
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
    async fn connect(address: &str) -> Result<HttpWorker> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // Its end shows at the next call.
        let connection = tokio::spawn(async move { drop(connection.await) });
        Ok(HttpWorker { sender, host: address.to_owned(), connection })
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
