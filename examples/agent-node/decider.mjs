// Workflows as classes, and what takes their decisions: each branch is replayed from its beginning.

/** What a branch may ask for. */
export const task = (name, input = null, { timeout = null, raises = false } = {}) => ({
  type: "task",
  name,
  input,
  timeout,
  raises,
});
export const flow = (name, properties = {}) => ({ type: "flow", name, input: properties });
export const wait = ({ event = null, seconds, until }) => ({
  type: "wait",
  name: "Wait",
  event,
  timeout: seconds !== undefined ? { duration: seconds } : until !== undefined ? { timestamp: until } : null,
});

const running = new WeakMap(); // by workflow: the branch that its code belongs to

/**
 * The base of workflows: `handle` does the work; `onEvent`, `onStart`, `onSuccess`, `onFailure` and `onTimeout` may be there.
 * Its own fields are its properties: what JSON can hold.
 */
export class Workflow {
  /** Do works in parallel, wait for all, and return their outputs; of a single one, its output. */
  async execute(...works) {
    const outputs = await running.get(this).execute(works, true);
    return works.length === 1 ? outputs[0] : outputs;
  }

  /** Begin works, and go on. */
  async dispatch(...works) {
    await running.get(this).execute(works, false);
  }
}

/** A work has failed for good: of a task with `raises`, or because an event has interrupted it. */
export class StepFailed extends Error {
  constructor({ name, message }) {
    super(`${name}: ${message}`);
    this.name = name;
  }
}

class Modified extends Error {}

class Branch {
  #calls = 0;
  #suspend;

  constructor(agent, uuid, workflow) {
    this.agent = agent;
    this.uuid = uuid;
    this.workflow = workflow;
    this.suspended = new Promise((resolve) => (this.#suspend = resolve));
  }

  async execute(works, sync) {
    const call = this.#calls++;
    const asked = works.map((work, member) => ({ ...work, sync, position: `${call}.${member}` }));
    const reply = await this.agent.execute(this.uuid, asked);
    if (reply.status === "modified") throw new Modified();
    if (!sync) return [];
    if (reply.status === "scheduled") {
      this.#suspend(Branch.WAITS);
      return new Promise(() => {}); // never: the code stops here
    }
    setProperties(this.workflow, reply.properties ?? propertiesOf(this.workflow));
    if (reply.status === "failed") throw new StepFailed(reply.error);
    return reply.outputs;
  }

  static WAITS = Symbol("waits");
}

const propertiesOf = (workflow) => ({ ...workflow });

function setProperties(workflow, properties) {
  for (const name of Object.keys(workflow)) delete workflow[name];
  Object.assign(workflow, properties);
}

function argumentsOf(branch) {
  const work = { name: branch.task_name, input: branch.task_input };
  switch (branch.type) {
    case "handle":
      return [];
    case "onEvent":
      return [{ name: branch.event_name, data: branch.event_input }];
    case "onSuccess":
      return [work, branch.task_output];
    case "onFailure":
      return [work, { name: branch.error_name, ...branch.error_input }];
    default:
      return [work];
  }
}

/** Take a decision: execute its branches until there is none left. */
export async function decide(agent, job, workflows) {
  for (;;) {
    const given = await agent.nextBranch(job.uuid);
    if (!given.branch) return;
    try {
      await agent.finishBranch(job.uuid, await executeBranch(agent, job, workflows, given));
    } catch (error) {
      if (error instanceof Modified) return void (await agent.breakDecision(job.uuid, { kind: "modified" }));
      if (error.status !== undefined) throw error; // of the agent
      const { name, message, stack } = error;
      return void (await agent.breakDecision(job.uuid, { name, message, stacktrace: stack }));
    }
  }
}

async function executeBranch(agent, job, workflows, { branch, properties }) {
  const Class = workflows[job.name];
  if (!Class) throw new TypeError(`this worker has no workflow ${job.name}`);
  const workflow = Object.create(Class.prototype);
  setProperties(workflow, properties);
  const context = new Branch(agent, job.uuid, workflow);
  running.set(workflow, context);
  const method = workflow[branch.type];
  if (!method) return { properties };
  const output = await Promise.race([method.apply(workflow, argumentsOf(branch)), context.suspended]);
  const ended = { properties: propertiesOf(workflow) };
  if (output === Branch.WAITS) return ended;
  return branch.type === "handle" || output != null ? { ...ended, output: output ?? null } : ended;
}
