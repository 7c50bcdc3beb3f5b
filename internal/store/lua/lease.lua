-- Lease: moves up to n elements from the first of the channels that has any into a list of its own, which a lease ends.
-- A suspect is taken alone. A bare payload gets a header, so that no two that a lease holds are the same. Of a message
-- with an id it notes who has it, unless it has expired: that is nobody's, and its id is free. Sent again under the
-- same name the script gives what it had taken, and the lease begins anew. Where the lease was given up meanwhile, it
-- takes nothing.
-- KEYS of each channel, in the order they are asked: receivers, prepare, suspect, leased, the lease's list, delay,
--      keeper, ids, running, cancelled
-- ARGV 1 name of the lease  2 its ms  3 bytes after which it stops  4 ms within which a keeper looks by itself
--      5 holder of what it takes  6 ms since 1970 by the puller's clock  7.. n serials
-- reply: now in ms; when it was taken at the earliest, in ms; then channel (from 1) and element in turns, what was
--      taken first first. After an element with an id comes a text of what is known of that: 1 if the message is
--      cancelled and 0 if not, and the id's record if it has one. A channel that could not be read gives minus its
--      number and the error's text.
redis.pcall('ZREM', KEYS[1], '') -- where that key is not shunt's the other channels are read all the same
local past, now = clock() -- the last and the next whole ms: what has expired by past has
local to, budget = now + tonumber(ARGV[2]), tonumber(ARGV[3])
local function holder() return ARGV[5] end
local out, per, fixed = {past, past}, 10, 6
local function say(c, text) out[#out + 1], out[#out + 2] = c, text end

-- failed is the first error among some replies, or nil.
local function failed(replies)
  for _, reply in ipairs(replies) do
    if type(reply) == 'table' and reply.err then return reply.err end
  end
  return nil
end

-- took says what the lease has of a channel, what was taken first first.
local function took(c, es, ids, running, cancelled)
  local known = knows(es, holder, ARGV[6], out[2], ids, running, cancelled)
  for i, e in ipairs(es) do
    say(c, e)
    if known[i] then out[#out + 1] = known[i] end
  end
end

-- take leases what one channel has. It returns an error before anything has moved, and whether it has taken something.
local function take(c, prepare, suspect, leased, list, delay, keeper, ...)
  local suspects, waiting = redis.pcall('LLEN', suspect), redis.pcall('LLEN', prepare)
  local bad = failed({suspects, waiting, redis.pcall('ZCARD', leased)})
  if bad then return bad, false end
  local from, most, bytes, es = prepare, #ARGV - fixed, 0, {}
  if suspects > 0 then from, most = suspect, 1 elseif waiting == 0 then return nil, false end
  -- First, so that nothing is in a list that no lease ends. A server that refuses this refuses it for all channels.
  if redis.call('ZADD', leased, 'NX', printed(to), ARGV[1]) == 0 then return nil, false end
  while #es < most and bytes < budget do
    local e = redis.call('RPOPLPUSH', from, list)
    if not e then break end
    bytes = bytes + #e
    es[#es + 1] = headed(list, e, ARGV[fixed + #es + 1])
  end
  took(c, es, ...)
  tell(leased, delay, keeper, {[ARGV[1]] = true}, now, tonumber(ARGV[4]))
  return nil, true
end

-- again says what a channel has in a list of the lease, which begins anew. What was taken in time does not expire.
-- Where it is asked for once more, the time of the last asking goes for that of the take.
local function again(c, leased, list, delay, keeper, ...)
  local began = redis.call('ZSCORE', leased, ARGV[1])
  if began then out[2] = math.min(past, began - ARGV[2] - 1) end
  redis.call('ZADD', leased, printed(to), ARGV[1])
  local es = redis.call('LRANGE', list, 0, -1)
  for i = 1, math.floor(#es / 2) do es[i], es[#es + 1 - i] = es[#es + 1 - i], es[i] end
  took(c, es, ...)
  tell(leased, delay, keeper, {[ARGV[1]] = true}, now, tonumber(ARGV[4]))
end

local lists = {}
for c = 1, #KEYS / per do lists[c] = KEYS[per * c - 5] end
if redis.call('EXISTS', unpack(lists)) > 0 then
  for c, list in ipairs(lists) do
    if redis.call('EXISTS', list) == 1 then again(c, unpack(KEYS, per * c - 6, per * c)) end
  end
  return out
end
for c = 1, #lists do
  local bad, some = take(c, unpack(KEYS, per * c - 8, per * c))
  if bad then say(-c, bad) end
  if some then break end
end
return out
