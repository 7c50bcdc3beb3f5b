-- Handover: empties one doing list of an incarnation that ends: what a handler holds goes to the same worker's list of the
-- next incarnation, everything else to the taking end, the newest first.
-- KEYS 1 receivers  2 the old doing list  3 the new one  4 prepare  5 ids  6 running
-- ARGV 1 the new holder: incarnation and worker  2.. the identities that a handler holds
-- reply: number put back, then the number in ARGV of each identity that was found
redis.call('ZREM', KEYS[1], '')
redis.call('LLEN', KEYS[3])
redis.call('LLEN', KEYS[4])
local held, out, tracked = {}, {0}, redis.call('EXISTS', KEYS[6]) == 1
for i = 2, #ARGV do
  local id = ARGV[i]
  held[id] = held[id] or {}
  table.insert(held[id], i - 1)
end
local es = redis.call('LRANGE', KEYS[2], 0, -1)
for _, e in ipairs(es) do
  local is = #ARGV > 1 and held[identity(e)]
  local holder, back = nil, e
  if is and #is > 0 then
    out[#out + 1] = table.remove(is)
    redis.call('RPUSH', KEYS[3], e)
    holder = ARGV[1]
  else
    out[1] = out[1] + 1
    back = taken(e)
    redis.call('RPUSH', KEYS[4], back)
  end
  if header(e) and (tracked or back ~= e) then pcall(wait, KEYS[5], KEYS[6], idOf(e), string.sub(e, 5, 20), holder) end
end
if #es > 0 then redis.call('LTRIM', KEYS[2], #es, -1) end
return out
