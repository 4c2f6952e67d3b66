"""Redis, the contract by hand as two Lua scripts over a sorted set of due moments."""

import os

import redis

from .base import Base, job_id, now

CLAIM = """
local id = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[2], 'LIMIT', 0, 1)[1]
if not id then return nil end
redis.call('ZADD', KEYS[1], ARGV[2] + ARGV[3], id)
redis.call('HSET', 'job:' .. id, 'owner', ARGV[1])
return {id, redis.call('HINCRBY', 'job:' .. id, 'fence', 1)}"""
COMPLETE = """
local key, held = 'job:' .. ARGV[1], redis.call('HMGET', 'job:' .. ARGV[1], 'owner', 'fence')
local ends = redis.call('ZSCORE', KEYS[1], ARGV[1])
if held[1] ~= ARGV[2] or held[2] ~= ARGV[3] or not ends or ends + 0 <= ARGV[5] + 0 then
  return 0
end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HSET', key, 'result', ARGV[4], 'done', 1)
return 1"""


class Peer(Base):
    def __init__(self, **options):
        super().__init__(**options)
        port = int(os.environ["PEERS_REDIS"])
        self.db = redis.Redis("127.0.0.1", port, decode_responses=True)
        if self.fresh:
            self.db.flushall()
            self.db.config_set("appendfsync", "always" if self.full else "everysec")
        self.claim_script = self.db.register_script(CLAIM)
        self.complete_script = self.db.register_script(COMPLETE)

    def version(self):
        server = self.db.info("server")["redis_version"]
        return "Redis %s, redis-py %s" % (server, redis.__version__)

    def durability(self):
        found = self.db.config_get("append*")
        return "appendonly=%s, appendfsync=%s" % (found["appendonly"], found["appendfsync"])

    def enqueue(self, i):
        self.db.zadd("due", {job_id(i): 0}, nx=True)

    def fill(self, n):
        for start in range(0, n, 1000):
            self.db.zadd("due", {job_id(i): 0 for i in range(start, min(n, start + 1000))})

    def claim(self):
        return self.claim_script(["due"], [self.worker, now(), self.ttl])

    def complete(self, job, result):
        args = [job[0], self.worker, job[1], result, now()]
        return self.complete_script(["due"], args) == 1

    def state(self):
        job = self.db.hgetall("job:" + job_id(0))
        return ", ".join("%s %s" % item for item in sorted(job.items()))

    def close(self):
        self.db.close()
