-- Browse: some elements of a list or a set, with no more than so many bytes of each payload.
-- KEYS 1 prepare, suspect, delay or dead
-- ARGV 1 list or set  2 latest: '1' for what is taken last, or has the highest score, first  3 most elements
--      4 bytes of whole elements after which it stops  5 most bytes of a payload; negative: all
--      of a list: 6 where to begin: 0 is the first in that order  7 the identity of the element before that; '': none.
--      Elements may have come and gone meanwhile: so it is looked for near its place, and what follows it comes next
--      of a set: 6 the score to begin at, 7 elements of that score to pass over
-- reply: of a list the place of the first, of a set ''; then of each element what is shown of it, its length, its score
--        ('' in a list), and where it is bare and cut its SHA-1, else ''
local list, latest, most, budget, cut = ARGV[1] == 'list', ARGV[2] == '1', tonumber(ARGV[3]), tonumber(ARGV[4]),
  tonumber(ARGV[5])

-- payloadAt is where an element's payload begins.
local function payloadAt(e)
  if not header(e) then return string.sub(e, 1, 2) == '\193\0' and 3 or 1 end
  local p = 21
  while true do
    local tag, high, low = string.byte(e, p, p + 2)
    if tag == 0 then return p + 1 end
    p = p + 3 + high * 256 + low
  end
end

local out, bytes = {''}, 0
local function show(e, score)
  local shown, sum = e, ''
  local last = payloadAt(e) - 1 + cut
  if cut >= 0 and last < #e and not newer(e) then
    shown = string.sub(e, 1, last)
    if not header(e) then sum = redis.sha1hex(e) end
  end
  bytes = bytes + #e
  local n = #out
  out[n + 1], out[n + 2], out[n + 3], out[n + 4] = shown, #e, score, sum
end

-- each calls take for one thing after another, in growing pieces: get gives up to n of them behind so many.
local function each(most, budget, get, take)
  local n, seen, step = 0, 0, 1
  while n < most and (seen < budget or n == 0) do
    local some = get(n, math.min(step, most - n))
    if #some == 0 then return end
    for _, x in ipairs(some) do
      seen = seen + 64 + #x.e
      if take(x, n) then return end
      n = n + 1
    end
    step = math.max(1, math.min(n, math.floor((budget - seen) * n / seen)))
  end
end

if not list then
  local command, low, high, from = 'ZRANGEBYSCORE', ARGV[6], '+inf', tonumber(ARGV[7])
  if latest then command, high = 'ZREVRANGEBYSCORE', '-inf' end
  each(most, budget, function(n, step)
    local es, xs = redis.call(command, KEYS[1], low, high, 'WITHSCORES', 'LIMIT', from + n, step), {}
    for i = 1, #es, 2 do xs[#xs + 1] = {e = es[i], score = es[i + 1]} end
    return xs
  end, function(x) show(x.e, x.score) end)
  return out
end

-- at gives up to n elements from a place on.
local function at(from, n)
  local es, xs = nil, {}
  if latest then
    es = redis.call('LRANGE', KEYS[1], from, from + n - 1)
  else
    es = redis.call('LRANGE', KEYS[1], -from - n, -from - 1)
  end
  for i, e in ipairs(es) do xs[latest and i or #es + 1 - i] = {e = e} end
  return xs
end

-- The element before is looked for at its place, then nearer to the beginning, then beyond.
local from, before, near = tonumber(ARGV[6]), ARGV[7], 500
if before ~= '' and from > 0 then
  local found
  local function look(first, n)
    each(n, budget, function(k, step) return at(first + k, step) end, function(x, k)
      if identity(x.e) == before then found = first + k end
      return found
    end)
  end
  look(from - 1, 1)
  if not found then look(math.max(0, from - 1 - near), math.min(near, from - 1)) end
  if not found then look(from, near) end
  if found then from = found + 1 end
end
out[1] = from
each(most, budget, function(n, step) return at(from + n, step) end, function(x) show(x.e, '') end)
return out
