// Where the installed packages are: not beside these files.
import { createRequire } from "node:module";
import { join } from "node:path";

const root = join(process.env.PEERS_NPM, "package.json");
export const require = createRequire(root);

export function version(name) {
  const file = join(process.env.PEERS_NPM, "node_modules", name, "package.json");
  return `${name} ${require(file).version}`;
}

export function connect({ folder, full }) {
  const Database = require("better-sqlite3");
  const db = new Database(join(folder, "jobs.db"), { timeout: 30000 });
  db.pragma("journal_mode = WAL");
  db.pragma(`synchronous = ${full ? "FULL" : "NORMAL"}`);
  return db;
}

export function durability(db) {
  const names = ["OFF", "NORMAL", "FULL", "EXTRA"];
  const [journal, synchronous] = ["journal_mode", "synchronous"].map((name) =>
    db.pragma(name, { simple: true }),
  );
  return `${journal}, synchronous=${names[synchronous]}`;
}

export function sqlite(db) {
  const own = db.prepare("SELECT sqlite_version()").pluck().get();
  return `${version("better-sqlite3")}, its own SQLite ${own}`;
}
