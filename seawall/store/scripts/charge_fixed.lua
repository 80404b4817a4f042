-- Charge fixed windows, in order and in full also when over: envoyproxy/ratelimit's rule, and so most calls.
--
-- KEYS  for each demand its counter; the same one may stand several times. State: see seawall/limits/charge.py
-- ARGV  1 now (unix seconds), then for each demand: field, length of the window (seconds), hits (0 looks)
-- Returns for each demand the window's hits after its own.
--
-- The short way of charge_all.lua, which does the same and everything else. Twin: seawall/limits/charge.py.

local MOST, SLACK = 9007199254740991, 5
local call, counts = redis.call, {}
for i, key in ipairs(KEYS) do
  local field, length, hits = ARGV[3 * i - 1], ARGV[3 * i], ARGV[3 * i + 1]
  if hits == '0' then
    counts[i] = tonumber(call('HGET', key, field) or '0')
  else
    local count = call('HINCRBY', key, field, hits)
    if count == tonumber(hits) then
      for _, name in ipairs(call('HKEYS', key)) do
        local its, start = string.match(name, '^%a(%d+):(%d+)$')
        if start and tonumber(start) + 2 * tonumber(its) <= tonumber(ARGV[1]) then
          call('HDEL', key, name)
        end
      end
      local seconds = tonumber(length) + SLACK
      if call('PTTL', key) < seconds * 1000 then
        call('EXPIRE', key, seconds)
      end
    end
    if count >= MOST then
      call('HSET', key, field, '9007199254740991') -- as text: tostring would write 9.007e+15
      count = MOST
    end
    counts[i] = count
  end
end
return counts
