-- Abandon: gives a lease up. All that it holds goes back to the taking end, the newest first. The lease stays known for
-- a while, so that a take of it that is still on its way finds it known and empty, and takes nothing.
-- KEYS 1 receivers  2 leased  3 the lease's list  4 prepare  5 ids  6 running
-- ARGV 1 name of the lease  2 ms for which it stays known
-- reply: number put back
redis.call('ZREM', KEYS[1], '')
redis.call('LLEN', KEYS[4])
local now, tracked = clock(), redis.call('EXISTS', KEYS[6]) == 1
local es = redis.call('LRANGE', KEYS[3], 0, -1)
redis.call('ZADD', KEYS[2], printed(now + tonumber(ARGV[2])), ARGV[1])
for _, e in ipairs(es) do
  local moved = back(KEYS[5], e)
  redis.call('RPUSH', KEYS[4], moved)
  if header(e) and (tracked or moved ~= e) then pcall(wait, KEYS[5], KEYS[6], idOf(e), string.sub(e, 5, 20)) end
end
if #es > 0 then leaveLast(KEYS[3], #es) end
return #es
