-- Unregister: takes an incarnation from the living, unless one of its lists has something.
-- KEYS 1 receivers  2.. all its doing lists
-- ARGV 1 name
-- reply: 1 if it is not, or no longer, among the living; 0 if it has to stay
redis.call('ZREM', KEYS[1], '')
for i = 2, #KEYS, 1000 do -- unpack knows no more than some thousands at once
  if redis.call('EXISTS', unpack(KEYS, i, math.min(i + 999, #KEYS))) > 0 then return 0 end
end
redis.call('ZREM', KEYS[1], ARGV[1])
return 1
