// The 15 steps of the seed, one by one: node seed.mjs URL, with one instance of Parallel started. Its decisions are in the environment
// "default" and its tasks in "tasks", so that this script can choose which of them comes next.

import { Agent } from "./agent.mjs";
import { decide } from "./decider.mjs";
import { workflows } from "./orders.mjs";

const url = process.argv[2] ?? "http://127.0.0.1:4001";
const decisions = new Agent(url);
const tasks = new Agent(url, { env: "tasks" });
let number = 0;

const step = (what) => console.log(`${String(++number).padStart(2)}. ${what}`);

async function next(agent) {
  const job = await agent.job();
  if (job.action === "None") throw new Error(`no job comes for step ${number + 1}`);
  return job;
}

async function take(decision, what) {
  await decide(decisions, decision, workflows);
  step(`(decision) ${what}`);
}

async function start() {
  const job = await next(tasks); // which tells the engine that it starts
  step(`(task) ${job.name} starts`);
  return job;
}

async function complete(job) {
  await tasks.endTask(job.uuid, { status: "completed", output: Number(job.name.at(-1)) });
  step(`(task) ${job.name} is completed`);
}

await take(await next(decisions), "handle schedules task1, task2 and task3");
const started = [await start()];
const first = await next(decisions); // while it is ongoing, the others start
started.push(await start(), await start());
await take(first, "onStart of the first");
await take(await next(decisions), "onStart of the two others, together");

const [task1, task2, task3] = started.sort((one, other) => (one.name < other.name ? -1 : 1));
await complete(task3);
const third = await next(decisions); // while it is ongoing, the others complete
await complete(task1);
await complete(task2);
await take(third, "onSuccess of task3; handle still waits");
await take(await next(decisions), "onSuccess of task1, handle, onSuccess of task2; handle schedules task4");

const task4 = await start();
await take(await next(decisions), "onStart of task4");
await complete(task4);
await take(await next(decisions), "onSuccess of task4; handle ends");
