-- Functions on a pool, for the scripts that include this.
--
-- KEYS  1 holders (sorted set: rid → end of lease), 2 owners (hash: rid → worker), 3 life (hash, below)
--
-- The life of a pool's state tells a store that knows all holders from one that lost some: it restarted, was flushed, a
-- replica took over that lagged, or it hung for so long that leases ended which nobody could renew. Fields of KEYS[3]:
-- `id`; `node`, the process that has the state; `until`, end of the pause of grants, 0 when there is none; `need`, workers
-- that must say what they hold to end it; `fresh`, 1 when nobody knew of an earlier life; `at`, when any worker renewed
-- last; `w:<worker>` for each that has said what it holds. Twin: seawall/admission/holders.py.

local FORGET = 3600000 -- a pool that is used no more is forgotten this long after its last lease
local FIELDS = 6

-- Drop holders whose lease has ended. The life's id, and whether grants are paused; `seen` is the life that the asker knew
-- last, '' for none.
local function look(node, seen, now, expires, workers)
  local ended = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now)
  for _, rid in ipairs(ended) do
    redis.call('ZREM', KEYS[1], rid)
    redis.call('HDEL', KEYS[2], rid)
  end
  local id, where, till, fresh, at = unpack(redis.call('HMGET', KEYS[3], 'id', 'node', 'until', 'fresh', 'at'))
  -- Workers renew three times in a lease: a whole one without any renewal is an absence of the store, not of a worker.
  local absent = #ended > 0 and at and 2 * tonumber(now) - tonumber(expires) > tonumber(at)
  if not id or where ~= node or (fresh == '1' and seen ~= '' and seen ~= id) or absent then
    local lost = id or seen ~= ''
    id, till = node .. ':' .. now, lost and expires or '0'
    redis.call('DEL', KEYS[3])
    redis.call('HSET', KEYS[3], 'id', id, 'node', node, 'until', till, 'need', workers, 'fresh', lost and '0' or '1',
      'at', now)
  end
  return id, tonumber(till) > tonumber(now)
end

-- Take in that a worker has said what it holds; whether grants stay paused.
local function asserted(worker, workers)
  redis.call('HSET', KEYS[3], 'w:' .. worker, '1')
  local need = redis.call('HGET', KEYS[3], 'need')
  if tonumber(workers) > tonumber(need) then
    need = workers
    redis.call('HSET', KEYS[3], 'need', need)
  end
  if redis.call('HLEN', KEYS[3]) - FIELDS < tonumber(need) then
    return true
  end
  redis.call('HSET', KEYS[3], 'until', '0')
  return false
end

local function prolong(lease)
  if redis.call('PTTL', KEYS[1]) < lease then
    for i = 1, 3 do
      redis.call('PEXPIRE', KEYS[i], lease + FORGET)
    end
  end
end
