-- Make a kept version current again.
--
-- KEYS  1 current, 2 previous, 3 the version to go to, 4 events
-- ARGV  1 current, 2 previous as the author saw them ('' for absent), 3 number of the version, 4 author, 5 reason,
--       6 events kept
-- Returns 1 done, 0 the versions changed meanwhile (look again), -1 the version is not kept.

for i = 1, 2 do
  if (redis.call('GET', KEYS[i]) or '') ~= ARGV[i] then
    return 0
  end
end
if redis.call('EXISTS', KEYS[3]) == 0 then
  return -1
end
redis.call('SET', KEYS[1], ARGV[3])
if ARGV[1] ~= '' then
  redis.call('SET', KEYS[2], ARGV[1])
end
redis.call('XADD', KEYS[4], 'MAXLEN', '~', ARGV[6], '*', 'kind', 'rollback', 'version', ARGV[3], 'author', ARGV[4],
  'reason', ARGV[5])
return 1
