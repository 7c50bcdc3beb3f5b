-- Start: notes in whose hands messages are, in a full Redis: it is HSET, which that refuses.
-- KEYS 1 receivers  2 running
-- ARGV serial and holder in turns
-- reply: number that were not there
redis.call('ZREM', KEYS[1], '')
local unpack = unpack or table.unpack
return redis.call('HSET', KEYS[2], unpack(ARGV))
