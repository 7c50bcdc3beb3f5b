-- Revive: an operator's retry: puts dead elements, with their counts at zero, where they are taken last. One whose id
-- is another's by now stays.
-- KEYS 1 dead  2 prepare  3 ids  4 running
-- ARGV old and new form and id, or '', in turns
-- reply: number revived
local n = 0
redis.call('LLEN', KEYS[2])
local now = clock()
for i = 3, #ARGV, 3 do
  if ARGV[i] ~= '' then redis.call('HLEN', KEYS[3]) end -- a key of the wrong type ends the script here
end
for i = 1, #ARGV, 3 do
  local old, new, id = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local there = redis.call('ZSCORE', KEYS[1], old)
  if there and (id == '' or enter(KEYS[3], KEYS[4], id, string.sub(new, 5, 20), 'p', now, now, 0)) then
    redis.call('LPUSH', KEYS[2], new)
    redis.call('ZREM', KEYS[1], old)
    n = n + 1
  end
end
return n
