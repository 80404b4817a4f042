-- Take a slot of a pool.
--
-- KEYS  1 holders (sorted set: rid → end of lease), 2 owners (hash: rid → worker)
-- ARGV  1 rid, 2 owner, 3 limit, 4 now, 5 end of the lease; times in unix milliseconds
-- Returns {1 when granted else 0, holders now}.
--
-- A live rid is taken over (new owner, new lease) whatever the limit: it holds its slot already.
-- Twin: seawall/admission/holders.py.

local FORGET = 3600000 -- a pool that is used no more is forgotten this long after its last lease

local gone = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[4])
for _, rid in ipairs(gone) do
  redis.call('ZREM', KEYS[1], rid)
  redis.call('HDEL', KEYS[2], rid)
end

local held = redis.call('ZCARD', KEYS[1])
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  if held >= tonumber(ARGV[3]) then
    return {0, held}
  end
  held = held + 1
end
redis.call('ZADD', KEYS[1], ARGV[5], ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])

local lease = tonumber(ARGV[5]) - tonumber(ARGV[4])
if redis.call('PTTL', KEYS[1]) < lease then
  redis.call('PEXPIRE', KEYS[1], lease + FORGET)
  redis.call('PEXPIRE', KEYS[2], lease + FORGET)
end
return {1, held}
