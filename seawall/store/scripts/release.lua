-- Give a slot back.
--
-- KEYS  as in pool.lua
-- ARGV  1 rid, 2 owner
-- Returns 1 when the slot was this owner's, else 0: a slot that another worker took over stays.
-- Twin: seawall/admission/holders.py.

if redis.call('HGET', KEYS[2], ARGV[1]) ~= ARGV[2] then
  return 0
end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
return 1
