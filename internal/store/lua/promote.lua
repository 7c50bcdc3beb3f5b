-- Promote: moves due elements from delay to prepare, the earliest due to be taken first. It reads them in steps that
-- grow while they are small, so that a call stays short whatever their size.
-- KEYS 1 receivers  2 delay  3 prepare  4 leased
-- ARGV 1 most elements  2 bytes after which it stops
-- reply: number moved; as text µs to the next due time, and µs to the first end of a lease, each negative where it is
--      past, and empty where there is none
redis.call('ZREM', KEYS[1], '')
local now, _, exact = clock()
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
return {moved, ahead(redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES'), exact),
  ahead(redis.pcall('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES'), exact)}
