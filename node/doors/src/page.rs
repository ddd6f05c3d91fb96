//! The page that shows the description of `/v1` to a person, and sends requests for them. It needs nothing but this node.

use crate::state::State;
use axum::Router;
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Redirect};
use axum::routing::get;
use std::sync::Arc;

/// Place of the page.
pub const PLACE: &str = "/v1/docs";
/// Nothing is loaded but from this node, no script or style stands in the page, and no other page frames it.
const POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const PAGE: &str = include_str!("page/index.html");
const SCRIPT: &str = include_str!("page/page.js");
const STYLE: &str = include_str!("page/page.css");

/// The routes of the page. `/` leads to it.
pub fn router() -> Router<Arc<State>> {
    Router::new()
        .route("/", get(|| async { Redirect::temporary(PLACE) }))
        .route(PLACE, get(|| async { file("text/html; charset=utf-8", PAGE) }))
        .route("/v1/docs/page.js", get(|| async { file("text/javascript; charset=utf-8", SCRIPT) }))
        .route("/v1/docs/page.css", get(|| async { file("text/css; charset=utf-8", STYLE) }))
}

fn file(media_type: &'static str, text: &'static str) -> impl IntoResponse {
    let headers: [(HeaderName, &str); 3] = [
        (header::CONTENT_TYPE, media_type),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    (headers, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Door, Script};
    use axum::http::StatusCode;

    /// Values of the attributes `href` and `src` of the page, and what the script loads.
    fn references() -> Vec<&'static str> {
        let after = |text: &'static str, mark: &'static str| {
            text.split(mark).skip(1).filter_map(|rest| rest.split('"').next()).collect::<Vec<_>>()
        };
        [after(PAGE, "href=\""), after(PAGE, "src=\""), after(SCRIPT, "from \""), after(SCRIPT, "fetch(\"")].concat()
    }

    #[tokio::test]
    async fn each_reference_of_the_page_is_served_by_this_node() {
        let door = Door::new(Script::default());
        let references = references();
        assert!(references.contains(&"/v1/docs/page.js") && references.contains(&crate::openapi::PLACE));
        for reference in references {
            if reference.starts_with('#') {
                continue;
            }
            assert!(reference.starts_with('/') && !reference.starts_with("//"), "{reference} leads elsewhere");
            assert_eq!(door.get(reference).await.status, StatusCode::OK, "{reference}");
        }
    }

    #[tokio::test]
    async fn the_page_runs_nothing_that_stands_in_it_and_loads_nothing_from_elsewhere() {
        let door = Door::new(Script::default());
        for (place, media_type) in
            [(PLACE, "text/html"), ("/v1/docs/page.js", "text/javascript"), ("/v1/docs/page.css", "text/css")]
        {
            let answer = door.get(place).await;
            assert!(answer.header("content-type").starts_with(media_type), "{place}");
            assert!(answer.header("content-security-policy").contains("default-src 'self';"), "{place}");
            assert_eq!(answer.header("x-content-type-options"), "nosniff");
        }
        for inline in ["<style", "style=", "onclick", "onload", "javascript:", "<script>"] {
            assert!(!PAGE.contains(inline), "{inline}");
        }
        for risky in ["innerHTML", "outerHTML", "insertAdjacentHTML", "eval(", "document.write", ".style"] {
            assert!(!SCRIPT.contains(risky), "{risky}");
        }
        assert!(!PAGE.contains("://") && !STYLE.contains("url(") && !STYLE.contains("@import"));
        assert_eq!(PAGE.matches("<script").count(), 1);
    }

    #[tokio::test]
    async fn a_person_at_the_root_is_led_to_the_page() {
        let answer = Door::new(Script::default()).get("/").await;
        assert_eq!((answer.status, answer.header("location")), (StatusCode::TEMPORARY_REDIRECT, PLACE));
    }
}
