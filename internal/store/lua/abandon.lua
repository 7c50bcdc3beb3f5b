-- Abandon: gives a lease up before what it holds is released. It stays known for a while, so that a take of it that is
-- still on its way finds it known and empty, and takes nothing.
-- KEYS 1 receivers  2 leased
-- ARGV 1 name of the lease  2 ms for which it stays known
-- reply: 1
redis.call('ZREM', KEYS[1], '')
local now = clock()
redis.call('ZADD', KEYS[2], printed(now + tonumber(ARGV[2])), ARGV[1])
return 1
