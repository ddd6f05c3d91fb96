"""Hooks of schemathesis: what it may do to a running cluster, and checks that it does not have."""

import json
import os
import sys
import urllib.request
from pathlib import Path

import schemathesis
from schemathesis.core.failures import AcceptedNegativeData, Failure
from schemathesis.openapi.checks import RejectedPositiveData

sys.path.insert(0, str(Path(__file__).parent))
from accepted import is_accepted, is_taken  # noqa: E402

# Longest wait that a request may ask for, so that a run ends in time.
WAIT_MS_MAX = 50
# Statuses of problem documents with their codes: the table of client/docs/http.md, without what cannot happen to healthy nodes.
CODES = {
    400: {"invalid"},
    404: {"not_found", "no_route"},
    405: {"method"},
    409: {"conflict", "superseded", "ended", "id_from_future"},
    410: {"too_old"},
    413: {"too_large"},
    415: {"media_type"},
    422: {"key_reused"},
    429: {"overloaded"},
    501: {"unsupported"},
    503: {"stale"},
}
RETRIES = {"now", "later", "never"}
# Operations that wait until each replica has the task of the path on disk: for a task that there is not, that is until they give up.
ALL_WAITS = {"cancel", "complete", "complete_many", "update", "close_group", "purge", "purge_task", "redrive"}
SEEDS: dict[str, str] = {}


def is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def name_of(case) -> str:
    return case.operation.definition.raw.get("operationId", case.operation.label)


def is_positive(case) -> bool:
    return case.meta is None or case.meta.generation.mode.is_positive


@schemathesis.hook
def after_load_schema(context, schema):
    """Stores a group with one of its members: no operation alone makes one that others find."""
    group = [{"queue": "joins", "join": {"total": 3}}, {"queue": "members", "number": 1}]
    request = urllib.request.Request(os.environ["NORN_DOOR"] + "/v1/tasks", json.dumps(group).encode())
    with urllib.request.urlopen(request, timeout=30) as answer:
        results = json.load(answer)
    SEEDS["group"] = (results["items"] if isinstance(results, dict) else results)[0]["id"]


@schemathesis.hook
def before_call(context, case, kwargs):
    """Shortens waits, changes no cluster, and aims at a group that is there."""
    operation, body = name_of(case), case.body
    if operation in ALL_WAITS and (case.query or {}).get("acks") == "all":
        case.query = {**case.query, "acks": "quorum"}
    if operation == "claim" and isinstance(body, dict) and is_count(body.get("wait_ms")):
        body["wait_ms"] = min(body["wait_ms"], WAIT_MS_MAX)
    if operation == "wait" and is_positive(case):
        case.query = {**(case.query or {}), "timeout_ms": WAIT_MS_MAX}
    if is_positive(case) and (case.query or {}).get("min_seq") not in (None, 1):
        # A replica waits two seconds for a log that is not that long yet. The boundary is tried, not each number behind it.
        case.query = {**case.query, "min_seq": 0}
    if operation == "change_cluster" and isinstance(body, dict) and body.get("dry_run", False) is False:
        body["dry_run"] = True
    if operation in ("close_group", "list_group_members") and is_positive(case) and "group" in SEEDS:
        case.path_parameters = {**case.path_parameters, "id": SEEDS["group"]}


@schemathesis.hook
def filter_failure(context, failure, case, response):
    """Drops refusals that are rules which the description cannot say, and what is taken for a reason."""
    if isinstance(failure, AcceptedNegativeData):
        return not is_taken(name_of(case), failure.message)
    if not isinstance(failure, RejectedPositiveData) or response.status_code != 400:
        return True
    try:
        return not is_accepted(name_of(case), response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return True


class WrongProblem(Failure):
    """A refusal or failure is not told as the documents say."""


class WrongEvents(Failure):
    """A stream has what is no event of the description."""


def wrong(kind, case, message):
    return kind(operation=case.operation.label, title=kind.__doc__.rstrip("."), message=message)


@schemathesis.check
def problem(ctx, response, case):
    """A refusal or failure is a problem document with a code that goes with its status."""
    status, headers = response.status_code, response.headers
    if not headers.get("x-request-id"):
        raise wrong(WrongProblem, case, "the answer has no X-Request-Id")
    if status < 400 or case.method.upper() == "HEAD":
        return
    kind = (headers.get("content-type") or [""])[0]
    if kind != "application/problem+json":
        raise wrong(WrongProblem, case, f"status {status} with the media type {kind!r}")
    told = response.json()
    faults = []
    if status != 405 and str(status) not in case.operation.definition.raw["responses"]:
        faults.append("the description of the operation does not have it")
    if told.get("status") != status:
        faults.append(f"`status` is {told.get('status')}")
    if told.get("code") not in CODES.get(status, ()):
        faults.append(f"`code` is {told.get('code')!r}")
    if told.get("retry") not in RETRIES:
        faults.append(f"`retry` is {told.get('retry')!r}")
    if told.get("instance") != headers["x-request-id"][0]:
        faults.append("`instance` is not X-Request-Id")
    if not told.get("detail") or not told.get("title"):
        faults.append("there is no `detail` or no `title`")
    if status in (429, 503, 504) and not headers.get("retry-after"):
        faults.append("there is no Retry-After")
    if faults:
        raise wrong(WrongProblem, case, f"status {status}: " + "; ".join(faults))


@schemathesis.check
def events(ctx, response, case):
    """Each event of a stream has data of the description: a task's change without a name, a notice with one."""
    if name_of(case) != "watch" or response.status_code != 200:
        return
    schemas = case.operation.schema.raw_schema["components"]["schemas"]
    for block in response.text.split("\n\n"):
        fields = [line.partition(": ")[::2] for line in block.split("\n") if line and not line.startswith(":")]
        data = [value for name, value in fields if name == "data"]
        unknown = [name for name, _ in fields if name not in ("id", "event", "data", "retry")]
        if unknown:
            raise wrong(WrongEvents, case, f"unknown fields {unknown}")
        if not data:
            continue
        value, named = json.loads("\n".join(data)), [value for name, value in fields if name == "event"]
        schema = schemas["WatchNotice" if named else "WatchEvent"]
        missing = [name for name in schema["required"] if name not in value]
        if missing or named and value.get("watch") != named[0]:
            raise wrong(WrongEvents, case, f"missing: {missing}, event {named}, data {value}")
