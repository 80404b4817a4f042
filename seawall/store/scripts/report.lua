-- Leave a worker's report, forget workers that are silent for long.
--
-- KEYS  1 workers (hash: worker → report), 2 workers:seen (sorted set: worker → time of report), 3 current, 4 canary,
--       5 keys:stamp
-- ARGV  1 worker, 2 report (JSON), 3 now (unix seconds), 4 oldest time that still counts
-- Returns {current version or nil, workers that count, canary or nil, stamp of the API keys or nil}.

redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[2], ARGV[3], ARGV[1])
for _, worker in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', '(' .. ARGV[4])) do
  redis.call('ZREM', KEYS[2], worker)
  redis.call('HDEL', KEYS[1], worker)
end
return {redis.call('GET', KEYS[3]), redis.call('ZCARD', KEYS[2]), redis.call('GET', KEYS[4]), redis.call('GET', KEYS[5])}
