-- Lease each: takes one element of one channel for each of several leases, each into a list of its own. Where it has a
-- suspect it takes nothing: that is for each puller alone. It is sent but once: where its reply is lost, script lease
-- follows under the same names. A lease that was given up meanwhile takes nothing.
-- KEYS 1 receivers  2 prepare  3 suspect  4 leased  5 delay  6 keeper  7 ids  8 running  9 cancelled  10.. the leases'
--      lists
-- ARGV 1 ms within which a keeper looks by itself  2 what begins a holder, before the lease's name  3 ms since 1970 by
--      the puller's clock  4 bytes after which it stops; then for each lease its name, its ms, a serial
-- reply: now in ms; 1 where each that has nothing would find nothing, else 0; then the place of a lease (from 1), its
--      element, and where that has an id what is known of it, as in script lease
redis.pcall('ZREM', KEYS[1], '')
local past, now = clock()
if redis.call('LLEN', KEYS[3]) > 0 then return {past, 0} end
local left, es, of, names, empty, bytes = redis.call('LLEN', KEYS[2]), {}, {}, {}, 1, 0
redis.call('ZCARD', KEYS[4]) -- ends the script where that is not shunt's
for i = 10, #KEYS do
  if left == 0 then break end
  if bytes >= tonumber(ARGV[4]) then
    empty = 0
    break
  end
  local at = 5 + 3 * (i - 10)
  local name = ARGV[at]
  if redis.call('ZADD', KEYS[4], 'NX', printed(now + tonumber(ARGV[at + 1])), name) == 1 then
    es[#es + 1] = headed(KEYS[i], redis.call('RPOPLPUSH', KEYS[2], KEYS[i]), ARGV[at + 2])
    of[#of + 1], names[name], left, bytes = i - 9, true, left - 1, bytes + #es[#es]
  else
    empty = 0
  end
end
local out = {past, empty}
if #es == 0 then return out end
local function holder(n) return ARGV[2] .. ARGV[5 + 3 * (of[n] - 1)] end
local known = knows(es, holder, ARGV[3], past, KEYS[7], KEYS[8], KEYS[9])
for n, e in ipairs(es) do
  out[#out + 1], out[#out + 2] = of[n], e
  if known[n] then out[#out + 1] = known[n] end
end
tell(KEYS[4], KEYS[5], KEYS[6], names, now, tonumber(ARGV[1]))
return out
