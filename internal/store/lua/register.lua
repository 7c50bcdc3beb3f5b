-- Register: enters an incarnation among the living.
-- KEYS 1 receivers
-- ARGV 1 name  2 ms that the entry lives
-- reply: the server's time in ms
redis.call('ZREM', KEYS[1], '')
local now = clock()
redis.call('ZADD', KEYS[1], printed(now + tonumber(ARGV[2])), ARGV[1])
return now
