-- Take the lease on a document in the inbox.
--
-- KEYS  1 inbox, 2 inbox:claim
-- ARGV  1 claimant, 2 lease (milliseconds), 3 the longest document that is handed out (bytes)
-- Returns the document; its length as an integer when it is longer than that; nil when there is none or another has it.

local length = redis.call('STRLEN', KEYS[1])
if length == 0 and redis.call('EXISTS', KEYS[1]) == 0 then
  return false
end
local holder = redis.call('GET', KEYS[2])
if holder and holder ~= ARGV[1] then
  return false
end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
if length > tonumber(ARGV[3]) then
  return length
end
return redis.call('GET', KEYS[1])
