-- Glance: a channel at a glance. Of its messages it gives the beginning alone; Redis copies the whole of four.
-- KEYS 1 prepare  2 suspect  3 delay  4 dead  5 kept  6 leased  7 receivers  8 receivers.dead
-- reply: the server's time in ms as text; how many are in prepare, suspect, delay, dead, done, leased and
--        receivers.dead; of what is taken next from prepare and from suspect the first 20 bytes, and with a space when
--        it was to come, if that was later than its enqueue; µs until the first in delay is due and until the first
--        lease ends, as text, '' where there is none; and the receivers whose leases last
local now = clock()
local function head(list)
  local e = redis.call('LINDEX', list, -1)
  if not e then return '' end
  local due = number(e, 13)
  return string.sub(e, 1, 20) .. (due > 0 and ' ' .. printed(due) or '')
end
local function first(set)
  local scored = redis.call('ZRANGE', set, 0, 0, 'WITHSCORES')
  return ahead(scored, now)
end
local out = {printed(now), redis.call('LLEN', KEYS[1]), redis.call('LLEN', KEYS[2]), redis.call('ZCARD', KEYS[3]),
  redis.call('ZCARD', KEYS[4]), redis.call('ZCOUNT', KEYS[5], '-inf', '(0'), redis.call('ZCARD', KEYS[6]),
  redis.call('ZCARD', KEYS[8]), head(KEYS[1]), head(KEYS[2]), first(KEYS[3]), first(KEYS[6])}
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[7], '(' .. printed(now), '+inf', 'LIMIT', 0, 1000)) do
  out[#out + 1] = name
end
return out
