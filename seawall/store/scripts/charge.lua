-- Add to fixed windows of counters; all of one call, in order, in full even when over.
--
-- KEYS  one counter each (hash: start of a window → hits); the same key may stand several times
-- ARGV  for each key: start of the window and its length (unix seconds), hits (0 looks and writes nothing)
-- Returns the count of each window after its own hits.
--
-- Each window has a field of its own, so a late call (an older start, a clock that went back) counts in its own window and
-- never resets a newer one. The first hit of a window drops those that ended more than a length before it, and sets the
-- expiry: one EXPIRE a window, not one a hit. Twin: seawall/store/counters.py.

local MOST = 9007199254740991 -- 2^53 - 1: a Lua number is a double, so counts stop here and are exact below
local SLACK = 5 -- seconds that a counter outlives its window

local counts = {}
for i, key in ipairs(KEYS) do
  local start, length, hits = ARGV[3 * i - 2], tonumber(ARGV[3 * i - 1]), ARGV[3 * i]
  if hits == '0' then
    counts[i] = tonumber(redis.call('HGET', key, start) or '0')
  else
    local count = redis.call('HINCRBY', key, start, hits)
    if count == tonumber(hits) then
      local oldest = tonumber(start) - length
      for _, other in ipairs(redis.call('HKEYS', key)) do
        if tonumber(other) < oldest then
          redis.call('HDEL', key, other)
        end
      end
      redis.call('EXPIRE', key, length + SLACK)
    end
    if count >= MOST then
      redis.call('HSET', key, start, '9007199254740991') -- as text: tostring would write 9.007e+15
      count = MOST
    end
    counts[i] = count
  end
end
return counts
