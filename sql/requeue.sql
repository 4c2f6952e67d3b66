-- Makes a dead letter claimable again. Its fence grows, so that no old holder is valid.
--   ?1 id     text
-- Changes 1 row if there is a dead letter of this id, 0 otherwise.
UPDATE main.jobs
   SET owner = NULL, until = 0, fence = fence + 1, result = NULL, done = 0
 WHERE id = ?1
   AND done = 2                                  -- a completed job is done for good
   AND fence < 9223372036854775807;              -- one more would turn into a REAL and stick
