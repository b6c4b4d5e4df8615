// A client of airunner for browsers: add a job, ask for it, watch every line of it live.
//
// Calls are Connect in its JSON form, that is plain POSTs; events are server-sent events. Types can be erased
// as they stand, so that any stripper, or a reader, may ignore them.

export type JobState =
  | "JOB_STATE_SCHEDULED"
  | "JOB_STATE_RUNNING"
  | "JOB_STATE_COMPLETED"
  | "JOB_STATE_FAILED"
  | "JOB_STATE_CANCELLED";

/** What to do; only what this example uses. */
export interface JobParams {
  command: string;
  args?: string[];
  environment?: Record<string, string>;
  timeoutSeconds?: number;
}

export interface JobResult {
  success?: boolean;
  exitCode?: number;
  outcome: string;
  errorMessage?: string;
}

export interface Job {
  jobId: string;
  state: JobState;
  attempt?: number;
  result?: JobResult;
}

/** Bytes that a process wrote, mostly one line with its newline. */
export interface Output {
  attempt: number;
  sequence: number;
  stream: "stdout" | "stderr";
  bytes: Uint8Array;
}

export interface Watcher {
  output(output: Output): void;
  /** Everything up to the end of the job was delivered. */
  end(): void;
  /** A worker started the process; with a number above 1, what was printed before is of an earlier attempt. */
  started?(attempt: number): void;
  /** The worker could not keep some of the output, for this reason. */
  gap?(reason: string): void;
  connected?(): void;
  /** The connection broke; it is made again, and nothing is lost or repeated. */
  reconnecting?(): void;
  /** The server will not show this job, and asking again does not help; nothing follows. */
  refused?(error: AirunnerError): void;
}

/** The parts of a browser's EventSource that are used here, so that a test can bring its own. */
export interface Source {
  readonly readyState: number;
  addEventListener(type: string, listener: (message: { data: string }) => void): void;
  close(): void;
}

interface StreamedEvent {
  attempt: number;
  sequence: string; // 64 bits, which JSON carries as text
  outputData?: { output?: string; stream?: string };
  processStart?: object;
  gap?: { reason?: string };
}

/** What the server says when it refuses, with the code of the contract, such as "not_found".
 *
 * "unavailable" is also the code of whatever stands before the server and answers in its place.
 */
export class AirunnerError extends Error {
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

const CLOSED = 2;
const RETRY_MS = 1000;
const MAX_WAIT_SECONDS = 60;
const EVENT_TYPES = ["output_data", "process_start", "process_end", "process_error", "gap", "progress"];
const FINAL_REFUSALS = ["not_found", "invalid_argument", "unauthenticated", "permission_denied"];
const FINAL_STATES = ["JOB_STATE_COMPLETED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED"];

export class AirunnerClient {
  readonly #server: string;
  readonly #open: (url: string) => Source;

  /** `server` is empty when the page has the same origin as the API. */
  constructor(server = "", open: (url: string) => Source = (url) => new EventSource(url)) {
    this.#server = server.replace(/\/+$/, "");
    this.#open = open;
  }

  /** Add a job and return its id. The same `requestId` always gives the same job, however often it is sent. */
  async enqueue(jobParams: JobParams, queue = "default", requestId: string = crypto.randomUUID()): Promise<string> {
    const answer = await this.#call<{ jobId: string }>("EnqueueJob", { requestId, queue, jobParams });
    return answer.jobId;
  }

  /** Return a job as it is, or as it is after waiting at most so long for its end. */
  async job(jobId: string, waitSeconds = 0): Promise<Job> {
    return (await this.#call<{ job: Job }>("GetJob", { jobId, waitSeconds })).job;
  }

  /** Return a job once it has ended. */
  async ended(jobId: string): Promise<Job> {
    for (;;) {
      const job = await this.job(jobId, MAX_WAIT_SECONDS);
      if (FINAL_STATES.includes(job.state)) return job;
    }
  }

  /** Deliver what a job prints, from its first byte to its last; call what is returned to stop. */
  watch(jobId: string, watcher: Watcher): () => void {
    const url = `${this.#server}/v1/jobs/${encodeURIComponent(jobId)}/events`;
    let source: Source;
    let retry: ReturnType<typeof setTimeout> | undefined;
    let stopped = false;
    let last = { attempt: 0, sequence: 0 };

    const deliver = (message: { data: string }): void => {
      const event = JSON.parse(message.data) as StreamedEvent;
      const place = { attempt: event.attempt, sequence: Number(event.sequence) };
      if (!isAfter(place, last)) return; // a new source begins at the first event again
      last = place;
      if (event.outputData) watcher.output({ ...place, ...decoded(event.outputData) });
      if (event.processStart) watcher.started?.(event.attempt);
      if (event.gap) watcher.gap?.(event.gap.reason ?? "");
    };
    const connect = (): void => {
      source = this.#open(url);
      for (const type of EVENT_TYPES) source.addEventListener(type, deliver);
      source.addEventListener("open", () => watcher.connected?.());
      source.addEventListener("end", () => {
        source.close(); // or it would come back and begin anew
        watcher.end();
      });
      source.addEventListener("error", () => {
        watcher.reconnecting?.();
        // A broken connection is made again by the source itself, which sends its Last-Event-ID. It gives up
        // for good when the server answers with an error, as one that starts or stops does: then we go on.
        if (source.readyState === CLOSED) retry = setTimeout(reconnect, RETRY_MS);
      });
    };
    const reconnect = async (): Promise<void> => {
      const refusal = await this.#refusal(jobId);
      if (stopped) return;
      if (refusal) watcher.refused?.(refusal);
      else connect();
    };

    connect();
    return () => {
      stopped = true;
      clearTimeout(retry);
      source.close();
    };
  }

  /** Why the server will never show a job, which a source does not tell. */
  async #refusal(jobId: string): Promise<AirunnerError | undefined> {
    try {
      await this.job(jobId);
    } catch (error) {
      if (error instanceof AirunnerError && FINAL_REFUSALS.includes(error.code)) return error;
    }
    return undefined;
  }

  async #call<Answer>(method: string, message: object): Promise<Answer> {
    const response = await fetch(`${this.#server}/job.v1.JobService/${method}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(message),
    });
    if (response.ok) return (await response.json()) as Answer;
    const error = await response.json().catch(() => ({})); // a proxy speaks HTML
    throw new AirunnerError(error.code ?? "unavailable", error.message ?? `the answer was HTTP ${response.status}`);
  }
}

function isAfter(a: { attempt: number; sequence: number }, b: { attempt: number; sequence: number }): boolean {
  return a.attempt > b.attempt || (a.attempt === b.attempt && a.sequence > b.sequence);
}

function decoded(data: { output?: string; stream?: string }): { stream: "stdout" | "stderr"; bytes: Uint8Array } {
  const text = atob(data.output ?? "");
  const bytes = Uint8Array.from(text, (character) => character.charCodeAt(0));
  return { stream: data.stream === "STREAM_TYPE_STDERR" ? "stderr" : "stdout", bytes };
}
