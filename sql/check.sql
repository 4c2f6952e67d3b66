-- Why a lease is or is not held, in one word. Reads only.
--   ?1 id     text
--   ?2 owner  text
--   ?3 fence  integer, as the claim answered it
--   ?4 now    number, seconds
-- Always answers one row: missing, done_by_you, done, never_issued, superseded, not_owner,
-- released, expired or held, the first that is true.
SELECT CASE
         WHEN j.id IS NULL THEN 'missing'
         WHEN j.done <> 0 AND j.owner = ?2 AND j.fence = ?3 THEN 'done_by_you'
         WHEN j.done <> 0 THEN 'done'
         WHEN (CAST(?3 AS INTEGER) = ?3                          -- text and BLOB sort above
               AND CAST(?3 AS INTEGER) BETWEEN 1 AND j.fence) IS NOT 1 THEN 'never_issued'
         WHEN j.fence > ?3 THEN 'superseded'
         WHEN j.owner IS NOT NULL AND j.owner IS NOT ?2 THEN 'not_owner'
         WHEN j.owner IS NULL THEN 'released'
         WHEN j.until > ?4 AND CAST(?4 AS DOUBLE PRECISION) > -9e999 THEN 'held'
         ELSE 'expired'
       END AS standing
  FROM (SELECT 1) LEFT JOIN main.jobs AS j ON j.id = ?1;
