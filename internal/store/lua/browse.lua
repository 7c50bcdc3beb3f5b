-- Browse: some elements that lie one behind the other in a list or a set, with no more than so many bytes of each
-- payload. It makes one step, and reads no more elements than it shows. In a set it reads some more, to find a place.
-- KEYS 1 prepare, suspect, delay or dead
-- ARGV 1 list or set  2 latest: '1' for what is taken last, or has the highest score, first  3 most elements
--      4 most bytes of a payload; negative: all
--      of a list: 5 where to begin: 0 is the first in that order
--      of a set: behind what to begin: 5 the score, '' for the first  6 the first 32 bytes  7 how many that have the
--      same were shown
-- reply: of a list its length, of a set ''; then of each element what is shown of it, its length, its score ('' in a
--        list), its SHA-1 where it is bare and cut, of one beyond 256 KB that of its ends behind a ~,
--        else '', and its first 32 bytes
local byte, sub, floor = string.byte, string.sub, math.floor
local latest, most, cut = ARGV[2] == '1', tonumber(ARGV[3]), tonumber(ARGV[4])

-- payloadAt is where an element's payload begins.
local function payloadAt(e)
  if not header(e) then return sub(e, 1, 2) == '\193\0' and 3 or 1 end
  local p = 21
  while true do
    local tag, high, low = byte(e, p, p + 2)
    if tag == 0 then return p + 1 end
    p = p + 3 + high * 256 + low
  end
end

local out = {''}
local function show(e, score)
  local shown, sum, n = e, '', #out
  if cut >= 0 then
    local last = payloadAt(e) - 1 + cut
    if last < #e then
      shown = sub(e, 1, last)
      if #e <= 262144 and not header(e) then sum = redis.sha1hex(e) end
    end
  end
  if #e > 262144 and not header(e) then sum = '~' .. redis.sha1hex(#e .. ' ' .. sub(e, 1, 4096) .. sub(e, -4096)) end
  out[n + 1], out[n + 2], out[n + 3], out[n + 4], out[n + 5] = shown, #e, score, sum, sub(e, 1, 32)
end

if ARGV[1] == 'list' then
  local from, es = tonumber(ARGV[5]), nil
  out[1] = redis.call('LLEN', KEYS[1])
  if latest then
    for _, e in ipairs(redis.call('LRANGE', KEYS[1], from, from + most - 1)) do show(e, '') end
  else
    es = redis.call('LRANGE', KEYS[1], -from - most, -from - 1)
    for i = #es, 1, -1 do show(es[i], '') end
  end
  return out
end

local function head(rank) return sub(redis.call('ZRANGE', KEYS[1], rank, rank)[1], 1, 32) end

-- below compares as a set does, byte by byte: what Lua itself does depends on the server's language.
local function below(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = byte(a, i), byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

local first = latest and redis.call('ZCARD', KEYS[1]) - 1 or 0
if ARGV[5] ~= '' then
  local low, all = redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. ARGV[5]), redis.call('ZCOUNT', KEYS[1], '-inf', ARGV[5])
  local high = all
  while low < high do
    local middle = floor((low + high) / 2)
    if below(head(middle), ARGV[6]) then low = middle + 1 else high = middle end
  end
  local same = low
  high = all
  while same < high do
    local middle = floor((same + high) / 2)
    if below(ARGV[6], head(middle)) then high = middle else same = middle + 1 end
  end
  local shown = math.min(tonumber(ARGV[7]), same - low)
  first = latest and same - 1 - shown or low + shown
end
if first < 0 then return out end
if latest then
  local es = redis.call('ZRANGE', KEYS[1], math.max(0, first - most + 1), first, 'WITHSCORES')
  for i = #es - 1, 1, -2 do show(es[i], es[i + 1]) end
else
  local es = redis.call('ZRANGE', KEYS[1], first, first + most - 1, 'WITHSCORES')
  for i = 1, #es, 2 do show(es[i], es[i + 1]) end
end
return out
