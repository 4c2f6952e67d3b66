-- Takes up to limit jobs of a queue that are due, in one statement. Leases that ran out and
-- delayed jobs whose moment has come (0 < until <= now) go first, so that no backlog starves
-- them; then the untouched ones by until (a negative one is urgent), then as they were enqueued.
--   ?1 owner  text, not empty
--   ?2 now    number, seconds
--   ?3 ttl    number, seconds, greater than 0
--   ?4 limit  integer, how many at most; 0 or less is none
--   ?5 queue  text: the part of the ids before the first ':', '' for ids without one
-- Answers a row (id, fence, until) for each job it took, in no order.
UPDATE main.jobs
   SET owner = ?1, until = CAST(?2 AS DOUBLE PRECISION) + ?3, fence = fence + 1
 WHERE rowid IN (
         SELECT * FROM (
           SELECT rowid FROM main.jobs INDEXED BY fence_queue
            WHERE done = 0 AND substr(id, 1, max(instr(id, ':') - 1, 0)) = ?5
              AND until > 0 AND until <= ?2
              AND fence < 9223372036854775807
            ORDER BY until, rowid
            LIMIT max(CAST(?4 AS INTEGER), 0))   -- a negative limit would mean all
         UNION ALL
         SELECT * FROM (
           SELECT rowid FROM main.jobs INDEXED BY fence_queue
            WHERE done = 0 AND substr(id, 1, max(instr(id, ':') - 1, 0)) = ?5
              AND until <= min(0, CAST(?2 AS DOUBLE PRECISION))
              AND fence < 9223372036854775807
            ORDER BY until, rowid
            LIMIT max(CAST(?4 AS INTEGER), 0))
         LIMIT max(CAST(?4 AS INTEGER), 0))
   AND typeof(?1) = 'text' AND ?1 <> ''          -- an owner of NULL could never complete
   AND instr(?1, char(0)) = 0                    -- many clients cut text at the first NUL
   AND CAST(?2 AS DOUBLE PRECISION) = ?2         -- text and BLOB sort above every number
   AND CAST(?3 AS DOUBLE PRECISION) = ?3
   AND CAST(?2 AS DOUBLE PRECISION) < CAST(?2 AS DOUBLE PRECISION) + ?3  -- no lease is born over
   AND CAST(?2 AS DOUBLE PRECISION) + ?3 < 9e999 -- nor lasts for ever
   AND CAST(?4 AS INTEGER) = ?4                  -- infinitely many would be all
RETURNING id, fence, until;
