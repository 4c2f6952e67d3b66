// Plays the part of tests/hosts/host.c, which explains it, in JavaScript: host.js EXTENSION.
// Numbers are bound as better-sqlite3 binds them: as REAL.
const Database = require('better-sqlite3');

const CODES = {
  SQLITE_ERROR: 1, SQLITE_BUSY: 5, SQLITE_BUSY_SNAPSHOT: 517, SQLITE_CONSTRAINT: 19,
  SQLITE_CONSTRAINT_TRIGGER: 1811,
};
const extension = process.argv[2];
const connections = {};

const read = {
  n: () => null, i: Number, r: Number, t: (text) => text,
};

function call(connection, sql, values) {
  const statement = connection.prepare(sql);
  if (!statement.reader) {
    statement.run(...values);
    return [];
  }
  // A fence may be beyond 2^53.
  return statement.raw().safeIntegers().all(...values);
}

for (const line of require('fs').readFileSync(0, 'utf8').split('\n').slice(0, -1)) {
  const [i, sql, ...fields] = line.split('\t');
  const values = fields.map((field) => read[field[0]](field.slice(2)));
  try {
    if (sql === '.open') {
      connections[i] = new Database(values[0], { timeout: 0 });
      connections[i].loadExtension(extension);
    } else if (sql === '.close') {
      connections[i].close();
    } else {
      for (const row of call(connections[i], sql, values)) {
        console.log(['row', ...row.map((value) => value ?? 'NULL')].join('\t'));
      }
    }
    console.log('ok');
  } catch (error) {
    if (!(error instanceof Database.SqliteError)) throw error;
    console.log(['error', CODES[error.code] ?? error.code, error.message].join('\t'));
  }
}
