//! Health of the node, for balancers and orchestrators. Open to all.
//!
//! - `/livez`: the node takes events. It says nothing of peers, quorum, clocks, room or a disk that is slow: a restart would heal none of
//!   these.
//! - `/readyz`: it has read its log, belongs to a cluster and is not about to stop. A minority is ready: it takes what needs no majority.
//!   With `?claims=1` it must also know a leader of every partition that it holds, as claims need one.
//! - `/startupz`: it has read its log.

use crate::body::Query;
use crate::problem::Problem;
use crate::state::{Host, Phase, State};
use axum::Router;
use axum::extract::State as Shared;
use axum::http::StatusCode;
use axum::routing::get;
use norn_wire::response::Identity;
use serde::Deserialize;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// A node that takes no event for this long is stuck.
const ALIVE_TIMEOUT: Duration = Duration::from_secs(5);

type Answer = (StatusCode, String);

/// The routes.
pub fn router() -> Router<Arc<State>> {
    Router::new().route("/livez", get(alive)).route("/readyz", get(ready)).route("/startupz", get(started))
}

fn well(text: &str) -> Answer {
    (StatusCode::OK, format!("{text}\n"))
}

fn ill(text: &str) -> Answer {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{text}\n"))
}

/// What the node tells in time. `None`: it has stopped.
async fn in_time<T>(told: impl Future<Output = Option<T>>) -> Result<T, Answer> {
    match tokio::time::timeout(ALIVE_TIMEOUT, told).await {
        Ok(Some(told)) => Ok(told),
        Ok(None) => Err(ill("the node has stopped")),
        Err(_) => Err(ill("the node has taken no event for 5 s")),
    }
}

async fn is_alive(host: &Arc<dyn Host>) -> Result<(), Answer> {
    in_time(async { host.alive().await.then_some(()) }).await
}

async fn alive(Shared(state): Shared<Arc<State>>) -> Answer {
    let phase = state.phase.borrow().clone();
    match phase {
        Phase::Starting => well("reading the log"),
        Phase::Running(host) | Phase::Draining(host) => {
            is_alive(&host).await.map_or_else(|answer| answer, |()| well("alive"))
        }
    }
}

/// What a node must be able to do to be ready.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// 1: claims, too.
    #[serde(default)]
    claims: u8,
}

async fn ready(Shared(state): Shared<Arc<State>>, wanted: Result<Query<Wanted>, Problem>) -> Result<Answer, Problem> {
    let Query(Wanted { claims }) = wanted?;
    Ok(readiness(&state, claims > 0).await)
}

async fn readiness(state: &State, claims: bool) -> Answer {
    let phase = state.phase.borrow().clone();
    match phase {
        Phase::Starting => ill("the node is reading its log"),
        Phase::Draining(_) => ill("the node is about to stop"),
        Phase::Running(host) => match tokio::join!(is_alive(&host), in_time(host.identity())) {
            (Err(answer), _) => answer,
            (Ok(()), Err(_)) => ill("the node takes no request: its log waits for the disk"),
            (Ok(()), Ok(identity)) => readiness_of(&identity, claims),
        },
    }
}

fn readiness_of(identity: &Identity, claims: bool) -> Answer {
    if identity.genesis.is_none() {
        return ill(
            "the node has no cluster yet: found one with `norn cluster init`, or add it with `norn cluster add`",
        );
    }
    if claims && !identity.serving {
        return ill(
            "a partition of this node has no leader that it knows of: it takes tasks, and claims wait; see `norn partitions`",
        );
    }
    well("ready")
}

async fn started(Shared(state): Shared<Arc<State>>) -> Answer {
    match &*state.phase.borrow() {
        Phase::Starting => ill("the node is reading its log"),
        Phase::Running(_) | Phase::Draining(_) => well("started"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;
    use crate::state::Bounds;
    use crate::testing::samples::{identity, outsider};
    use crate::testing::{Door, Facts, Node};

    /// Statuses of `/livez`, `/readyz`, `/readyz?claims=1` and `/startupz`.
    async fn statuses(doors: &Door) -> [u16; 4] {
        let mut statuses = [0; 4];
        for (status, path) in statuses.iter_mut().zip(["/livez", "/readyz", "/readyz?claims=1", "/startupz"]) {
            // Open to all.
            *status = doors.get_as_stranger(path).await.status.as_u16();
        }
        statuses
    }

    fn node(identity: Option<Identity>) -> Arc<Node> {
        Node::telling(Facts { identity, ..Facts::default() })
    }

    #[tokio::test]
    async fn each_phase_of_a_node_has_its_health() {
        let doors = Door::of(Bounds::default(), Access::default(), Phase::Starting);
        assert_eq!(statuses(&doors).await, [200, 503, 503, 503], "it reads its log");
        for (node, expected, what) in [
            (node(Some(outsider())), [200, 503, 503, 200], "it has no cluster"),
            (node(Some(identity(false))), [200, 200, 503, 200], "a partition has no leader"),
            (node(Some(identity(true))), [200; 4], "all is well"),
            (node(None), [503, 503, 503, 200], "it has stopped"),
        ] {
            doors.phase.send_replace(Phase::Running(node));
            assert_eq!(statuses(&doors).await, expected, "{what}");
        }
        doors.phase.send_replace(Phase::Draining(node(Some(identity(true)))));
        assert_eq!(statuses(&doors).await, [200, 503, 503, 200], "it is about to stop");
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_takes_no_event_is_not_alive() {
        let stuck = Node::telling(Facts { identity: Some(identity(true)), stuck: true, ..Facts::default() });
        let doors = Door::of(Bounds::default(), Access::default(), Phase::Running(stuck));
        assert_eq!(statuses(&doors).await, [503, 503, 503, 200]);
        assert!(doors.get("/livez").await.body.contains("no event for 5 s"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_whose_log_is_full_is_alive_and_not_ready() {
        let full = Node::telling(Facts { identity: Some(identity(true)), log_full: true, ..Facts::default() });
        let doors = Door::of(Bounds::default(), Access::default(), Phase::Running(full));
        assert_eq!(statuses(&doors).await, [200, 503, 503, 200]);
        assert!(doors.get("/readyz").await.body.contains("waits for the disk"));
    }

    #[tokio::test]
    async fn health_is_told_under_any_load() {
        let bounds = Bounds { requests_max: 0, ..Bounds::default() };
        let doors = Door::of(bounds, Access::default(), Phase::Running(node(Some(identity(true)))));
        assert_eq!(statuses(&doors).await, [200; 4]);
        assert_eq!(doors.get("/metrics").await.status, 200);
        assert_eq!(doors.get("/v1/tasks/x").await.status, 429);
    }

    #[tokio::test]
    async fn an_unknown_question_is_refused() {
        let doors = Door::of(Bounds::default(), Access::default(), Phase::Running(node(Some(identity(true)))));
        for query in ["claim=1", "claims=yes", "claims=1&claims=1"] {
            let told = doors.get(&format!("/readyz?{query}")).await;
            let (status, kind) = (told.status.as_u16(), told.header("content-type"));
            assert_eq!((status, kind), (400, "application/problem+json"), "{query}");
        }
    }
}
