-- Seek: looks for one message among some elements of a list or a set, so that no other payload travels. It goes from
-- the end at which others are added: so what moves meanwhile is seen twice, and not missed.
-- KEYS 1 prepare, suspect, delay or dead
-- ARGV 1 'list' or 'set'  2 'serial' or 'id'  3 the serial, or a bare payload's SHA-1; or the id
--      4 elements to pass over  5 most elements  6 of a set: the score that it has, or ''
-- reply: number looked at; where it was found the element, and its score or ''
local set, of = ARGV[1] == 'set', ARGV[2] == 'id' and idOf or identity
local from, most, looked, bytes = tonumber(ARGV[4]), tonumber(ARGV[5]), 0, 0

local function some(n)
  local first = from + looked
  if not set then return redis.call('LRANGE', KEYS[1], first, first + n - 1) end
  if ARGV[6] == '' then return redis.call('ZREVRANGE', KEYS[1], first, first + n - 1) end
  return redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[6], ARGV[6], 'LIMIT', first, n)
end

while looked < most and bytes < 131072 do
  local es = some(math.min(32, most - looked))
  if #es == 0 then break end
  for _, e in ipairs(es) do
    looked, bytes = looked + 1, bytes + #e
    if of(e) == ARGV[3] then return {looked, e, set and redis.call('ZSCORE', KEYS[1], e) or ''} end
  end
end
return {looked}
