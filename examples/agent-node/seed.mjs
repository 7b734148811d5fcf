// The 15 steps of the seed, one by one: node seed.mjs URL, with one instance of Parallel started.

import { Agent } from "./agent.mjs";
import { decide } from "./decider.mjs";
import { workflows } from "./orders.mjs";

const agent = new Agent(process.argv[2] ?? "http://127.0.0.1:4001");
let number = 0;

async function next(action) {
  const job = await agent.job();
  if (job.action !== action) throw new Error(`step ${number + 1}: ${JSON.stringify(job)} is no ${action}`);
  return job;
}

const step = (what) => console.log(`${String(++number).padStart(2)}. ${what}`);

async function takeDecision(job, what) {
  await decide(agent, job, workflows);
  step(`(decision) ${what}`);
}

async function start(expected) {
  const job = await next("TaskScheduled"); // which tells the engine that it starts
  if (job.name !== expected) throw new Error(`${job.name} comes before ${expected}`);
  step(`(task) ${job.name} starts`);
  return job;
}

async function complete(job, output) {
  await agent.endTask(job.uuid, { status: "completed", output });
  step(`(task) ${job.name} is completed`);
}

await takeDecision(await next("DecisionScheduled"), "handle schedules task1, task2 and task3");
const task1 = await start("task1");
const task2 = await start("task2");
const task3 = await start("task3");
await takeDecision(await next("DecisionScheduled"), "onStart of the first");
await takeDecision(await next("DecisionScheduled"), "onStart of the two others, together");
await complete(task3, 3);
const waiting = await next("DecisionScheduled"); // while it is ongoing, the others complete
await complete(task1, 1);
await complete(task2, 2);
await takeDecision(waiting, "onSuccess of task3, then handle, which still waits");
await takeDecision(await next("DecisionScheduled"), "onSuccess of task1, handle, onSuccess of task2, handle: schedules task4");
const task4 = await start("task4");
await takeDecision(await next("DecisionScheduled"), "onStart of task4");
await complete(task4, 4);
await takeDecision(await next("DecisionScheduled"), "onSuccess of task4, then handle, which ends");
