-- Takes a job for ttl seconds.
--   ?1 id     text
--   ?2 owner  text, not empty
--   ?3 now    number, seconds
--   ?4 ttl    number, seconds, greater than 0
-- Answers one row (fence, until) if the claim succeeded, none if the job is not claimable.
-- The fence is the token to show at renew, complete and release. It counts after COMMIT.
UPDATE main.jobs
   SET owner = ?2, until = CAST(?3 AS DOUBLE PRECISION) + ?4, fence = fence + 1
 WHERE id = ?1
   AND done = 0                                  -- a finished job is never claimed again
   AND until <= ?3                               -- a lease is [claim, until): over when now = until
   AND fence < 9223372036854775807               -- one more would turn into a REAL and stick
   AND typeof(?2) = 'text' AND ?2 <> ''          -- an owner of NULL could never complete
   AND instr(?2, char(0)) = 0                    -- many clients cut text at the first NUL
   AND CAST(?3 AS DOUBLE PRECISION) = ?3         -- text and BLOB sort above every number
   AND CAST(?4 AS DOUBLE PRECISION) = ?4
   AND CAST(?3 AS DOUBLE PRECISION) < CAST(?3 AS DOUBLE PRECISION) + ?4  -- no lease is born over
   AND CAST(?3 AS DOUBLE PRECISION) + ?4 < 9e999 -- nor lasts for ever
RETURNING fence, until;
