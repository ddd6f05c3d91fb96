//! Answers.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use norn_wire::{Guarantee, Retry};
use serde::Serialize;

use crate::problem::Problem;

/// Media type of JSON.
pub const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Room of a new answer.
const ANSWER_BYTES: usize = 512;

/// A value as JSON. Unlike that of the library it may borrow what it shows.
#[derive(Debug)]
pub struct Json<'a, T: ?Sized>(pub &'a T);

impl<T: Serialize + ?Sized> IntoResponse for Json<'_, T> {
    fn into_response(self) -> Response {
        let mut bytes = Vec::with_capacity(ANSWER_BYTES);
        if let Err(error) = serde_json::to_writer(&mut bytes, self.0) {
            let detail = format!("the answer could not be written as JSON: {error}");
            return Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", Retry::Never, detail).into_response();
        }
        let mut response = Response::new(Body::from(bytes));
        response.headers_mut().insert(header::CONTENT_TYPE, JSON);
        response
    }
}

/// Status of a stored task: 201 if a majority of its replicas has it on disk, 202 if fewer have.
pub fn status_of_ack(guarantee: Guarantee) -> StatusCode {
    match guarantee {
        Guarantee::Strict => StatusCode::CREATED,
        Guarantee::Sloppy => StatusCode::ACCEPTED,
    }
}
