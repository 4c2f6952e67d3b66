// plainjob: getAndMarkJobAsProcessing, markJobAsDone. Overdue jobs come back through its
// maintenance, requeueTimedOutJobs.
import { pathToFileURL } from "node:url";
import { connect, durability, require, sqlite, version } from "./packages.mjs";

const STATUS = ["pending", "processing", "done", "failed"];

export async function open(options) {
  const { better, defineQueue } = await import(pathToFileURL(require.resolve("plainjob")).href);
  const db = connect(options);
  const logger = { debug() {}, info() {}, warn() {}, error() {} };
  const queue = defineQueue({ connection: better(db), logger });
  db.pragma("busy_timeout = 30000");
  if (options.full) db.pragma("synchronous = FULL"); // it has set NORMAL
  return {
    version: `${version("plainjob")}, ${sqlite(db)}`,
    durability: durability(db),
    names: false,
    expires: "requeueTimedOutJobs()",
    enqueue: (i) => queue.add("q", i),
    fill: (n) => queue.addMany("q", Array.from({ length: n }, (_, i) => i)),
    claim: () => queue.getAndMarkJobAsProcessing("q"),
    complete: (job) => queue.markJobAsDone(job.id).changes === 1,
    finish: (job) => queue.markJobAsFailed(job.id, "from B").changes === 1,
    expire: () => queue.requeueTimedOutJobs(options.ttl * 1000),
    state() {
      const job = queue.getJobById(1);
      return `status ${STATUS[job.status]}, error ${job.error}`;
    },
    close: () => queue.close(),
  };
}
