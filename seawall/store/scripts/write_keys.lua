-- Write records of API keys, each only if it is still as its author saw it.
--
-- KEYS  1 keys, 2 keys:ids, 3 keys:events, 4 keys:stamp
-- ARGV  1 events kept, then for each record: id, the record as it was seen ('' for absent), the record to write (JSON),
--       SHA-256 of the key (hex)
-- Returns for each record: 1 written, 0 it changed meanwhile, -1 the key has another id already.

local done = {}
local stamp = redis.call('GET', KEYS[4]) or ''
for i = 2, #ARGV, 4 do
  local id, seen, record, digest = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  if (redis.call('HGET', KEYS[1], id) or '') ~= seen then
    done[#done + 1] = 0
  elseif (redis.call('HGET', KEYS[2], digest) or id) ~= id then
    done[#done + 1] = -1
  else
    redis.call('HSET', KEYS[1], id, record)
    redis.call('HSET', KEYS[2], digest, id)
    stamp = redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[1], '*', 'before', stamp, 'id', id, 'record', record)
    redis.call('SET', KEYS[4], stamp)
    done[#done + 1] = 1
  end
end
return done
