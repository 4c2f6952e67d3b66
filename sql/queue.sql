-- The index that finds what is due. The queue of a job is the part of its id before the first
-- ':', and '' where there is none. It costs pages at every write of an unfinished job, so it is
-- made only for those who claim what is due.
CREATE INDEX IF NOT EXISTS main.fence_queue
    ON jobs(substr(id, 1, max(instr(id, ':') - 1, 0)), until) WHERE done = 0;
