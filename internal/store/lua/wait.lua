-- Wait: somebody waits for a message's end.
-- KEYS 1 receivers  2 ids  3 done  4 waited  5 kept
-- ARGV 1 id  2 the serial of the message, '' where it is not known yet
-- reply: 1 and its serial where it is not over, and its end will be published; else 0 and what is kept of it, or 0
--      where nothing is. Where the serial is known and another message has the id by now, what is kept of the one
--      that was waited for comes first. One that has lost its id is not over while its serial is in waited: it has
--      expired, and no worker has met it. Where the serial is known, and nothing is kept of that message: 0, nothing
--      or what is kept of another, and the ms since the last end of which anything is kept, or ''.
redis.call('ZREM', KEYS[1], '')
local known = ARGV[2] ~= ''
local out = redis.call('HGET', KEYS[3], ARGV[1])
if out and known and string.sub(out, 1, 16) == ARGV[2] then return {0, out} end
local p = parsed(redis.call('HGET', KEYS[2], ARGV[1]))
if p and p.state ~= 'u' and (not known or p.serial == ARGV[2]) then
  redis.call('SADD', KEYS[4], p.serial)
  return {1, p.serial}
end
if known then
  if redis.call('SISMEMBER', KEYS[4], ARGV[2]) == 1 then return {1, ARGV[2]} end
  local last = redis.pcall('ZRANGE', KEYS[5], 0, 0, 'WITHSCORES')
  local ended = tonumber(last[2] or '0')
  return {0, out or '', ended < 0 and printed(math.max(0, clock() + ended)) or ''}
end
if out then return {0, out} end
return {0}
