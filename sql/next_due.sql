-- The earliest moment at which a job of the queue may be claimed: one row, NULL if there is no
-- such job. Reads only.
--   ?1 queue  text
SELECT min(until) FROM main.jobs INDEXED BY fence_queue
 WHERE done = 0 AND substr(id, 1, max(instr(id, ':') - 1, 0)) = ?1
   AND fence < 9223372036854775807;              -- such a job is never claimed again
