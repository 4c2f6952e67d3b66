-- Adds many jobs that anybody may claim, in the order of a JSON array of ids.
--   ?1 ids    JSON array of texts, none of them empty; needs SQLite's JSON functions
-- Changes as many rows as were new.
INSERT INTO main.jobs(id)
SELECT value
  FROM json_each(?1) AS ids
 WHERE type = 'text' AND value <> ''
   AND instr(value, char(0)) = 0                 -- many clients cut text at the first NUL
   AND NOT EXISTS (SELECT 1 FROM main.jobs WHERE id = ids.value)
 GROUP BY value                                  -- an id that stands there twice is one job
 ORDER BY min(key);
