-- Recur set: writes or removes a recurring message, if its record is still the one that the caller read. The field ''
-- changes with every such write, so that who looks now and then need not read all records. A record begins with its
-- head, a line that changes with every write.
-- KEYS 1 recur
-- ARGV 1 name  2 the head as read, '' for none  3 the record, '' to remove it  4 new value of the field ''
-- reply: 1, or 0 if it is another
-- A change of a record that is there opens with a write that frees and does nothing: an operator can pause and remove
-- on a full Redis, which refuses only new records.
if ARGV[2] ~= '' then redis.call('HDEL', KEYS[1], '\n') end
local was = redis.call('HGET', KEYS[1], ARGV[1])
if (was and string.match(was, '^[^\n]*\n') or '') ~= ARGV[2] then return 0 end
if ARGV[3] ~= '' then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3], '', ARGV[4])
elseif redis.call('HLEN', KEYS[1]) <= 2 then
  redis.call('HDEL', KEYS[1], ARGV[1], '') -- the last one: the key goes with it
else
  redis.call('HSET', KEYS[1], '', ARGV[4])
  redis.call('HDEL', KEYS[1], ARGV[1])
end
redis.pcall('PUBLISH', KEYS[1], (string.match(ARGV[3], '^[^\n]*\n') or '\n') .. ARGV[1])
return 1
