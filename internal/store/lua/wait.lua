-- Wait: somebody waits for a message's end.
-- KEYS 1 receivers  2 ids  3 done  4 waited
-- ARGV 1 id  2 the serial of the message, '' where it is not known yet
-- reply: 1 and its serial where it is not over, and its end will be published; else 0 and what is kept of it, or 0
--      where nothing is. Where the serial is known and another message has the id by now, what is kept of the one
--      that was waited for comes first.
redis.call('ZREM', KEYS[1], '')
local out = redis.call('HGET', KEYS[3], ARGV[1])
if out and ARGV[2] ~= '' and string.sub(out, 1, 16) == ARGV[2] then return {0, out} end
local p = parsed(redis.call('HGET', KEYS[2], ARGV[1]))
if p and p.state ~= 'u' then
  redis.call('SADD', KEYS[4], p.serial)
  return {1, p.serial}
end
if out then return {0, out} end
return {0}
