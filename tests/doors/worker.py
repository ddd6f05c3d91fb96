"""A task from enqueue to its end, by the client that openapi-generator makes of the description.

    worker.py ADDRESS       with the generated package `norn_api` on PYTHONPATH
"""

import sys

import norn_api
from norn_api.models import ClaimInput, CompleteInput, FailInput, LeaseInput, QueuePolicyInput, TaskInput, TasksInput

QUEUE = "doors/python"


def main(address: str) -> None:
    with norn_api.ApiClient(norn_api.Configuration(host=address)) as client:
        tasks, claims, queues = norn_api.TasksApi(client), norn_api.ClaimsApi(client), norn_api.QueuesApi(client)

        stored = tasks.enqueue(TasksInput(TaskInput(queue=QUEUE, data="hello", headers={"kind": "greeting"})))
        both = tasks.enqueue(TasksInput([TaskInput(queue=QUEUE, data=text) for text in ("second", "third")]))
        ids = [stored.id] + [result.actual_instance.id for result in both.actual_instance.items]

        granted = claims.claim(ClaimInput(queues=[QUEUE], max=3, lease_ms=30_000, wait_ms=5_000, worker="python")).tasks
        by_id = {task.id: task for task in granted}
        assert sorted(by_id) == sorted(ids), (ids, granted)
        first = by_id[stored.id]
        assert (first.data, first.headers, first.attempt) == ("hello", {"kind": "greeting"}, 1), first
        # Times do not fit into 32 bits.
        assert first.lease_expires_ms > 2**32, first

        claims.renew(first.id, first.token, LeaseInput(lease_ms=60_000))
        claims.complete(first.id, first.token, complete_input=CompleteInput(result="done"))
        failed = by_id[ids[1]]
        claims.fail(failed.id, failed.token, FailInput(reason="no", retry_in_ms=600_000))
        claims.release(ids[2], by_id[ids[2]].token)

        task = tasks.get_task(stored.id)
        assert (task.state, task.result) == ("done", "done"), task
        assert tasks.get_task_result(stored.id) == b"done"
        assert tasks.get_task_data(stored.id) == b"hello"
        page = tasks.list_tasks(queue=QUEUE).actual_instance
        assert {task.id for task in page.tasks} >= set(ids[1:]), page
        assert tasks.count(queue=QUEUE, state="ready").count == 1
        assert queues.change_policy(queue=QUEUE, queue_policy_input=QueuePolicyInput(attempts=3)).attempts == 3

        try:
            tasks.get_task("0" * 32)
        except norn_api.ApiException as error:
            assert error.status == 404, error
        else:
            raise AssertionError("a task that never was is shown")
    print("a generated client in Python took tasks from enqueue to their end")


main(sys.argv[1])
