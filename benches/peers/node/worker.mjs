// One worker process of a Node peer: a JSON request a line in, a JSON answer a line out.
import { createInterface } from "node:readline";

const { open } = await import(`./${process.argv[2]}.mjs`);
let peer, job;

const commands = {
  async open(options) {
    peer = await open(options);
    const { version, durability, names, expires = "the lease runs out" } = peer;
    return { version, durability, names, expires };
  },
  enqueue({ n }) {
    const start = process.hrtime.bigint();
    for (let i = 0; i < n; i++) peer.enqueue(i);
    return { seconds: since(start) };
  },
  fill({ n }) {
    peer.fill(n);
    return {};
  },
  hold({ n }) {
    for (let i = 0; i < n; i++) peer.claim();
    return {};
  },
  drain() {
    const ids = [];
    let job;
    while ((job = peer.claim())) {
      ids.push(job.id);
      peer.complete(job, "ok");
    }
    return { ids, busy: 0 };
  },
  claims({ n }) {
    const seconds = [];
    for (let i = 0; i < n; i++) {
      const start = process.hrtime.bigint();
      const job = peer.claim();
      seconds.push(since(start));
      if (!job) throw new Error("nothing to claim");
    }
    return { seconds };
  },
  claim() {
    job = peer.claim();
    return { claimed: Boolean(job) };
  },
  complete: ({ result }) => ({ accepted: peer.complete(job, result) }),
  finish: () => ({ accepted: peer.finish(job) }),
  expire() {
    peer.expire?.();
    return {};
  },
  state: () => ({ state: peer.state() }),
  close() {
    peer.close();
    return {};
  },
};

function since(start) {
  return Number(process.hrtime.bigint() - start) / 1e9;
}

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  let answer;
  try {
    answer = await commands[request.do](request);
  } catch (e) {
    answer = { error: String(e) };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
