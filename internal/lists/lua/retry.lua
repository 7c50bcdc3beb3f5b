-- Retry: replaces an element in a doing list by its next form in delay.
-- KEYS 1 receivers  2 doing  3 delay
-- ARGV 1 ms to wait  2 old element  3 new element
-- reply: due time in ms; 0 where the old one was not there, and then nothing has changed
redis.call('ZREM', KEYS[1], '')
local time = redis.call('TIME')
local due = time[1] * 1000 + math.ceil(time[2] / 1000) + tonumber(ARGV[1]) -- never before
local score = string.format('%.0f', due)
local first = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
local added = redis.call('ZADD', KEYS[3], 'NX', score, ARGV[3])
local removed = redis.pcall('LREM', KEYS[2], 1, ARGV[2])
if removed ~= 1 then
  if added == 1 then redis.call('ZREM', KEYS[3], ARGV[3]) end
  if type(removed) == 'table' then return removed end
  return 0
end
if not first[2] or due < tonumber(first[2]) then redis.pcall('PUBLISH', KEYS[3], ARGV[1]) end
return due
