-- Drop: an operator's removal of one message that is over. It forgets what became of it, and frees its id where that
-- is kept taken.
-- KEYS 1 ids  2 done  3 kept
-- ARGV 1 id  2 serial
-- reply: 1; 0 where nothing of that message was kept
local n, p, out = 0, own(KEYS[1], ARGV[1], ARGV[2]), redis.call('HGET', KEYS[2], ARGV[1])
if out and string.sub(out, 1, 16) == ARGV[2] then
  forget({'', '', KEYS[2], KEYS[3]}, ARGV[1])
  n = 1
end
if p and p.state == 'u' then
  redis.call('HDEL', KEYS[1], ARGV[1])
  redis.call('ZREM', KEYS[3], 'u' .. ARGV[1])
  n = 1
end
return n
