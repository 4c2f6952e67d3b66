-- The job table. A job is claimable while done = 0 and until <= now.
--   owner   who holds the lease; NULL when nobody does
--   until   the moment from which the job may be claimed (end of the lease), in seconds
--   fence   the fencing token: grows by one at each claim and never falls
--   done    0 unfinished, 1 completed, 2 failed for good
CREATE TABLE IF NOT EXISTS main.jobs(
  id     TEXT PRIMARY KEY,
  owner  TEXT,
  until  REAL NOT NULL DEFAULT 0,
  fence  INTEGER NOT NULL DEFAULT 0,
  result TEXT,
  done   INTEGER NOT NULL DEFAULT 0
);
