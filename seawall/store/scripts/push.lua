-- Keep a document as a new version and make it current; with a claim, as the end of an inbox.
--
-- KEYS  1 current, 2 previous, 3 last, 4 sizes, 5 events, 6 epoch, 7 inbox, 8 inbox:claim, 9 inbox:error,
--       10 the new version, 11… versions to drop
-- ARGV  1 current, 2 previous, 3 last as the author saw them ('' for absent), 4 number of the new version,
--       5 document (compressed), 6 digest, 7 author, 8 reason, 9 time (unix seconds), 10 needs, 11 events kept,
--       12 claimant ('' for a push that has nothing to do with the inbox), 13 text of the inbox that was claimed,
--       14… numbers of the versions to drop, in the order of KEYS
-- Returns 1 done, 0 the versions changed meanwhile (look again), -1 the claim is lost or the inbox holds another text.
--
-- What to drop is decided by the author (seawall/store/versions.py) on the state that he saw: if that still stands, so
-- does the decision, since a kept version never changes.

if ARGV[12] ~= '' and (redis.call('GET', KEYS[8]) ~= ARGV[12] or redis.call('GET', KEYS[7]) ~= ARGV[13]) then
  return -1
end
for i = 1, 3 do
  if (redis.call('GET', KEYS[i]) or '') ~= ARGV[i] then
    return 0
  end
end

redis.call('HSET', KEYS[10], 'document', ARGV[5], 'digest', ARGV[6], 'author', ARGV[7], 'reason', ARGV[8],
  'time', ARGV[9], 'needs', ARGV[10])
redis.call('HSET', KEYS[4], ARGV[4], #ARGV[5])
redis.call('SET', KEYS[1], ARGV[4])
if ARGV[1] ~= '' then
  redis.call('SET', KEYS[2], ARGV[1])
end
redis.call('SET', KEYS[3], ARGV[4])
redis.call('SET', KEYS[6], ARGV[6] .. ':' .. ARGV[9], 'NX')
redis.call('XADD', KEYS[5], 'MAXLEN', '~', ARGV[11], '*', 'kind', 'push', 'version', ARGV[4], 'author', ARGV[7],
  'reason', ARGV[8])
for i = 11, #KEYS do
  redis.call('DEL', KEYS[i])
  redis.call('HDEL', KEYS[4], ARGV[i + 3])
end
if ARGV[12] ~= '' then
  redis.call('DEL', KEYS[7], KEYS[8], KEYS[9])
end
return 1
