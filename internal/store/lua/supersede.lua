-- Supersede: lists an incarnation that its own receiver has given up as dead, and ends its time as keeper.
-- KEYS 1 receivers  2 receivers.dead  3 keeper
-- ARGV 1 name
-- reply: 1
redis.call('ZREM', KEYS[1], '')
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
redis.call('ZADD', KEYS[2], 'NX', now, ARGV[1] .. ' ' .. now .. ' s')
redis.call('ZREM', KEYS[1], ARGV[1])
if redis.pcall('HGET', KEYS[3], 'name') == ARGV[1] then redis.pcall('DEL', KEYS[3]) end
return 1
