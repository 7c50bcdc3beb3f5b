-- Promote: moves due elements from delay to prepare, the earliest due to be taken first. It reads them in steps that
-- grow while they are small, so that a call stays short whatever their size.
-- KEYS 1 receivers  2 delay  3 prepare
-- ARGV 1 most elements  2 bytes after which it stops
-- reply: number moved, ms to the next due time (negative: overdue; absent where there is none)
redis.call('ZREM', KEYS[1], '')
local now = clock()
local most, budget = tonumber(ARGV[1]), tonumber(ARGV[2])
local moved, bytes, step = 0, 0, 1
while moved < most and bytes < budget do
  local es = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', printed(now),
    'LIMIT', moved, math.min(step, most - moved))
  if #es == 0 then break end
  redis.call('LPUSH', KEYS[3], unpack(es))
  moved = moved + #es
  for _, e in ipairs(es) do bytes = bytes + #e end
  step = math.max(1, math.min(#es * 4, math.floor((budget - bytes) * moved / bytes)))
end
if moved > 0 then redis.call('ZREMRANGEBYRANK', KEYS[2], 0, moved - 1) end
local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
if not first[2] then return {moved} end
return {moved, tonumber(first[2]) - now}
