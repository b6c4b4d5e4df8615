// BullMQ on Redis: `enqueue COUNT` adds jobs, `work` drains them and times itself as tally.py does.
"use strict";

const fs = require("node:fs");
const { Queue, Worker } = require("bullmq");

const NAME = "noop";
const CONCURRENCY = 100;
const ENQUEUED_AT_ONCE = 500;
const { hostname: host, port } = new URL(process.env.BENCH_REDIS);
const connection = { host, port: Number(port), maxRetriesPerRequest: null };
// Completed jobs are not kept, as at the other peers.
const options = { removeOnComplete: true };

async function enqueue(count) {
  const queue = new Queue(NAME, { connection });
  for (let left = count; left > 0; left -= ENQUEUED_AT_ONCE) {
    const jobs = Math.min(left, ENQUEUED_AT_ONCE);
    await queue.addBulk(Array.from({ length: jobs }, () => ({ name: NAME, data: {}, opts: options })));
  }
  await queue.close();
}

function work() {
  const jobs = Number(process.env.BENCH_JOBS);
  const file = process.env.BENCH_TALLY;
  let done = 0;
  let first = 0;
  new Worker(
    NAME,
    async () => {
      done += 1;
      if (done === 1) first = monotonicSeconds();
      if (done !== jobs) return;
      fs.writeFileSync(`${file}.new`, JSON.stringify([first, monotonicSeconds()]));
      fs.renameSync(`${file}.new`, file);
    },
    { connection, concurrency: CONCURRENCY },
  );
}

function monotonicSeconds() {
  return Number(process.hrtime.bigint()) / 1e9;
}

if (process.argv[2] === "enqueue") enqueue(Number(process.argv[3]));
else work();
