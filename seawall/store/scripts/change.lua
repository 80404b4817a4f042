-- Change which versions are in force; with a document: keep it as a new version first; with a claim: end an inbox.
--
-- KEYS  1 current, 2 previous, 3 last, 4 canary, 5 sizes, 6 events, 7 epoch, 8 inbox, 9 inbox:claim, 10 inbox:error,
--       11 the version that this is about, 12… versions to drop
-- ARGV  1 current, 2 previous, 3 last, 4 canary as the author saw them ('' for absent); 5… 8 the same as they shall be;
--       9 number of the version, 10 its document (compressed; '' when it is kept already), 11 digest, 12 author,
--       13 reason, 14 time (unix seconds), 15 needs, 16 kind of the change, 17 more about it, 18 events kept,
--       19 claimant ('' for a change that has nothing to do with the inbox), 20 text of the inbox that was claimed,
--       21… numbers of the versions to drop, in the order of KEYS
-- Returns 1 done, 0 the versions changed meanwhile (look again), -1 the claim is lost or the inbox holds another text.
--
-- What shall be is decided by the author (seawall/store/versions.py) on the state that he saw: if that still stands, so
-- does the decision, since a kept version never changes.

if ARGV[19] ~= '' and (redis.call('GET', KEYS[9]) ~= ARGV[19] or redis.call('GET', KEYS[8]) ~= ARGV[20]) then
  return -1
end
for i = 1, 4 do
  if (redis.call('GET', KEYS[i]) or '') ~= ARGV[i] then
    return 0
  end
end
if ARGV[10] == '' and redis.call('EXISTS', KEYS[11]) == 0 then
  return 0
end

if ARGV[10] ~= '' then
  redis.call('HSET', KEYS[11], 'document', ARGV[10], 'digest', ARGV[11], 'author', ARGV[12], 'reason', ARGV[13],
    'time', ARGV[14], 'needs', ARGV[15])
  redis.call('HSET', KEYS[5], ARGV[9], #ARGV[10])
  redis.call('SET', KEYS[7], ARGV[11] .. ':' .. ARGV[14], 'NX')
end
for i = 1, 4 do
  if ARGV[i + 4] == '' then
    redis.call('DEL', KEYS[i])
  elseif ARGV[i + 4] ~= ARGV[i] then
    redis.call('SET', KEYS[i], ARGV[i + 4])
  end
end
redis.call('XADD', KEYS[6], 'MAXLEN', '~', ARGV[18], '*', 'kind', ARGV[16], 'version', ARGV[9], 'author', ARGV[12],
  'reason', ARGV[13], 'detail', ARGV[17])
for i = 12, #KEYS do
  redis.call('DEL', KEYS[i])
  redis.call('HDEL', KEYS[5], ARGV[i + 9])
end
if ARGV[19] ~= '' then
  redis.call('DEL', KEYS[8], KEYS[9], KEYS[10])
end
return 1
