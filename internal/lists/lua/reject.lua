-- Reject: replaces an element in a doing list by its last form in dead, and trims dead by count and age.
-- KEYS 1 receivers  2 doing  3 dead
-- ARGV 1 old element  2 new element  3 most elements kept, 0: no bound  4 ms they are kept, 0: no bound
-- reply: 0 where the old one was not there, and then nothing has changed; else 1 and the number trimmed
redis.call('ZREM', KEYS[1], '')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local added = redis.call('ZADD', KEYS[3], 'NX', string.format('%.0f', now), ARGV[2])
local removed = redis.pcall('LREM', KEYS[2], 1, ARGV[1])
if removed ~= 1 then
  if added == 1 then redis.call('ZREM', KEYS[3], ARGV[2]) end
  if type(removed) == 'table' then return removed end
  return {0, 0}
end
return {1, trim(KEYS[3], now, tonumber(ARGV[3]), tonumber(ARGV[4]))}
