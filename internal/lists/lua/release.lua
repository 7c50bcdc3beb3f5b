-- Release: puts elements of one doing list back to the taking end, the newest first, so that what was taken first is next.
-- KEYS 1 receivers  2 doing  3 prepare  4 ids
-- ARGV the identities to put back
-- reply: number put back
redis.call('ZREM', KEYS[1], '')
redis.call('LLEN', KEYS[3])
local want, n, tracked = {}, 0, redis.call('EXISTS', KEYS[4]) == 1
for _, id in ipairs(ARGV) do want[id] = (want[id] or 0) + 1 end
for _, e in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
  local id = identity(e)
  if (want[id] or 0) > 0 then
    want[id] = want[id] - 1
    redis.call('RPUSH', KEYS[3], e)
    redis.call('LREM', KEYS[2], 1, e)
    if tracked and header(e) then pcall(wait, KEYS[4], idOf(e), string.sub(e, 5, 20)) end
    n = n + 1
  end
end
return n
