// What bench measures of BullMQ. A request is a line of JSON on stdin, its answer one on stdout.
const { Queue, Worker } = require('bullmq');
const readline = require('readline');

const connection = { host: '127.0.0.1', port: Number(process.argv.at(-1)), maxRetriesPerRequest: null };
const queue = open('bench');
let idle; // the worker that has nothing to do

function open(name) {
  return new Queue(name, { connection, defaultJobOptions: { removeOnComplete: true } });
}

function work(name, workers, handle) {
  const worker = new Worker(name, handle, { connection, concurrency: workers, removeOnComplete: { count: 0 } });
  worker.on('error', (err) => console.error(err));
  return worker;
}

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// data is JSON of size bytes that begins with the number.
const data = (i, size) => String(i).padEnd(size - 2, ' ');

// send enqueues n messages from so many callers at once, batch of them a call.
async function send(queue, { n, size, callers, batch }) {
  let next = 0;
  await Promise.all(Array.from({ length: callers }, async () => {
    while (next < n) {
      if (batch === 1) {
        await queue.add('m', data(next++, size));
        continue;
      }
      const jobs = [];
      while (jobs.length < batch && next < n) jobs.push({ name: 'm', data: data(next++, size) });
      await queue.addBulk(jobs);
    }
  }));
}

// drain handles n messages, each for wait ms, and counts them.
async function drain(name, { n, workers, wait, stall }) {
  const seen = new Uint8Array(n);
  let first = 0, last = 0, distinct = 0, again = 0, busy = 0, moved = performance.now();
  const cpu = process.cpuUsage();
  await new Promise((done) => {
    const worker = work(name, workers, async (job) => {
      const began = performance.now();
      first ||= began;
      if (wait > 0) await sleep(wait);
      moved = performance.now();
      busy += moved - began;
      const i = Number(job.data);
      if (!(i < n) || seen[i]++) {
        again++;
      } else if (++distinct === n) {
        last = moved;
        end();
      }
    });
    const look = setInterval(() => performance.now() - moved > stall && end(), 1000);
    const end = () => {
      clearInterval(look);
      worker.close().then(done); // it waits for what is under way: a double would come now
    };
  });
  const used = process.cpuUsage(cpu);
  return { ms: last - first, lost: n - distinct, again, mean: busy / (distinct + again), cpu: used.user + used.system };
}

// wake measures from just before a message is enqueued until its handler runs.
async function wake({ wakes, limit, size, workers }) {
  const took = [];
  let woken;
  const worker = work('bench', workers, async (job) => woken(Number(job.data)));
  await worker.waitUntilReady();
  for (const end = performance.now() + limit; took.length < wakes && performance.now() < end;) {
    await sleep(2 + 6 * Math.random());
    const handled = new Promise((done) => { woken = done; });
    const began = performance.now();
    const added = queue.add('m', data(took.length, size));
    const i = await handled;
    const now = performance.now();
    if (i !== took.length) throw new Error(`message ${i} was handled, and ${took.length} expected`);
    took.push(now - began);
    await added;
  }
  await worker.close();
  return took;
}

const does = {
  // The compiler of V8 is warm after some thousands.
  async warm({ n }) {
    const other = open('warm');
    await send(other, { n, size: 128, callers: 64, batch: 1 });
    await drain('warm', { n, workers: 64, wait: 0, stall: 10000 });
    await other.obliterate({ force: true });
    await other.close();
  },
  async send(ask) {
    const cpu = process.cpuUsage(), began = performance.now();
    await send(queue, ask);
    const ms = performance.now() - began, used = process.cpuUsage(cpu);
    return { ms, cpu: used.user + used.system };
  },
  drain: (ask) => drain('bench', ask),
  wake,
  async idle({ workers }) {
    idle = work('bench', workers, async () => {});
    await idle.waitUntilReady();
  },
  async stop() {
    await idle.close();
  },
  async left() {
    const counts = await queue.getJobCounts();
    return Object.values(counts).reduce((sum, n) => sum + n, 0);
  },
};

const lines = readline.createInterface({ input: process.stdin });
lines.on('line', async (line) => {
  const ask = JSON.parse(line);
  try {
    console.log(JSON.stringify({ ok: (await does[ask.do](ask)) ?? null }));
  } catch (err) {
    console.log(JSON.stringify({ error: String(err.stack ?? err) }));
  }
});
lines.on('close', () => process.exit());
