-- Prolong the slots of one owner; an upsert, so that a store that lost them knows them again, above the limit too.
--
-- KEYS  1 holders (sorted set: rid → end of lease), 2 owners (hash: rid → worker)
-- ARGV  1 owner, 2 now, 3 end of the lease, 4… rids; times in unix milliseconds
-- Returns the pool's holders. A rid that lives under another owner was taken over and stays with that one.
-- Twin: seawall/admission/holders.py.

local FORGET = 3600000 -- as in acquire.lua

local gone = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[2])
for _, rid in ipairs(gone) do
  redis.call('ZREM', KEYS[1], rid)
  redis.call('HDEL', KEYS[2], rid)
end

for i = 4, #ARGV do
  local owner = redis.call('HGET', KEYS[2], ARGV[i])
  if not owner or owner == ARGV[1] then
    redis.call('ZADD', KEYS[1], ARGV[3], ARGV[i])
    redis.call('HSET', KEYS[2], ARGV[i], ARGV[1])
  end
end

local lease = tonumber(ARGV[3]) - tonumber(ARGV[2])
if #ARGV >= 4 and redis.call('PTTL', KEYS[1]) < lease then
  redis.call('PEXPIRE', KEYS[1], lease + FORGET)
  redis.call('PEXPIRE', KEYS[2], lease + FORGET)
end
return redis.call('ZCARD', KEYS[1])
