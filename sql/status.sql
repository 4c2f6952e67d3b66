-- Every job in one word, for people and monitors: a view that any tool can read.
--   state         free, delayed, leased, expired, done or failed
--   seconds_left  until the lease ends or the job is due, by the database's clock; NULL when done
CREATE VIEW IF NOT EXISTS main.fence_status(id, state, owner, fence, seconds_left) AS
SELECT id,
       CASE WHEN done = 1 THEN 'done'
            WHEN done <> 0 THEN 'failed'
            WHEN until > now THEN CASE WHEN owner IS NULL THEN 'delayed' ELSE 'leased' END
            WHEN owner IS NULL THEN 'free'
            ELSE 'expired' END,
       owner,
       fence,
       CASE WHEN done = 0 THEN round(max(until - now, 0.0), 3) END
  FROM jobs, (SELECT round((julianday('now') - 2440587.5) * 86400.0, 3) AS now);
