-- Prolong the slots of one owner; an upsert, so that a store that lost them knows them again, above the limit too.
--
-- KEYS  as in pool.lua
-- ARGV  1 owner, 2 now, 3 end of the lease (unix milliseconds), 4 node, 5 the life that the owner knew last ('' for none),
--       6 workers that are alive, 7 how many rids the owner holds, 8… these, then those that it has asked for
-- Returns {the pool's holders, how many of the rids were unknown, 1 while grants are paused else 0, the life's id}.
-- While grants are paused the list is the truth: what the store has of this owner beside it was given back while the store
-- could not be told, and is dropped. What was only asked for is kept where it is, and never added. A rid that lives under another owner was taken over and stays with that one. Twin: seawall/admission/holders.py.

-- include pool

local id, paused = look(ARGV[4], ARGV[5], ARGV[2], ARGV[3], ARGV[6])
if paused then
  local named, known = {}, redis.call('HGETALL', KEYS[2])
  for i = 8, #ARGV do
    named[ARGV[i]] = true
  end
  for i = 1, #known, 2 do
    if known[i + 1] == ARGV[1] and not named[known[i]] then
      redis.call('ZREM', KEYS[1], known[i])
      redis.call('HDEL', KEYS[2], known[i])
    end
  end
end
local added = 0
for i = 8, 7 + tonumber(ARGV[7]) do
  local owner = redis.call('HGET', KEYS[2], ARGV[i])
  if not owner then
    added = added + 1
  end
  if not owner or owner == ARGV[1] then
    redis.call('ZADD', KEYS[1], ARGV[3], ARGV[i])
    redis.call('HSET', KEYS[2], ARGV[i], ARGV[1])
  end
end
redis.call('HSET', KEYS[3], 'at', ARGV[2])
if paused then
  paused = asserted(ARGV[1], ARGV[6])
end
prolong(tonumber(ARGV[3]) - tonumber(ARGV[2]))
return {redis.call('ZCARD', KEYS[1]), added, paused and 1 or 0, id}
