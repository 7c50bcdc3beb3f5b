-- Unregister: takes an incarnation from the living, unless one of its lists has something.
-- KEYS 1 receivers  2.. all its doing lists
-- ARGV 1 name
-- reply: 1 if it is not, or no longer, among the living; 0 if it has to stay
redis.call('ZREM', KEYS[1], '')
local unpack = unpack or table.unpack
if redis.call('EXISTS', unpack(KEYS, 2)) > 0 then return 0 end
redis.call('ZREM', KEYS[1], ARGV[1])
return 1
