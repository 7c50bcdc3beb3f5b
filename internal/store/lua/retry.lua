-- Retry: replaces an element in a doing list by its next form in delay. One with an id that was cancelled meanwhile
-- ends instead.
-- KEYS 1 receivers  2 doing  3 delay; with an id  4 ids  5 cancelled  6 done  7 kept  8 running  9 waited
-- ARGV 1 ms to wait  2 old element  3 new element; with an id  4 id  5 serial  6 attempts that are over  7 failure
-- reply: due time in ms; 0 where the old one was not there, and then nothing has changed; -1 where it was cancelled
redis.call('ZREM', KEYS[1], '')
local _, now = clock()
local to, id = now + tonumber(ARGV[1]), ARGV[4]
local k = {KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]}
local p = nil
if id then
  p = own(KEYS[4], id, ARGV[5])
  local m = {serial = ARGV[5], attempt = tonumber(ARGV[6]), failure = ARGV[7], result = '', retain = 0, unique = 0,
    most = 0, bytes = 0}
  local left = endedCancelled(k, KEYS[2], id, ARGV[2], m, now)
  if left then return left == 1 and -1 or left end
end
local before = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
local left = replaced(KEYS[2], ARGV[2], KEYS[3], printed(to), ARGV[3])
if left ~= 1 then return left end
if p then redis.pcall('HSET', KEYS[4], id, record(p.serial, 'd', tonumber(ARGV[6]), to, 0, ARGV[7])) end
if id then redis.pcall('HDEL', KEYS[8], ARGV[5]) end
hint(KEYS[3], before, to, now)
return to
