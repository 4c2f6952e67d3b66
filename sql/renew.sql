-- Sets the end of a lease to now + ttl, even if that is sooner.
--   ?1 id     text
--   ?2 owner  text
--   ?3 fence  integer, as the claim answered it
--   ?4 now    number, seconds
--   ?5 ttl    number, seconds, greater than 0
-- Changes 1 row if the lease was held, 0 if it is over, taken over, released or done.
UPDATE main.jobs
   SET until = CAST(?4 AS DOUBLE PRECISION) + ?5
 WHERE id = ?1
   AND owner = ?2
   AND fence = ?3                                -- the same owner's older claim is somebody else
   AND done = 0
   AND until > ?4                                -- what is over needs a new claim
   AND CAST(?4 AS DOUBLE PRECISION) = ?4         -- text and BLOB are no moments
   AND CAST(?5 AS DOUBLE PRECISION) = ?5
   AND CAST(?4 AS DOUBLE PRECISION) < CAST(?4 AS DOUBLE PRECISION) + ?5  -- no lease is born over
   AND CAST(?4 AS DOUBLE PRECISION) + ?5 < 9e999;-- nor lasts for ever
