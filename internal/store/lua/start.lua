-- Start: notes in whose hands messages are, unless they have expired: those are nobody's, and their ids are free. What
-- was taken in time has not.
-- Without Expire it is HSET, which a full Redis refuses.
-- KEYS 1 receivers  2 running  3 ids
-- ARGV id, serial, holder and, in ms, when it was taken in turns; '' if that is not known: now
-- reply: number noted
redis.call('ZREM', KEYS[1], '')
local now, n = clock(), 0
for i = 1, #ARGV, 4 do
  local p = own(KEYS[3], ARGV[i], ARGV[i + 1])
  if not (p and p.expires > 0 and p.expires <= (tonumber(ARGV[i + 3]) or now)) then
    redis.call('HSET', KEYS[2], ARGV[i + 1], ARGV[i + 2])
    n = n + 1
  end
end
return n
