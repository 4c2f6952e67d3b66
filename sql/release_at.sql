-- Gives a job back, to be claimed from a moment on: back-off after a failed attempt.
--   ?1 id     text
--   ?2 owner  text
--   ?3 fence  integer, as the claim answered it
--   ?4 due    number, seconds
-- Changes 1 row if the job was given back, 0 if it is not (or no longer) this owner's or done.
UPDATE main.jobs
   SET owner = NULL, until = CAST(?4 AS DOUBLE PRECISION)
 WHERE id = ?1
   AND owner = ?2
   AND fence = ?3                                -- a stale worker must not free its successor's job
   AND done = 0
   AND CAST(?4 AS DOUBLE PRECISION) = ?4         -- text and BLOB are no moments
   AND abs(CAST(?4 AS DOUBLE PRECISION)) < 9e999;-- a job that is never due is none
