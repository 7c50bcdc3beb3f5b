-- Revive: an operator's retry: puts dead elements, with their counts at zero, where they are taken last.
-- KEYS 1 dead  2 prepare
-- ARGV old and new form in turns
-- reply: number revived
local n = 0
redis.call('LLEN', KEYS[2])
for i = 1, #ARGV, 2 do
  if redis.call('ZSCORE', KEYS[1], ARGV[i]) then
    redis.call('LPUSH', KEYS[2], ARGV[i + 1])
    redis.call('ZREM', KEYS[1], ARGV[i])
    n = n + 1
  end
end
return n
