-- Finish: ends the sweep of a dead incarnation whose lists were found empty. It is looked at again after as long as
-- it has been dead, from 1 s to 10 min, and forgotten after an hour, unless one of its lists has something after all.
-- KEYS 1 receivers  2 receivers.dead  3.. all its doing lists
-- ARGV 1 its member in receivers.dead  2 ms of its death
-- reply: 1 if forgotten
redis.call('ZREM', KEYS[1], '')
local now = clock()
local dead = now - tonumber(ARGV[2])
if dead > 3600000 then
  local held = 0
  for i = 3, #KEYS, 1000 do -- unpack knows no more than some thousands at once
    held = held + redis.call('EXISTS', unpack(KEYS, i, math.min(i + 999, #KEYS)))
  end
  if held == 0 then
    redis.call('ZREM', KEYS[2], ARGV[1])
    return 1
  end
end
local wait = math.max(1000, math.min(600000, dead))
redis.call('ZADD', KEYS[2], 'XX', printed(now + wait), ARGV[1])
return 0
