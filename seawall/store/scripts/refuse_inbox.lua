-- End a claim on the inbox with an error: leave the error, delete the document.
--
-- KEYS  1 inbox, 2 inbox:claim, 3 inbox:error
-- ARGV  1 claimant, 2 text of the inbox that was claimed ('' when only the length is known), 3 its length (bytes),
--       4 error, 5 time (unix seconds)
-- Returns 1 done, 0 when the claim is lost or the inbox holds another text by now (nothing is written).

if redis.call('GET', KEYS[2]) ~= ARGV[1] or redis.call('STRLEN', KEYS[1]) ~= tonumber(ARGV[3]) then
  return 0
end
if ARGV[2] ~= '' and redis.call('GET', KEYS[1]) ~= ARGV[2] then
  return 0
end
redis.call('HSET', KEYS[3], 'error', ARGV[4], 'time', ARGV[5])
redis.call('DEL', KEYS[1], KEYS[2])
return 1
