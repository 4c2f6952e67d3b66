-- What the file itself refuses, whoever writes: triggers and one row, no function of ours.
-- Each statement can be run again; statements are separated by an empty line.

-- The highest fence that a deleted job ever had. New jobs start above it, so that no deletion
-- lets a fence be handed out twice.
CREATE TABLE IF NOT EXISTS main.fence_floor(
  only  INTEGER PRIMARY KEY CHECK (only = 1),
  fence INTEGER NOT NULL CHECK (typeof(fence) = 'integer' AND fence >= 0)
);

-- Under the id of a row that is being inserted: the highest fence among the jobs whose place it
-- would take, by id or by rowid. Many of these inserts never happen; the latest few are kept,
-- because a trigger of your own on jobs may insert others in between.
CREATE TABLE IF NOT EXISTS main.fence_replaced(
  id    TEXT,
  fence INTEGER NOT NULL
);

CREATE TRIGGER IF NOT EXISTS main.fence_floor_is_kept BEFORE DELETE ON fence_floor
BEGIN
  SELECT RAISE(ABORT, 'fence_floor: the floor cannot be deleted');
END;

CREATE TRIGGER IF NOT EXISTS main.fence_floor_never_falls BEFORE UPDATE ON fence_floor
WHEN new.fence < old.fence
BEGIN
  SELECT RAISE(ABORT, 'fence_floor: the floor cannot fall');
END;

-- INSERT OR REPLACE deletes without firing a delete trigger.
CREATE TRIGGER IF NOT EXISTS main.fence_floor_is_one BEFORE INSERT ON fence_floor
WHEN EXISTS (SELECT 1 FROM fence_floor)
BEGIN
  SELECT RAISE(ABORT, 'fence_floor: there is one floor');
END;

-- The lines of a job's life. rowid is listed because UPDATE OR REPLACE of a rowid would delete
-- another job without firing a delete trigger.
CREATE TRIGGER IF NOT EXISTS main.fence_job_update
BEFORE UPDATE OF id, fence, result, done, rowid, _rowid_, oid ON jobs
WHEN new.fence < old.fence
  OR typeof(new.fence) <> 'integer'
  OR new.id IS NOT old.id
  OR new.rowid <> old.rowid
  OR old.done <> 0 AND new.fence = old.fence
     AND (new.done IS NOT old.done OR new.result IS NOT old.result)
BEGIN
  SELECT RAISE(ABORT, 'jobs: a fence cannot fall') WHERE new.fence < old.fence;
  SELECT RAISE(ABORT, 'jobs: a fence must be an integer below 2^63')
   WHERE typeof(new.fence) <> 'integer';
  SELECT RAISE(ABORT, 'jobs: a job cannot be renamed or moved')
   WHERE new.id IS NOT old.id OR new.rowid <> old.rowid;
  SELECT RAISE(ABORT, 'jobs: a job that is done stays so, and its result, while its fence stays');
END;

CREATE TRIGGER IF NOT EXISTS main.fence_job_delete AFTER DELETE ON jobs
WHEN old.fence > (SELECT fence FROM fence_floor)
BEGIN
  UPDATE fence_floor SET fence = old.fence;
END;

-- Before: who is there? INSERT OR REPLACE is about to delete it, INSERT OR IGNORE is not;
-- only the trigger after the insert knows which it was.
CREATE TRIGGER IF NOT EXISTS main.fence_job_replace BEFORE INSERT ON jobs
WHEN EXISTS (SELECT 1 FROM jobs WHERE id = new.id OR rowid = new.rowid)
  OR EXISTS (SELECT 1 FROM fence_replaced WHERE id IS new.id)
BEGIN
  DELETE FROM fence_replaced
   WHERE id IS new.id OR rowid <= (SELECT max(rowid) - 8 FROM fence_replaced);
  INSERT INTO fence_replaced
  SELECT new.id, fence FROM jobs WHERE id = new.id OR rowid = new.rowid
   ORDER BY fence DESC LIMIT 1;
END;

CREATE TRIGGER IF NOT EXISTS main.fence_job_insert AFTER INSERT ON jobs
WHEN typeof(new.fence) <> 'integer'
  OR new.fence < 0
  OR new.fence <= (SELECT nullif(fence, 0) FROM fence_floor)
  OR EXISTS (SELECT 1 FROM fence_replaced WHERE id IS new.id)
BEGIN
  SELECT RAISE(ABORT, 'jobs: a fence must be an integer from 0 to 2^63 - 1')
   WHERE typeof(new.fence) <> 'integer' OR new.fence < 0;
  -- A stale worker's whole row, written back over its successor's.
  SELECT RAISE(ABORT, 'jobs: a row that replaces a job must be a fresh one or have a higher fence')
    FROM fence_replaced
   WHERE id IS new.id AND fence >= new.fence
     AND (new.owner IS NOT NULL OR new.result IS NOT NULL OR new.done <> 0);
  UPDATE fence_floor SET fence = (SELECT fence FROM fence_replaced WHERE id IS new.id)
   WHERE fence < (SELECT fence FROM fence_replaced WHERE id IS new.id);
  UPDATE jobs
     SET fence = (SELECT fence + (fence < 9223372036854775807) FROM fence_floor)
   WHERE rowid = new.rowid AND fence <= (SELECT nullif(fence, 0) FROM fence_floor);
END;

INSERT INTO main.fence_floor(only, fence)
SELECT 1, 0 WHERE NOT EXISTS (SELECT 1 FROM main.fence_floor);
