-- Lets a write through whose fence is as high as the highest so far, and remembers it.
--   ?1 resource text, not empty
--   ?2 fence    integer greater than 0, as the claim answered it
-- Changes 1 row if the write may go on, 0 if it comes from a stale worker.
INSERT INTO main.fence_gate(resource, fence)
SELECT ?1, ?2
 WHERE typeof(?1) = 'text' AND ?1 <> ''
   AND CAST(?2 AS INTEGER) = ?2 AND CAST(?2 AS INTEGER) > 0  -- text and BLOB sort above every number
    ON CONFLICT(resource) DO UPDATE SET fence = excluded.fence
 WHERE excluded.fence >= fence_gate.fence;
