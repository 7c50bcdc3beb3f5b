-- Extend: puts the end of a lease off, while something of it is left.
-- KEYS 1 receivers  2 leased  3 the lease's list
-- ARGV 1 name of the lease  2 ms from now
-- reply: 1, also where it ends later already; 0 where nothing is left, and then nothing has changed
redis.call('ZREM', KEYS[1], '')
if redis.call('LLEN', KEYS[3]) == 0 then return 0 end
local _, now = clock()
local to, ends = now + tonumber(ARGV[2]), redis.call('ZSCORE', KEYS[2], ARGV[1])
if not ends or tonumber(ends) < to then redis.call('ZADD', KEYS[2], printed(to), ARGV[1]) end
return 1
