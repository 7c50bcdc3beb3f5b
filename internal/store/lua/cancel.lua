-- Cancel: what waits is never handled from now on, and its id is free; a worker that has it is told.
-- KEYS 1 receivers  2 ids  3 cancelled  4 delay  5 done  6 kept  7 running  8 waited
-- ARGV 1 id  2 serial  3 most elements that are looked through for it in delay  4 most kept  5 most bytes kept
--      6 1: only if no worker has it
-- reply: the record, as it was, and who had it or ''; then 1 where it was taken out of delay, so that nobody meets it
--        any more; nothing where that message has no record
redis.call('ZREM', KEYS[1], '')
local p = own(KEYS[2], ARGV[1], ARGV[2])
local now = clock()
if not p or p.state == 'u' or expired(p, KEYS[7], now) then return {} end
local r = redis.call('HGET', KEYS[2], ARGV[1])
local holder = redis.call('HGET', KEYS[7], p.serial)
if holder and ARGV[6] == '1' then return {r, holder} end
if holder then
  redis.call('SADD', KEYS[3], p.serial)
  redis.pcall('PUBLISH', KEYS[4], 'cancel ' .. p.serial)
  return {r, holder}
end
local e = p.state == 'd' and due(KEYS[4], p, tonumber(ARGV[3]))
if not e then
  redis.call('SADD', KEYS[3], p.serial)
  redis.pcall('PUBLISH', KEYS[4], 'cancel ' .. p.serial) -- for a worker that has it, and has not said so yet
end
local m = {serial = p.serial, kind = 'c', attempt = p.attempts, failure = '', result = '', retain = 0, unique = 0,
  most = tonumber(ARGV[4]), bytes = tonumber(ARGV[5]), waits = not e}
if e then redis.call('ZREM', KEYS[4], e) end
pcall(conclude, {KEYS[2], KEYS[3], KEYS[5], KEYS[6], KEYS[7], KEYS[8]}, ARGV[1], m, now)
return {r, '', e and 1 or 0}
