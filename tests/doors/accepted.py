"""Refusals of requests that match the description: rules that a schema cannot say, or says too clumsily for people to read.

Each is a pattern that the whole `detail` of an answer with status 400 matches, with the operations that have it. A bound, a form of a
text or a field that is missing does not belong here: the description says those, and where it does not, it is to be mended.
"""

import re

# Fields that go together, or exclude each other. The descriptions of the fields say so.
TOGETHER = {
    r"(.*: )?`[a-z_]+` (goes|go) with .*; leave it out": {"*"},
    r"(.*: )?`[a-z_]+` and `[a-z_]+` (exclude each other|say the same); leave one of them out": {"*"},
    r"(.*: )?only its holder completes a task with a result: name the token of the claim": {"transact"},
    r"a dry run changes nothing; leave `confirm` or `dry_run` out": {"purge"},
    r"say which tasks: give `ids`.*": {"purge", "redrive"},
    r"a schedule is due by `cron` or once; leave one of them out": {"set_schedule"},
    r"say when the schedule is due: by `cron`, or once, by `at` or `at_ms`": {"set_schedule"},
    r"`zone` is for a `cron` expression; leave it out": {"set_schedule"},
    r"say what to watch: give `queue` or `group`": {"watch"},
    r"an invalid task is not tried again; leave `retry_in_ms` or `invalid` out": {"fail"},
    r"no setting is named: say which to change": {"change_policy", "change_cluster"},
    r"a task that is to be unique needs a key to be so by; give it one": {"enqueue"},
    r"the query: must_exist goes with a task that has `after`": {"enqueue"},
    # A page has fewer than the lines of `Accept: application/x-ndjson`.
    r"the query: a page has at most [0-9]+ tasks; `next` leads to more, as do lines": {"list_tasks"},
    r"the query: (tasks are read by their id, or listed; id goes with min_seq alone|min_seq goes with id)": {"list_tasks"},
    # One operation takes a payload as it is, described by the query, and JSON, which describes itself.
    r"the query: [a-z_]+ goes with a payload \(application/octet-stream\); in JSON it is a field": {"enqueue", "enqueue_as"},
    r"a payload as it is comes with its queue in the query: \?queue=NAME": {"enqueue", "enqueue_as"},
    r"(.*: )?a task is found by its version or by a token; leave one of them out": {"*"},
    r"a transaction that changes nothing; add, change or delete at least one task": {"transact"},
    r"the query: header \".*\" is given twice; a name has one value": {"enqueue", "enqueue_as", "list_tasks"},
}

# What one item of a list says of another.
ACROSS = {
    r"all tasks of a transaction must lie together: .*": {"transact"},
    r"(.*: )?(it has a number, but none of the tasks is a join|member [0-9]+ of no group; .*)": {"*"},
    r"(.*: )?it is a join or has a number, not both: .*": {"*"},
    r"(.*: )?.* is number [0-9]+, too; name each once": {"*"},
}

# What depends on the present state, or on names that the node knows.
STATE = {
    r"the task has not ended, so it is not purged: cancel it first": {"purge_task"},
    r"the time is past by the clock of the cluster": {"set_schedule"},
    r"(.*: )?there is no time zone \".*\"; .*": {"set_schedule"},
    r"there is no member \".*\" in this cluster; .*": {"change_cluster"},
    r"task [0-9a-z]{32} in .* is no letter; take such tasks out first": {"redrive"},
    r"the task is no session: .*": {"claim", "renew_session", "end_session"},
    r"say which nodes are to hold the partition": {"change_cluster"},
    r"cursor: this is no cursor of a watch; .*": {"watch"},
    r"Last-Event-ID: .*": {"watch"},
}

# Texts with a grammar of their own, and lengths in bytes where a schema counts characters.
GRAMMAR = {
    r"(.*: )?.*; a time is, for example, .*": {"*"},
    r"(.*: )?(a cron expression|the expression|cron).*": {"set_schedule"},
    r"(.*: )?.*a duration is, for example, .*": {"*"},
    r"(.*: )?(a rate|rate).*": {"change_policy"},
    r"(.*: )?.* is not base64: .*": {"*"},
    r"(.*: )?an address is HOST:PORT, .*": {"change_cluster"},
    r"(.*: )?queue name \".*\": it is longer than 255 bytes": {"*"},
    # Each half has 64 bits, and no epoch is 0.
    r"token in the path: a token is EPOCH\.NUMBER, .*": {"*"},
    r"(.*: )?[0-9]+\.[0-9]+ is no token; give the one that `claim` answered": {"*"},
    # A schema's integers may be written with a point; the server wants none, so that no digit is lost unseen.
    r"(.*: )?invalid type: floating point `[0-9.e+-]+`, expected .*": {"*"},
}

RULES = {**TOGETHER, **ACROSS, **STATE, **GRAMMAR}


# Requests that are taken although the description has no such: an operation, and what was done to it.
TAKEN = {
    # A time in a query may have 64 bits, but one bit is left out of the description, as many languages have 63.
    r"older_ms: Value greater than maximum|newer_ms: Value greater than maximum": {"list_tasks"},
}


def is_taken(operation: str, message: str) -> bool:
    """Whether an operation may take what the description does not allow."""
    return any(operation in operations and re.search(pattern, message) for pattern, operations in TAKEN.items())


def is_accepted(operation: str, detail: str) -> bool:
    """Whether an operation may answer 400 with this text to what the description allows."""
    fits = (operations for pattern, operations in RULES.items() if re.fullmatch(pattern, detail, re.DOTALL))
    return any("*" in operations or operation in operations for operations in fits)
