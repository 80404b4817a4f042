-- Decide one call: any mix of counters, algorithms, and several windows on one counter that are charged all or none.
--
-- KEYS  for each demand its counter; the same one may stand several times. State: see seawall/limits/charge.py
-- ARGV  1 now (unix microseconds), 2 '1' for stop mode, then for each demand
--         hits, flags (1 give back, 2 charge what is refused, 4 a look is over at the limit), number of windows,
--         and for each window one of
--           'f', field, requests, length
--           's', field, field of the window before, parts of that in sight, its parts, requests, length
--           'p', requests, seconds that the key lives after its first hit: the key itself is a plain number
--           'g', field, requests, length, then whole and rest of: the burst, the hits asked for, the hits charged
--         lengths in seconds; spans are whole microseconds and a rest in 1/requests of one
-- Returns for each demand: 1 when over else 0, 1 when charged else 0, and for each window 1 when it is over else 0 and
--   its state after that: hits / hits, hits of the window before / whole, rest of the arrival time.
--
-- Every number is below 2^53 and every product too, so doubles are exact. Twin: seawall/limits/charge.py.

local MOST, SLACK = 9007199254740991, 5
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
local call = redis.call
local now, stop = tonumber(ARGV[1]), ARGV[2] == '1'
local at = 2

local function text(number)
  return string.format('%.0f', number)
end

-- The first hit of a window drops those that ended a whole length ago, and prolongs the key's life.
local function first(key, life)
  for _, name in ipairs(call('HKEYS', key)) do
    local length, start = string.match(name, '^%a(%d+):(%d+)$')
    if start and (tonumber(start) + 2 * tonumber(length)) * 1000000 <= now then
      call('HDEL', key, name)
    end
  end
  local seconds = ceil(life / 1000000) + SLACK
  if call('PTTL', key) < seconds * 1000 then
    call('EXPIRE', key, seconds)
  end
end

local function add(key, name, before, hits, life)
  local after = min(before + hits, MOST)
  if after == MOST then
    call('HSET', key, name, text(MOST))
  else
    call('HINCRBY', key, name, text(hits))
  end
  if before == 0 then
    first(key, life)
  end
  return after
end

local function settle(whole, rest, of, w)
  if not whole or whole < now then
    return now, 0
  end
  if rest > 0 and of ~= w.requests then
    whole, rest = whole + 1, 0
  end
  local far = now + w.burst + w.length * 1000000
  if whole >= far then
    whole, rest = far, 0
  end
  return min(whole, MOST), rest
end

local function ahead(whole, rest, by, by_rest, w)
  whole, rest = whole + by, rest + by_rest
  if w.requests > 0 and rest >= w.requests then
    whole, rest = whole + 1, rest - w.requests
  end
  if whole >= MOST then
    return MOST, 0
  end
  return whole, rest
end

local function back(whole, rest, by, by_rest, w)
  whole, rest = whole - by, rest - by_rest
  if rest < 0 then
    whole, rest = whole - 1, rest + w.requests
  end
  if whole < now then
    return now, 0
  end
  return whole, rest
end

-- Read a window and judge it.
local look = {
  f = function(key, w, asked)
    w.a = tonumber(call('HGET', key, w.name) or '0')
    return w.a + asked > w.requests
  end,
  p = function(key, w, asked)
    w.a = min(max(tonumber(call('GET', key) or '0'), 0), MOST)
    return w.a + asked > w.requests
  end,
  s = function(key, w, asked)
    local got = call('HMGET', key, w.name, w.before)
    w.a, w.b = tonumber(got[1] or '0'), tonumber(got[2] or '0')
    local low = w.b % w.of
    local used = min(w.a + (w.b - low) / w.of * w.share + ceil(low * w.share / w.of), MOST)
    return used + asked > w.requests
  end,
  g = function(key, w)
    local whole, rest, of = string.match(call('HGET', key, w.name) or '', '^(%d+) (%d+) (%d+)$')
    w.old = tonumber(whole)
    w.a, w.b = settle(w.old, tonumber(rest), tonumber(of), w)
    local moved, moved_rest = ahead(w.a, w.b, w.asked, w.asked_rest, w)
    local bound = now + w.burst
    return moved > bound or (moved == bound and moved_rest > w.burst_rest)
  end,
}

local function life_of(w)
  return (w.kind == 's' and 2 or 1) * w.length * 1000000
end

-- Charge a window, or give back.
local charge = {
  f = function(key, w, hits, give)
    if give then
      local given = min(hits, w.a)
      if given > 0 then
        call('HINCRBY', key, w.name, text(-given))
        w.a = w.a - given
      end
    else
      w.a = add(key, w.name, w.a, hits, life_of(w))
    end
  end,
  p = function(key, w, hits, give)
    local before = w.a
    if give then
      w.a = before - min(hits, before)
    else
      w.a = min(before + hits, MOST)
    end
    if w.a == before then
      return
    elseif before == 0 then
      call('SET', key, text(w.a), 'EX', w.life)
    else
      call('SET', key, text(w.a), 'KEEPTTL')
    end
  end,
  s = function(key, w, hits, give)
    if not give then
      w.a = add(key, w.name, w.a, hits, life_of(w))
      return
    end
    local given = min(hits, w.a)
    local given_before = min(hits - given, w.b)
    if given > 0 then
      call('HINCRBY', key, w.name, text(-given))
    end
    if given_before > 0 then
      call('HINCRBY', key, w.before, text(-given_before))
    end
    w.a, w.b = w.a - given, w.b - given_before
  end,
  g = function(key, w, _, give)
    local whole, rest = (give and back or ahead)(w.a, w.b, w.by, w.by_rest, w)
    whole, rest = settle(whole, rest, w.requests, w)
    if whole == w.a and rest == w.b then
      return
    end
    w.a, w.b = whole, rest
    call('HSET', key, w.name, text(whole) .. ' ' .. text(rest) .. ' ' .. text(w.requests))
    local length = w.length * 1000000
    if not w.old or floor(w.old / length) ~= floor(whole / length) then
      first(key, whole - now + 2 * length)
    end
  end,
}

local function number()
  at = at + 1
  return tonumber(ARGV[at])
end

local function word()
  at = at + 1
  return ARGV[at]
end

local function read_window()
  local w = {kind = word()}
  if w.kind == 'p' then
    w.requests, w.life = number(), number()
    return w
  end
  w.name = word()
  if w.kind == 's' then
    w.before, w.share, w.of = word(), number(), number()
  end
  w.requests, w.length = number(), number()
  if w.kind == 'g' then
    w.burst, w.burst_rest, w.asked, w.asked_rest, w.by, w.by_rest =
      number(), number(), number(), number(), number(), number()
  end
  return w
end

local function read_demand(key)
  local d = {key = key, hits = number(), flags = number(), windows = {}}
  for i = 1, number() do
    d.windows[i] = read_window()
  end
  d.give, d.refused, d.exhausted = d.flags % 2 == 1, floor(d.flags / 2) % 2 == 1, d.flags >= 4
  return d
end

local function judge(d)
  local asked = (d.exhausted and d.hits == 0) and 1 or d.hits
  local over = false
  for _, w in ipairs(d.windows) do
    w.over = look[w.kind](d.key, w, asked) and not d.give
    over = over or w.over
  end
  return over
end

local out = {}
local function put(...)
  for _, value in ipairs({...}) do
    out[#out + 1] = value
  end
end

local function decide(d)
  local over = judge(d)
  local charged = d.hits > 0 and (d.give or d.refused or not over)
  put(over and 1 or 0, charged and 1 or 0)
  for _, w in ipairs(d.windows) do
    if charged then
      charge[w.kind](d.key, w, d.hits, d.give)
    end
    put(w.over and 1 or 0, w.a)
    if w.kind == 's' or w.kind == 'g' then
      put(w.b)
    end
  end
end

if not stop then
  for _, key in ipairs(KEYS) do
    decide(read_demand(key))
  end
  return out
end

local demands, any = {}, false
for i, key in ipairs(KEYS) do
  demands[i] = read_demand(key)
  demands[i].over = judge(demands[i])
  any = any or demands[i].over
end
for _, d in ipairs(demands) do
  if any and not d.over and not d.give and d.hits > 0 then
    d.hits, d.exhausted = 0, false
    for _, w in ipairs(d.windows) do
      w.asked, w.asked_rest = 0, 0
    end
  end
  decide(d)
end
return out
