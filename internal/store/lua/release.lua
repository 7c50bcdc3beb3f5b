-- Release: puts elements of one doing list back to the taking end, the newest first, so that what was taken first is
-- next. They were taken, so they do not expire any more.
-- KEYS 1 receivers  2 doing  3 prepare  4 ids  5 running
-- ARGV the identities to put back
-- reply: number put back
redis.call('ZREM', KEYS[1], '')
redis.call('LLEN', KEYS[3])
local want, n, tracked = {}, 0, redis.call('EXISTS', KEYS[5]) == 1
for i = 1, #ARGV do want[ARGV[i]] = (want[ARGV[i]] or 0) + 1 end
for _, e in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
  local id = identity(e)
  if (want[id] or 0) > 0 then
    want[id] = want[id] - 1
    local moved = back(KEYS[4], e)
    redis.call('RPUSH', KEYS[3], moved)
    local left = leave(KEYS[2], e, '1')
    if type(left) == 'table' then return left end
    if header(e) and (tracked or moved ~= e) then pcall(wait, KEYS[4], KEYS[5], idOf(e), string.sub(e, 5, 20)) end
    n = n + 1
  end
end
return n
