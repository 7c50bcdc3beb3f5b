-- Yield: a keeper leaves its place, and tells the others; or, where nothing lies there that needs one, tells nobody.
-- KEYS 1 receivers  2 keeper  3 delay  4 leased
-- ARGV 1 name  2 1: only where nothing needs a keeper
-- reply: 1 if it was the keeper; 2 where one is needed, and then nothing has changed
redis.call('ZREM', KEYS[1], '')
if ARGV[2] == '1' and redis.call('EXISTS', KEYS[3], KEYS[4]) > 0 then return 2 end
if redis.call('HGET', KEYS[2], 'name') ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[2])
if ARGV[2] ~= '1' then redis.pcall('PUBLISH', KEYS[3], 'vacant') end
return 1
