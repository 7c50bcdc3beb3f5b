-- Hasten: moves delayed elements to prepare, whenever they are due.
-- KEYS 1 receivers  2 delay  3 prepare  4 ids
-- ARGV element and id, or '', in turns
-- reply: number moved
redis.call('ZREM', KEYS[1], '')
redis.call('LLEN', KEYS[3]) -- a key of the wrong type ends the script here
local now, n = clock(), 0
for i = 1, #ARGV, 2 do
  local e, id = ARGV[i], ARGV[i + 1]
  if redis.call('ZSCORE', KEYS[2], e) then
    redis.call('LPUSH', KEYS[3], e)
    redis.call('ZREM', KEYS[2], e)
    local p = id ~= '' and own(KEYS[4], id, string.sub(e, 5, 20))
    if p then redis.pcall('HSET', KEYS[4], id, record(p.serial, 'p', p.attempts, now, p.expires, p.failure)) end
    n = n + 1
  end
end
return n
