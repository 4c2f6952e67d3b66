-- Fences a table of your own: a row is written only by the current generation of the job that it
-- names. fence_guard() fills in the names; by hand, write them in place of the braces:
--   {table}      the table                       "orders"
--   {job}        its column that names the job   "job"
--   {row}        what finds a row again          rowid = new.rowid
--   {insert} {inserted} {update} {updated} {delete}  names for the triggers
--   {label}      the table in error sentences    orders
--   {name}       {insert} as text                fence_guard_orders_insert
--   {indexes}    the CREATE UNIQUE INDEX statements of the table, as text literals with commas
--   {replaces}   a statement for each UNIQUE index and for the rowid (see src/guard.rs), because
--                INSERT OR REPLACE fires no delete trigger
-- The table needs a column `fence INTEGER` that is NULL in every row. A write states its fence
-- there, and the triggers take it out again, so that the next write must state its own.

CREATE TRIGGER main.{insert} BEFORE INSERT ON {table}
BEGIN
  SELECT RAISE(ABORT, '{label}: state the current fence of the row''s job in the column fence')
   WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE id = CAST(new.{job} AS TEXT)
                        AND fence = new.fence AND owner IS NOT NULL AND done = 0);
  SELECT RAISE(ABORT, '{label}: its UNIQUE indexes changed, call fence_guard again')
    FROM sqlite_master
   WHERE tbl_name = (SELECT tbl_name FROM sqlite_master WHERE type = 'trigger' AND name = '{name}')
     AND sql BETWEEN 'CREATE UNIQUE' AND 'CREATE UNIQUE~' AND sql NOT IN ({indexes});
{replaces}END;

CREATE TRIGGER main.{inserted} AFTER INSERT ON {table}
BEGIN
  UPDATE {table} SET fence = NULL WHERE {row} AND fence IS NOT NULL;
END;

-- Taking the stamp out again is not checked.
CREATE TRIGGER main.{update} BEFORE UPDATE ON {table}
WHEN old.fence IS NULL OR new.fence IS NOT NULL
BEGIN
  SELECT RAISE(ABORT, '{label}: state the current fence of the row''s job in the column fence')
   WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE id = CAST(old.{job} AS TEXT)
                        AND (fence = new.fence OR fence = -new.fence AND new.fence < 0)
                        AND owner IS NOT NULL AND done = 0);
  SELECT RAISE(ABORT, '{label}: a row cannot change its job')
   WHERE CAST(new.{job} AS TEXT) IS NOT CAST(old.{job} AS TEXT) COLLATE BINARY;
  SELECT RAISE(ABORT, '{label}: its UNIQUE indexes changed, call fence_guard again')
    FROM sqlite_master
   WHERE tbl_name = (SELECT tbl_name FROM sqlite_master WHERE type = 'trigger' AND name = '{name}')
     AND sql BETWEEN 'CREATE UNIQUE' AND 'CREATE UNIQUE~' AND sql NOT IN ({indexes});
{replaces}END;

-- Minus the fence asks for the row to be deleted: a DELETE has no place to state one.
CREATE TRIGGER main.{updated} AFTER UPDATE ON {table}
BEGIN
  DELETE FROM {table} WHERE {row} AND fence < 0;
  UPDATE {table} SET fence = NULL WHERE {row} AND fence IS NOT NULL;
END;

-- A row whose fence is not NULL is in the middle of a write that was let through.
CREATE TRIGGER main.{delete} BEFORE DELETE ON {table} WHEN old.fence IS NULL
BEGIN
  SELECT RAISE(ABORT, '{label}: to delete a row, set its fence to minus the current one');
END;
