-- Yield: a keeper that shuts down leaves its place, and tells the others.
-- KEYS 1 receivers  2 keeper  3 delay
-- ARGV 1 name
-- reply: 1 if it was the keeper
redis.call('ZREM', KEYS[1], '')
if redis.call('HGET', KEYS[2], 'name') ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[2])
redis.pcall('PUBLISH', KEYS[3], 'vacant')
return 1
