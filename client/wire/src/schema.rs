//! Schemas of types whose JSON is a text: the forms that programs see at the doors, not the bytes of the wire.

use crate::ids::{ClusterId, NodeId, QueueName, TaskId, TaskVersion, Token};
use crate::response::ClaimOutcome;
use std::borrow::Cow;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// Characters of a task id, in either case, with those that stand for similar ones.
const ID_PATTERN: &str = "^[0-9a-zA-Z]{32}$";
/// Visible characters without commas, and at most one `/` with text on both sides.
const QUEUE_PATTERN: &str = r"^[^\s,/]+(/[^\s,/]+)?$";

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

fn pattern(pattern: &str, example: &str) -> ObjectBuilder {
    text().pattern(Some(pattern)).examples([example])
}

macro_rules! text_schemas {
    ($($name:ident: $description:literal, $object:expr;)+) => {$(
        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                $object.description(Some($description)).build().into()
            }
        }

        impl ToSchema for $name {
            fn name() -> Cow<'static, str> {
                stringify!($name).into()
            }
        }
    )+};
}

text_schemas! {
    TaskId: "Id of a task: 32 characters that sort by age.", pattern(ID_PATTERN, "000038fxj5g21b4sg6y000800g17ne5m");
    Token: "Fencing token of a claim: `EPOCH.NUMBER`. It sorts by epoch, then number.", pattern(r"^[0-9]+\.[0-9]+$", "2.1");
    TaskVersion: "Version of a task, for the precondition of a transaction: 16 hexadecimal digits.",
        pattern("^[0-9a-fA-F]{16}$", "00000000000000ff");
    NodeId: "Identity of a node: 32 hexadecimal digits.",
        pattern("^[0-9a-f]{32}$", "9b7ab31e5f0c4d7e8a1b2c3d4e5f6071");
    ClusterId: "Identity of a cluster: 32 hexadecimal digits.",
        pattern("^[0-9a-f]{32}$", "0f1e2d3c4b5a69788796a5b4c3d2e1f0");
    QueueName: "Name of a queue: `namespace/queue`, or `queue` in the default namespace; 255 bytes at most.",
        pattern(QUEUE_PATTERN, "team/mail").min_length(Some(1)).max_length(Some(QueueName::BYTES_MAX));
    ClaimOutcome: "How a claim ended; `other` for an outcome of a later version.",
        text().enum_values(Some(ClaimOutcome::ALL.map(ClaimOutcome::name).into_iter().chain([ClaimOutcome::Other.name()])));
}
