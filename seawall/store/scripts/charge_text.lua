-- Charge plain numbers under envoyproxy/ratelimit's keys, in order and in full also when over.
--
-- KEYS  for each demand its counter, a string; its name holds the window. The same one may stand several times
-- ARGV  for each demand: hits (0 looks), seconds that the key lives after its first hit
-- Returns for each demand the window's hits after its own.
--
-- The short way of charge_all.lua for the drop-in. Twin: seawall/limits/charge.py.

local MOST = 9007199254740991
local call, counts = redis.call, {}
for i, key in ipairs(KEYS) do
  local hits = ARGV[2 * i - 1]
  if hits == '0' then
    counts[i] = tonumber(call('GET', key) or '0')
  else
    local count = call('INCRBY', key, hits)
    if count == tonumber(hits) then
      call('EXPIRE', key, ARGV[2 * i])
    end
    if count >= MOST then
      call('SET', key, '9007199254740991', 'KEEPTTL') -- as text: tostring would write 9.007e+15
      count = MOST
    end
    counts[i] = count
  end
end
return counts
