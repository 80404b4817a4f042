-- Take a slot of a pool.
--
-- KEYS  as in pool.lua
-- ARGV  1 rid, 2 owner, 3 limit, 4 now, 5 end of the lease (unix milliseconds), 6 node, 7 the life that the owner knew last
--       ('' for none), 8 workers that are alive
-- Returns {what, holders now}, and the life's id where it is not the one of ARGV[7]. `what`: 1 granted, 0 the pool is full,
-- -1 grants are paused and this owner must say what it holds (renew), -2 they are paused and it has.
--
-- A live rid is taken over (new owner, new lease) whatever the limit: it holds its slot already.
-- Twin: seawall/admission/holders.py.

-- include pool

local id, paused = look(ARGV[6], ARGV[7], ARGV[4], ARGV[5], ARGV[8])
local what, held = 1, redis.call('ZCARD', KEYS[1])
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  if paused then
    what = redis.call('HEXISTS', KEYS[3], 'w:' .. ARGV[2]) == 1 and -2 or -1
  elseif held >= tonumber(ARGV[3]) then
    what = 0
  else
    held = held + 1
  end
end
if what == 1 then
  redis.call('ZADD', KEYS[1], ARGV[5], ARGV[1])
  redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
end
prolong(tonumber(ARGV[5]) - tonumber(ARGV[4]))
if id ~= ARGV[7] then
  return {what, held, id}
end
return {what, held}
