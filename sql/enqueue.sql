-- Adds a job that anybody may claim.
--   ?1 id     text, not empty
-- Changes 1 row if the job is new, 0 if it was there already or the id is no proper id.
INSERT INTO main.jobs(id)
SELECT ?1
 WHERE typeof(?1) = 'text' AND ?1 <> ''          -- TEXT PRIMARY KEY alone admits NULL and BLOB
   AND instr(?1, char(0)) = 0                    -- many clients cut text at the first NUL
   AND NOT EXISTS (SELECT 1 FROM main.jobs WHERE id = ?1);  -- keeps lease, fence and result
