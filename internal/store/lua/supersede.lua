-- Supersede: lists an incarnation that its own receiver has ended as dead, and ends its time as keeper.
-- KEYS 1 receivers  2 receivers.dead  3 keeper
-- ARGV 1 name  2 's'; 'c' where what it holds has broken its connection, so that the reap raises the recovery counts
-- reply: 1
redis.call('ZREM', KEYS[1], '')
local now = printed(clock())
redis.call('ZADD', KEYS[2], 'NX', now, ARGV[1] .. ' ' .. now .. ' ' .. ARGV[2])
redis.call('ZREM', KEYS[1], ARGV[1])
if redis.pcall('HGET', KEYS[3], 'name') == ARGV[1] then redis.pcall('DEL', KEYS[3]) end
return 1
