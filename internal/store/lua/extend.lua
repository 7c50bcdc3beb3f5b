-- Extend: puts the end of a lease off, while something of it is left, and nothing has gone because it is over.
-- KEYS 1 receivers  2 leased  3 the lease's list  4 cancelled
-- ARGV 1 name of the lease  2 ms from now  3.. serials of messages whose holder asks whether they were cancelled
-- reply: 1, also where it ends later already, and the numbers, from 1, of those that were cancelled; or 0 where it is
--      over, and then nothing has changed
redis.call('ZREM', KEYS[1], '')
local ends = tonumber(redis.call('ZSCORE', KEYS[2], ARGV[1]) or '0')
if redis.call('LLEN', KEYS[3]) == 0 or ends % 1 == 0.25 then return {0} end
local _, now = clock()
local to = now + tonumber(ARGV[2])
if ends < to then redis.call('ZADD', KEYS[2], printed(to), ARGV[1]) end
local out = {1}
for i = 3, #ARGV do
  if redis.pcall('SISMEMBER', KEYS[4], ARGV[i]) == 1 then out[#out + 1] = i - 2 end
end
return out
