-- About: what a receiver tells of itself, for people alone. Where its entry is gone it tells nothing, so nothing is
-- left of one that has ended well, however late a command comes.
-- KEYS 1 receivers  2 about
-- ARGV 1 name  2 text  3 ms that it stays
-- reply: 1; 0 where the entry is gone
redis.call('ZREM', KEYS[1], '')
local ends = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not ends then return 0 end
redis.call('ZADD', KEYS[1], 'XX', ends, ARGV[1]) -- nothing changes: Queue.Moves takes the two for a beat
local now = clock()
redis.call('SET', KEYS[2], ARGV[2] .. '&at=' .. printed(now), 'PX', ARGV[3])
return 1
