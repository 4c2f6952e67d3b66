// Where the installed packages are: not beside these files.
import { createRequire } from "node:module";
import { join } from "node:path";

const root = join(process.env.PEERS_NPM, "package.json");
export const require = createRequire(root);

export function version(name) {
  return `${name} ${require(join(process.env.PEERS_NPM, "node_modules", name, "package.json")).version}`;
}

export function connect({ folder, full }) {
  const Database = require("better-sqlite3");
  const db = new Database(join(folder, "jobs.db"), { timeout: 30000 });
  db.pragma("journal_mode = WAL");
  db.pragma(`synchronous = ${full ? "FULL" : "NORMAL"}`);
  return db;
}

export function sqlite(db) {
  return `${version("better-sqlite3")}, its own SQLite ${db.prepare("SELECT sqlite_version()").pluck().get()}`;
}
