-- Reject: replaces an element in a doing list by its last form in dead, and trims dead by count and age. An id is
-- free then.
-- KEYS 1 receivers  2 doing  3 dead; with an id  4 ids  5 cancelled  6 done  7 kept  8 running  9 waited
-- ARGV 1 old element  2 new element  3 most elements kept, 0: no bound  4 ms they are kept, 0: no bound; with an id
--      5 id  6 serial  7 attempts  8 failure  9 ms to keep what became of it  10 most kept  11 most bytes kept
-- reply: 0 where the old one was not there, and then nothing has changed; -1 where it was cancelled; else 1 and the
--      number trimmed
redis.call('ZREM', KEYS[1], '')
local now, id = clock(), ARGV[5]
local k = {KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]}
local m = nil
if id then
  m = {serial = ARGV[6], kind = 'd', attempt = tonumber(ARGV[7]), failure = ARGV[8], result = '',
    retain = tonumber(ARGV[9]), unique = 0, most = tonumber(ARGV[10]), bytes = tonumber(ARGV[11])}
  local left = endedCancelled(k, KEYS[2], id, ARGV[1], m, now)
  if type(left) == 'table' then return left end
  if left then return {left == 1 and -1 or 0, 0} end
end
local left = replaced(KEYS[2], ARGV[1], KEYS[3], latest(KEYS[3], now), ARGV[2])
if type(left) == 'table' then return left end
if left ~= 1 then return {0, 0} end
if m then pcall(conclude, k, id, m, now) end
return {1, trim(KEYS[3], now, tonumber(ARGV[3]), tonumber(ARGV[4]))}
