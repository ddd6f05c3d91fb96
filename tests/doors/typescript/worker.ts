// A task from enqueue to its end, by a client that has its types from the description: `node built/worker.js ADDRESS`.
import createClient from "openapi-fetch";
import type { components, paths } from "./description.js";

declare const process: { argv: string[] };
type Task = components["schemas"]["GrantedTask"];

const QUEUE = "doors/typescript";
const norn = createClient<paths>({ baseUrl: process.argv[2] ?? "" });

function expect(holds: boolean, what: string, seen: unknown): asserts holds {
    if (!holds) throw new Error(`${what}: ${JSON.stringify(seen)}`);
}

async function enqueue(data: string): Promise<string> {
    const { data: stored, error } = await norn.POST("/v1/tasks", { body: { queue: QUEUE, data, priority: 5 } });
    expect(stored !== undefined && "id" in stored, "enqueue", error);
    return stored.id;
}

async function claim(): Promise<Task> {
    const body = { queues: [QUEUE], lease_ms: 30_000, wait_ms: 5_000, worker: "typescript" };
    const { data, error } = await norn.POST("/v1/claims", { body });
    const task = data?.tasks[0];
    expect(task !== undefined, "claim", error);
    return task;
}

const id = await enqueue("hello");
const task = await claim();
expect(task.id === id && task.data === "hello" && task.lease_expires_ms > 2 ** 32, "granted", task);
const path = { id: task.id, token: task.token };
const completed = await norn.POST("/v1/tasks/{id}/claims/{token}/complete", { params: { path }, body: { result: "done" } });
expect(completed.data?.guarantee === "strict", "complete", completed.error);

const read = await norn.GET("/v1/tasks/{id}", { params: { path: { id } } });
expect(read.data?.state === "done" && read.data.result === "done", "read", read);
const refused = await norn.GET("/v1/count", { params: { query: { queue: "a,b" } } });
expect(refused.error?.code === "invalid" && refused.error.status === 400, "refused", refused);
console.log("a client with generated types in TypeScript took a task from enqueue to its end");
