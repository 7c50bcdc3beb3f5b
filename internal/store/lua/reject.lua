-- Reject: replaces an element in a doing list by its last form in dead, and trims dead by count and age. An id is free then.
-- KEYS 1 receivers  2 doing  3 dead; with an id  4 ids  5 cancelled  6 done  7 done.at  8 kept  9 running  10 waited
-- ARGV 1 old element  2 new element  3 most elements kept, 0: no bound  4 ms they are kept, 0: no bound; with an id  5 id  6 serial
--      7 attempts  8 failure  9 ms to keep what became of it  10 most kept  11 most bytes kept
-- reply: 0 where the old one was not there, and then nothing has changed; -1 where it was cancelled; else 1 and the number trimmed
redis.call('ZREM', KEYS[1], '')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local m = ARGV[5] and {serial = ARGV[6], kind = 'd', attempt = tonumber(ARGV[7]), failure = ARGV[8], result = '', retain = tonumber(ARGV[9]),
  unique = 0, most = tonumber(ARGV[10]), bytes = tonumber(ARGV[11])}
local k = {KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]}
if m and gone(k, m.serial) then
  if redis.call('LREM', KEYS[2], 1, ARGV[1]) == 0 then return {0, 0} end
  m.kind = 'c'
  pcall(finish, k, ARGV[5], m, now)
  return {-1, 0}
end
local added = redis.call('ZADD', KEYS[3], 'NX', string.format('%.0f', latest(KEYS[3], now)), ARGV[2])
local removed = redis.pcall('LREM', KEYS[2], 1, ARGV[1])
if removed ~= 1 then
  if added == 1 then redis.call('ZREM', KEYS[3], ARGV[2]) end
  if type(removed) == 'table' then return removed end
  return {0, 0}
end
if m then pcall(finish, k, ARGV[5], m, now) end
return {1, trim(KEYS[3], now, tonumber(ARGV[3]), tonumber(ARGV[4]))}
