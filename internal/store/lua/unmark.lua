-- Unmark: removes marks of messages that nobody has any more, where each is still as its caller read it.
-- KEYS 1 receivers  2 running
-- ARGV serial and mark in turns
-- reply: number removed
redis.call('ZREM', KEYS[1], '')
local n = 0
for i = 1, #ARGV, 2 do
  if redis.call('HGET', KEYS[2], ARGV[i]) == ARGV[i + 1] then n = n + redis.call('HDEL', KEYS[2], ARGV[i]) end
end
return n
