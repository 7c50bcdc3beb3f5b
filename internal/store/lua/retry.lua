-- Retry: replaces an element in a doing list by its next form in delay. One with an id that was cancelled meanwhile ends instead.
-- KEYS 1 receivers  2 doing  3 delay; with an id  4 ids  5 cancelled  6 done  7 done.at  8 kept  9 running  10 waited
-- ARGV 1 ms to wait  2 old element  3 new element; with an id  4 id  5 serial  6 attempts that are over  7 failure
--      8 1: it is put off, and its record says until when
-- reply: due time in ms; 0 where the old one was not there, and then nothing has changed; -1 where it was cancelled
redis.call('ZREM', KEYS[1], '')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.ceil(time[2] / 1000) -- so that it is never before its time
local to = now + tonumber(ARGV[1])
local p = ARGV[4] and own(KEYS[4], ARGV[4], ARGV[5])
if p and ARGV[8] == '1' then to = p.off and math.max(now, p.at) or now end
local k = {KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]}
if ARGV[4] and gone(k, ARGV[5]) then
  if redis.call('LREM', KEYS[2], 1, ARGV[2]) == 0 then return 0 end
  local m = {serial = ARGV[5], kind = 'c', attempt = tonumber(ARGV[6]), failure = ARGV[7], result = '', retain = 0, unique = 0, most = 0, bytes = 0}
  pcall(finish, k, ARGV[4], m, now)
  return -1
end
local score = string.format('%.0f', to)
local first = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
local added = redis.call('ZADD', KEYS[3], 'NX', score, ARGV[3])
local removed = redis.pcall('LREM', KEYS[2], 1, ARGV[2])
if removed ~= 1 then
  if added == 1 then redis.call('ZREM', KEYS[3], ARGV[3]) end
  if type(removed) == 'table' then return removed end
  return 0
end
if p then redis.pcall('HSET', KEYS[4], ARGV[4], record(p.serial, 'd', 0, tonumber(ARGV[6]), to, ARGV[8] == '1' and p.expires or 0, ARGV[7])) end
if ARGV[4] then redis.pcall('HDEL', KEYS[9], ARGV[5]) end
if not first[2] or to < tonumber(first[2]) then redis.pcall('PUBLISH', KEYS[3], string.format('%.0f', to - now)) end
return to
