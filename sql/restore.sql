-- For a file that was restored from a backup or copied: no fence of it may be handed out again.
-- To be run in one transaction.
--   ?1 bump   integer, more than the fences that were handed out since the copy was made
UPDATE main.fence_floor SET fence = fence + ?1;

UPDATE main.jobs
   SET fence = fence + ?1,
       until = CASE WHEN owner IS NOT NULL AND done = 0 THEN 0 ELSE until END,
       owner = CASE WHEN done = 0 THEN NULL ELSE owner END;
