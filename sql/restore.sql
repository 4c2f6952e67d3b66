-- For a file that was restored from a backup or copied: no fence of it may be handed out again.
-- To be run in one transaction.
--   ?1 bump   integer greater than 0, more than any fence or the floor grew since the copy was
--             made: claims raise them, and so do requeueing, and deleting and adding a job again
-- The first changes 1 row, 0 if bump is no such number; an error where a fence would overflow.
UPDATE main.fence_floor
   SET fence = fence + CAST(?1 AS INTEGER)
 WHERE CAST(?1 AS INTEGER) = ?1 AND CAST(?1 AS INTEGER) > 0;

UPDATE main.jobs
   SET fence = fence + CAST(?1 AS INTEGER),
       until = CASE WHEN owner IS NOT NULL AND done = 0 THEN 0 ELSE until END,
       owner = CASE WHEN done = 0 THEN NULL ELSE owner END
 WHERE CAST(?1 AS INTEGER) = ?1 AND CAST(?1 AS INTEGER) > 0;
