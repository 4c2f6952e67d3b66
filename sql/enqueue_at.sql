-- Adds a job that may be claimed from a moment on.
--   ?1 id     text, not empty
--   ?2 due    number, seconds; a negative one makes the job urgent
-- Changes 1 row if the job is new, 0 if it was there already or the id or due are not proper ones.
INSERT INTO main.jobs(id, until)
SELECT ?1, ?2
 WHERE typeof(?1) = 'text' AND ?1 <> ''          -- TEXT PRIMARY KEY alone admits NULL and BLOB
   AND instr(?1, char(0)) = 0                    -- many clients cut text at the first NUL
   AND CAST(?2 AS DOUBLE PRECISION) = ?2         -- text and BLOB are no moments
   AND abs(CAST(?2 AS DOUBLE PRECISION)) < 9e999 -- a job that is never due is none
   AND NOT EXISTS (SELECT 1 FROM main.jobs WHERE id = ?1);  -- keeps lease, fence and result
