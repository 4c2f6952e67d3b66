-- Takes the next job of a queue that is due: claim_batch with a limit of 1, at 0.6 of its cost. A
-- lease that ran out or a delayed job whose moment has come (0 < until <= now) goes first, so that
-- no backlog starves it; then the untouched ones by until (a negative one is urgent), then as they
-- were enqueued.
--   ?1 owner  text, not empty
--   ?2 now    number, seconds
--   ?3 ttl    number, seconds, greater than 0
--   ?4 queue  text: the part of the ids before the first ':', '' for ids without one
-- Answers a row (id, fence, until) if it took a job.
UPDATE main.jobs
   SET owner = ?1, until = CAST(?2 AS DOUBLE PRECISION) + ?3, fence = fence + 1
 WHERE rowid = coalesce(
         (SELECT rowid FROM main.jobs INDEXED BY fence_queue
           WHERE done = 0 AND substr(id, 1, max(instr(id, ':') - 1, 0)) = ?4
             AND until > 0 AND until <= ?2
             AND fence < 9223372036854775807
           ORDER BY until, rowid
           LIMIT 1),
         (SELECT rowid FROM main.jobs INDEXED BY fence_queue
           WHERE done = 0 AND substr(id, 1, max(instr(id, ':') - 1, 0)) = ?4
             AND until <= min(0, CAST(?2 AS DOUBLE PRECISION))
             AND fence < 9223372036854775807
           ORDER BY until, rowid
           LIMIT 1))
   AND typeof(?1) = 'text' AND ?1 <> ''          -- an owner of NULL could never complete
   AND instr(?1, char(0)) = 0                    -- many clients cut text at the first NUL
   AND CAST(?2 AS DOUBLE PRECISION) = ?2         -- text and BLOB sort above every number
   AND CAST(?3 AS DOUBLE PRECISION) = ?3
   AND CAST(?2 AS DOUBLE PRECISION) < CAST(?2 AS DOUBLE PRECISION) + ?3  -- no lease is born over
   AND CAST(?2 AS DOUBLE PRECISION) + ?3 < 9e999 -- nor lasts for ever
RETURNING id, fence, until;
