-- The job as it stands: one row, or none if there is no such job. Reads only.
--   ?1 id     text
SELECT id, owner, until, fence, result, done FROM main.jobs WHERE id = ?1;
