-- Stores an error and gives the job up for good: a dead letter; owner, until and fence stay.
--   ?1 id     text
--   ?2 owner  text
--   ?3 fence  integer, as the claim answered it
--   ?4 now    number, seconds
--   ?5 error  text or NULL; a number becomes text
-- Changes 1 row if the failure counts, 0 if the lease is over, taken over, released or done.
UPDATE main.jobs
   SET result = ?5, done = 2
 WHERE id = ?1
   AND owner = ?2
   AND fence = ?3                                -- refuses every stale worker, whatever its clock says
   AND done = 0                                  -- the first result stays
   AND until > ?4                                -- an expired lease is over even if nobody took it
   AND CAST(?4 AS DOUBLE PRECISION) > -9e999     -- every lease is live at minus infinity
   AND typeof(?5) <> 'blob';                     -- a TEXT column would keep it as BLOB
