-- Purge: deletes a batch of what waits, and frees the ids. Of a list it takes what is taken next, and of a set what
-- comes first: what is put there meanwhile comes behind.
-- KEYS 1 prepare, suspect, delay or dead  2 ids  3 cancelled  4 waited
-- ARGV 1 'list' or 'set'  2 most elements, where some may have ids  3 1: all that is there, at once, where none has
--      an id
-- reply: number deleted, number left
local set = ARGV[1] == 'set'
local count = redis.call(set and 'ZCARD' or 'LLEN', KEYS[1])
if ARGV[3] == '1' and redis.call('EXISTS', KEYS[2], KEYS[3]) == 0 then
  redis.call('DEL', KEYS[1])
  return {count, 0}
end
local n = tonumber(ARGV[2])
local es = set and redis.call('ZRANGE', KEYS[1], 0, n - 1) or redis.call('LRANGE', KEYS[1], -n, -1)
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
if set then redis.call('ZREMRANGEBYRANK', KEYS[1], 0, #es - 1) else redis.call('LTRIM', KEYS[1], 0, -#es - 1) end
return {#es, count - #es}
