-- Handover: empties one doing list of an incarnation that ends. What a handler holds goes to the same worker's list
-- of the next incarnation. All else goes to the taking end, the newest first; or, with 'leave', only what is named
-- does, and the rest stays. Where the next incarnation is not among the living, what a handler holds is put back as
-- well: nobody would look after its list.
-- KEYS 1 receivers  2 the old doing list  3 the new one  4 prepare  5 ids  6 running
-- ARGV 1 the new holder: incarnation and worker  2 'back' or 'leave'  3 n: how many identities a handler holds  4..
--      these, then with 'leave' those that go to the taking end
-- reply: number put back, then the number, from 1, of each held identity that was found
redis.call('ZREM', KEYS[1], '')
redis.call('LLEN', KEYS[3])
redis.call('LLEN', KEYS[4])
local held, named, out, tracked = {}, {}, {0}, redis.call('EXISTS', KEYS[6]) == 1
local n = tonumber(ARGV[3])
local known = n == 0 or redis.call('ZSCORE', KEYS[1], string.match(ARGV[1], '^[^/]*'))
for i = 4, #ARGV do
  local id = ARGV[i]
  if i - 3 <= n then
    held[id] = held[id] or {}
    table.insert(held[id], i - 3)
  else
    named[id] = (named[id] or 0) + 1
  end
end
local es = redis.call('LRANGE', KEYS[2], 0, -1)
for _, e in ipairs(es) do
  local id = #ARGV > 3 and identity(e)
  local is = id and held[id] and table.remove(held[id])
  local holder, stays, moved = nil, false, e
  if is and known then
    out[#out + 1] = is
    redis.call('RPUSH', KEYS[3], e)
    holder = ARGV[1]
  elseif ARGV[2] == 'leave' and not is and (not id or (named[id] or 0) == 0) then
    stays = true
    redis.call('RPUSH', KEYS[2], e)
  else
    if not is and id and named[id] then named[id] = named[id] - 1 end
    out[1] = out[1] + 1
    moved = back(KEYS[5], e)
    redis.call('RPUSH', KEYS[4], moved)
  end
  if not stays and header(e) and (tracked or moved ~= e) then
    pcall(wait, KEYS[5], KEYS[6], idOf(e), string.sub(e, 5, 20), holder)
  end
end
if #es > 0 then leaveLast(KEYS[2], #es) end
return out
