-- latest is the score of what dies now, as text: the time, or a little more than the highest score there is where the
-- clock was set back since. Else a new dead letter could be the first to be dropped.
local function latest(dead, now)
  local last = tonumber(redis.call('ZREVRANGE', dead, 0, 0, 'WITHSCORES')[2] or '0')
  if last <= now then return printed(now) end
  return string.format('%.3f', last + 0.001)
end

-- trim drops at most 100 of the oldest from dead: those over its count, and those over its age. Put before every
-- script that adds there; it comes when all is done, so it fails without a word.
local function trim(dead, now, most, age)
  local n = 0
  if age > 0 then
    local old = redis.pcall('ZRANGEBYSCORE', dead, '-inf', printed(now - age), 'LIMIT', 0, 100)
    n = #old
  end
  if most > 0 then
    local count = redis.pcall('ZCARD', dead)
    if type(count) == 'number' then n = math.max(n, math.min(100, count - most)) end
  end
  if n > 0 and redis.pcall('ZREMRANGEBYRANK', dead, 0, n - 1) == n then return n end
  return 0
end
