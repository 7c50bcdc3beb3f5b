-- Purge: deletes a batch of what waits, and frees the ids.
-- KEYS 1 prepare, suspect, delay or dead  2 ids  3 cancelled  4 waited
-- ARGV 1 'list' or 'set'  2 most elements, where some may have ids
-- reply: number deleted, number left
local set = ARGV[1] == 'set'
local count = redis.call(set and 'ZCARD' or 'LLEN', KEYS[1])
if redis.call('EXISTS', KEYS[2], KEYS[3]) == 0 then
  redis.call('DEL', KEYS[1])
  return {count, 0}
end
local es = redis.call(set and 'ZRANGE' or 'LRANGE', KEYS[1], 0, tonumber(ARGV[2]) - 1)
for _, e in ipairs(es) do
  local id = idOf(e)
  if id then
    local serial = string.sub(e, 5, 20)
    if own(KEYS[2], id, serial) then redis.call('HDEL', KEYS[2], id) end
    redis.pcall('SREM', KEYS[3], serial) -- what is not shunt's there keeps nothing here
    redis.pcall('SREM', KEYS[4], serial)
  end
end
if #es == 0 then return {0, 0} end
if set then redis.call('ZREMRANGEBYRANK', KEYS[1], 0, #es - 1) else redis.call('LTRIM', KEYS[1], #es, -1) end
return {#es, count - #es}
