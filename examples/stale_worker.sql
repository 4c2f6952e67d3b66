-- A worker that stalled is refused, in the sqlite3 shell. From the project's folder:
--
--   cargo build --release --no-default-features --features loadable
--   sqlite3 :memory: ".load target/release/libfence" ".read examples/stale_worker.sql"
--
-- The comment beside or below each statement is what it prints; the error is meant to come. Times are seconds on any clock
-- that the workers share; here they are written out, so that the story is the same every time.

.nullvalue NULL

SELECT fence_init();                                           -- 1
SELECT fence_enqueue('report');                                -- 1

-- At 0, A takes the job for 10 seconds. Its fence is 1.
SELECT fence_claim('report', 'A', 0, 10);                      -- 1

-- At 9, A has stalled, but its lease is not over: B gets nothing.
SELECT fence_claim('report', 'B', 9, 10);                      -- NULL

-- At 10 it is over. B takes the job; the fence grows.
SELECT fence_claim('report', 'B', 10, 10);                     -- 2

-- At 11, A wakes up. It can neither prolong its lease, nor give back B's job, nor write.
SELECT fence_renew('report', 'A', 1, 11, 10);                  -- 0
SELECT fence_release('report', 'A', 1);                        -- 0
SELECT fence_complete('report', 'A', 1, 11, 'written by A');   -- 0

-- B finishes.
SELECT fence_complete('report', 'B', 2, 12, 'written by B');   -- 1

-- A tries once more, with a clock that is wrong: the fence refuses it, not the time.
SELECT fence_complete('report', 'A', 1, 0, 'written by A');    -- 0

-- Why? B has finished the job; before that it would have been "superseded".
SELECT fence_check('report', 'A', 1, 12);                      -- done

-- A goes round the functions. The file itself refuses, also in a client that loads nothing.
UPDATE jobs SET result = 'written by A' WHERE id = 'report';
-- Error: jobs: a job that is done stays so, and its result, while its fence stays (19)

SELECT fence_state('report');
-- {"id":"report","owner":"B","until":20.0,"fence":2,"result":"written by B","done":1}
