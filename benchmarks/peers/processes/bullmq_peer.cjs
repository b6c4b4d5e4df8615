// BullMQ on Redis: `enqueue COUNT CALLERS` adds jobs one a call, as enqueue.py does; `work` does them as jobs.py says.
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const { Queue, Worker } = require("bullmq");

const NAME = "job";
const KIND = process.env.BENCH_JOB;
const WRITE_EVERY_MS = 5;
const { hostname: host, port } = new URL(process.env.BENCH_REDIS);
const connection = { host, port: Number(port), maxRetriesPerRequest: null };
// A job is kept once it is completed if it has something to keep: its result, or its line.
const options = { removeOnComplete: KIND === "noop" };

async function enqueue(count, callers) {
  const queue = new Queue(NAME, { connection });
  await queue.waitUntilReady();
  const warm = Math.floor(count / 2);
  await lanes(queue, 0, warm, callers);
  const [began, cpu] = [monotonicSeconds(), cpuSeconds()];
  await lanes(queue, warm, count, callers);
  const spent = { calls: count - warm, seconds: monotonicSeconds() - began, cpu: cpuSeconds() - cpu };
  console.log(JSON.stringify(spent));
  await queue.close();
}

function lanes(queue, from, to, callers) {
  let next = from;
  const lane = async () => {
    while (next < to) {
      const number = next++;
      await queue.add(NAME, { number }, options);
    }
  };
  return Promise.all(Array.from({ length: callers }, lane));
}

function work() {
  const concurrency = Number(process.env.BENCH_CONCURRENCY || 1);
  const count = tally();
  const kinds = {
    noop: async () => count(),
    result: async (job) => {
      count();
      return { number: job.data.number };
    },
    // The line is kept with its job, which is what this queue has for it.
    line: async (job) => {
      count();
      await job.log(`job ${job.data.number} of many has been here`);
    },
  };
  new Worker(NAME, kinds[KIND], { connection, concurrency });
}

// What tally.py notes, in a file of this process; it is written every few milliseconds, not with every job.
function tally() {
  const notes = Buffer.alloc(24);
  let [jobs, written] = [0, 0];
  let file = null;
  const write = () => {
    if (written === jobs) return;
    file ??= fs.openSync(path.join(process.env.BENCH_TALLY, `${process.pid}.tally`), "w");
    fs.writeSync(file, notes, 0, notes.length, 0);
    written = jobs;
  };
  setInterval(write, WRITE_EVERY_MS);
  return () => {
    const now = monotonicSeconds();
    if (jobs === 0) notes.writeDoubleLE(now, 8);
    jobs += 1;
    notes.writeBigUInt64LE(BigInt(jobs), 0);
    notes.writeDoubleLE(now, 16);
    if (jobs === 1) write();
  };
}

function monotonicSeconds() {
  return Number(process.hrtime.bigint()) / 1e9;
}

// The CPU seconds of this process and of the server whose id the environment tells.
function cpuSeconds() {
  const own = process.cpuUsage();
  const tasks = `/proc/${process.env.BENCH_SERVER_PID}/task`;
  const nanoseconds = fs
    .readdirSync(tasks)
    .map((thread) => Number(fs.readFileSync(`${tasks}/${thread}/schedstat`, "utf8").split(" ")[0]))
    .reduce((sum, spent) => sum + spent, 0);
  return (own.user + own.system) / 1e6 + nanoseconds / 1e9;
}

if (process.argv[2] === "enqueue") enqueue(Number(process.argv[3]), Number(process.argv[4]));
else work();
