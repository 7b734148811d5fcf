// A worker: node worker.mjs [URL]. It does jobs until it is stopped.

import { pathToFileURL } from "node:url";
import { Agent } from "./agent.mjs";
import { decide } from "./decider.mjs";
import { tasks, workflows } from "./orders.mjs";

/** Do one job. */
export async function work(agent, job, { workflows, tasks }) {
  if (job.action === "DecisionScheduled") return decide(agent, job, workflows);
  if (job.action !== "TaskScheduled") return;
  let ended;
  try {
    const do_ = tasks[job.name];
    if (!do_) throw new TypeError(`this worker has no task ${job.name}`);
    ended = { status: "completed", output: (await do_(job.input)) ?? null };
  } catch ({ name, message, stack, code }) {
    ended = { status: "failed", error: { name, message, stacktrace: stack, code: code ?? null } };
  }
  await agent.endTask(job.uuid, ended);
}

/** Do jobs, one after the other; start several workers to do several at the same time. */
export async function run(agent, code) {
  for (;;) {
    try {
      await work(agent, await agent.job(), code);
    } catch (error) {
      if (error.status === 410) continue; // somebody else has the job now
      console.error(`${error.message}; asking again`);
      await new Promise((resolve) => setTimeout(resolve, 1_000));
    }
  }
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  await run(new Agent(process.argv[2] ?? "http://127.0.0.1:4001"), { workflows, tasks });
}
