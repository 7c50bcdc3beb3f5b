-- trim drops at most 100 of the oldest from dead: those over its count, and those over its age. Put before every script that
-- adds there.
local function trim(dead, now, most, age)
  local n = 0
  if age > 0 then
    local old = redis.call('ZRANGEBYSCORE', dead, '-inf', string.format('%.0f', now - age), 'LIMIT', 0, 100)
    n = #old
  end
  if most > 0 then
    n = math.max(n, math.min(100, redis.call('ZCARD', dead) - most))
  end
  if n > 0 then redis.call('ZREMRANGEBYRANK', dead, 0, n - 1) end
  return n
end
