-- Beat: extends an incarnation's entry if it is there; it never brings back one that is gone. One key only, so that
-- it goes on while a Cluster's slot migrates.
-- KEYS 1 receivers
-- ARGV 1 name  2 ms that the entry lives
-- reply: 1 or 0, the server's time in ms, ms to the earliest end of an entry (absent where there is none)
redis.call('ZREM', KEYS[1], '')
local now = clock()
local there = 0
if redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  there = 1
  redis.call('ZADD', KEYS[1], printed(now + tonumber(ARGV[2])), ARGV[1])
end
local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
if not first[2] then return {there, now} end
return {there, now, tonumber(first[2]) - now}
