-- Settle: a message with an id leaves a doing list for good: acked, cancelled or expired.
-- KEYS 1 receivers  2 doing  3 ids  4 cancelled  5 done  6 done.at  7 kept
-- ARGV 1 element  2 id  3 serial  4 kind  5 attempt  6 result  7 ms to keep what became of it  8 ms its id stays taken after success
--      9 most kept  10 most bytes kept
-- reply: 1, or 0 where it was not there, and then nothing has changed
if redis.call('LREM', KEYS[2], -1, ARGV[1]) == 0 then return 0 end
local time = redis.call('TIME')
local m = {serial = ARGV[3], kind = ARGV[4], attempt = tonumber(ARGV[5]), failure = '', result = ARGV[6], retain = tonumber(ARGV[7]),
  unique = tonumber(ARGV[8]), most = tonumber(ARGV[9]), bytes = tonumber(ARGV[10])}
pcall(finish, {KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]}, ARGV[2], m, time[1] * 1000 + math.floor(time[2] / 1000))
return 1
