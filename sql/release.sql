-- Gives a job back: anybody may claim it at once. The fence stays, so the next claim has a higher one.
--   ?1 id     text
--   ?2 owner  text
--   ?3 fence  integer, as the claim answered it
-- Changes 1 row if the job was given back, 0 if it is not (or no longer) this owner's or done.
UPDATE main.jobs
   SET owner = NULL, until = 0
 WHERE id = ?1
   AND owner = ?2
   AND fence = ?3                                -- a stale worker must not free its successor's job
   AND done = 0;
