-- Wait: somebody waits for a message's end.
-- KEYS 1 receivers  2 ids  3 done  4 waited
-- ARGV 1 id
-- reply: 1 and its serial where it is not over, and its end will be told; else 0 and what is kept of it, or 0 where nothing is
redis.call('ZREM', KEYS[1], '')
local p = parsed(redis.call('HGET', KEYS[2], ARGV[1]))
if p and p.state ~= 'u' then
  redis.call('SADD', KEYS[4], p.serial)
  return {1, p.serial}
end
local out = redis.call('HGET', KEYS[3], ARGV[1])
if out then return {0, out} end
return {0}
