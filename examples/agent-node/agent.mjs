// The routes of an agent.

/** The agent has refused a request. 410: the job is not ours any more. */
export class Refused extends Error {
  constructor(status, { error, message }) {
    super(`${status} ${error}: ${message}`);
    this.status = status;
  }
}

export class Agent {
  #url;
  #jobs;
  #headers = { "Content-Type": "application/json" };

  constructor(url, { env = "default", lang = "javascript", token = process.env.ACTORFLOW_TOKEN } = {}) {
    this.#url = url.replace(/\/$/, "");
    this.#jobs = `/env/${encodeURIComponent(env)}/lang/${encodeURIComponent(lang)}/job`;
    if (token) this.#headers.Authorization = `Bearer ${token}`;
  }

  async #ask(method, path, body) {
    const answer = await fetch(this.#url + path, {
      method,
      headers: this.#headers,
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const found = await answer.json();
    if (!answer.ok) throw new Refused(answer.status, found);
    return found;
  }

  /** The next job; it takes up to `wait` seconds until there is one. */
  job(wait = 20) {
    return this.#ask("GET", `${this.#jobs}?wait=${wait}`);
  }

  nextBranch(uuid) {
    return this.#ask("GET", `/decisions/${uuid}/branch`);
  }

  execute(uuid, works) {
    return this.#ask("POST", `/decisions/${uuid}/execute`, works);
  }

  finishBranch(uuid, ended) {
    return this.#ask("POST", `/decisions/${uuid}/branch`, ended);
  }

  breakDecision(uuid, error) {
    return this.#ask("POST", `/decisions/${uuid}/error`, error);
  }

  endTask(uuid, ended) {
    return this.#ask("POST", `/tasks/${uuid}`, ended);
  }
}
