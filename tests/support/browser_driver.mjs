// Runs the client of examples/browser in Node, with an EventSource that behaves like a browser's.
//
// Arguments: the client's module, the server's URL, a shell script, and what befalls the connection after the
// third event: "nothing", "breaks" (the source comes back by itself) or "is refused" (it gives up for good).
// Prints what the job printed, as it comes; on standard error the ids that the server was given.

const [module, server, script, fate] = process.argv.slice(2);
const { AirunnerClient, AirunnerError } = await import(module);

class NodeEventSource {
  readyState = 0;
  #listeners = {};
  #lastId = "";
  #abort;

  constructor(url) {
    this.url = url;
    this.#connect();
  }

  addEventListener(type, listener) {
    (this.#listeners[type] ??= []).push(listener);
  }

  close() {
    this.readyState = 2;
    this.#abort.abort();
  }

  async #connect() {
    this.#abort = new AbortController();
    const headers = this.#lastId ? { "last-event-id": this.#lastId } : {};
    console.error(`connects after ${this.#lastId || "nothing"}`);
    try {
      const response = await fetch(this.url, { headers, signal: this.#abort.signal });
      await this.#read(response.body);
    } catch (error) {
      if (error.name !== "AbortError") throw error;
    }
    if (this.readyState === 2) return;
    this.#dispatch("error", "");
    this.#connect();
  }

  async #read(body) {
    let text = "";
    for await (const chunk of body.pipeThrough(new TextDecoderStream())) {
      text += chunk;
      const messages = text.split("\n\n");
      text = messages.pop();
      for (const message of messages) {
        if (this.readyState === 2) return;
        this.#take(message);
        if (seen === 3 && fate !== "nothing" && !befallen) return this.#befall();
      }
    }
  }

  #befall() {
    befallen = true;
    if (fate === "is refused") {
      this.close();
      this.#dispatch("error", "");
    }
  }

  #take(message) {
    const fields = Object.fromEntries(message.split("\n").map((line) => line.split(/: (.*)/s)));
    if (!fields.event) return;
    if (fields.id) this.#lastId = fields.id;
    seen += 1;
    this.#dispatch(fields.event, fields.data);
  }

  #dispatch(type, data) {
    for (const listener of this.#listeners[type] ?? []) listener({ data });
  }
}

let seen = 0;
let befallen = false;
const client = new AirunnerClient(server, (url) => new NodeEventSource(url));
const jobId = await client.enqueue({ command: "sh", args: ["-c", script] });
await new Promise((end) =>
  client.watch(jobId, {
    output: ({ stream, bytes }) => process.stdout.write(Buffer.concat([Buffer.from(`${stream} `), bytes])),
    reconnecting: () => console.error("reconnects"),
    end,
  }),
);
const job = await client.ended(jobId);
const refusal = await client.job("no-id").catch((error) => error instanceof AirunnerError && error.code);
console.log(JSON.stringify({ state: job.state, exitCode: job.result.exitCode, refusal }));
process.exit(0);
