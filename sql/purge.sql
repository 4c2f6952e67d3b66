-- Deletes completed jobs whose lease ended before a moment, the oldest first. Their fences live on in
-- the floor.
--   ?1 before number, seconds
--   ?2 limit  integer, how many at most
-- Changes as many rows as it deleted.
DELETE FROM main.jobs
 WHERE rowid IN (SELECT rowid FROM main.jobs INDEXED BY fence_done
                  WHERE done = 1     -- unfinished jobs and dead letters stay, however old
                    AND until < ?1
                    AND CAST(?1 AS DOUBLE PRECISION) = ?1 -- text and BLOB sort above every number
                    AND CAST(?1 AS DOUBLE PRECISION) < 9e999
                  ORDER BY until                         -- a negative limit would mean all
                  LIMIT CASE WHEN CAST(?2 AS INTEGER) = ?2 AND CAST(?2 AS INTEGER) > 0
                             THEN ?2 ELSE 0 END);
