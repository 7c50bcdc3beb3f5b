-- Lease: moves up to n elements from the first of the channels that has any into a list of its own, which a lease ends.
-- A suspect is taken alone. A bare payload gets a header, so that no two that a lease holds are the same. Of a message
-- with an id it notes who has it, unless it has expired: that is nobody's, and its id is free. Sent again under the
-- same name the script gives what it had taken, and the lease begins anew. Where the lease was given up meanwhile, it
-- takes nothing.
-- KEYS of each channel, in the order they are asked: receivers, prepare, suspect, leased, the lease's list, delay,
--      keeper, ids, running, cancelled
-- ARGV 1 name of the lease  2 its ms  3 bytes after which it stops  4 ms within which a keeper looks by itself
--      5 holder of what it takes  6 ms since 1970 by the puller's clock  7.. n serials
-- reply: now in ms; then channel (from 1) and element in turns, what was taken first first. After an element with an id
--      comes a text of what is known of that: 1 if the message is cancelled and 0 if not, and the id's record if it has
--      one. A channel that could not be read gives minus its number and the error's text.
redis.pcall('ZREM', KEYS[1], '') -- where that key is not shunt's the other channels are read all the same
local past, now = clock() -- the last and the next whole ms: what has expired by past has
local to, budget = now + tonumber(ARGV[2]), tonumber(ARGV[3])
local out, per, fixed = {past}, 10, 6
local function say(c, text) out[#out + 1], out[#out + 2] = c, text end

-- failed is the first error among some replies, or nil.
local function failed(replies)
  for _, reply in ipairs(replies) do
    if type(reply) == 'table' and reply.err then return reply.err end
  end
  return nil
end

-- knows gives what is known of the ids of those elements that have one, by their places, and notes who has their
-- messages. An index that cannot be read holds up none.
local function knows(es, ids, running, cancelled)
  local known, named, places, marks = {}, {}, {}, {}
  for i, e in ipairs(es) do
    local id = string.byte(e, 21) ~= 0 and idOf(e) -- most have no field at all
    if id then named[#named + 1], places[#places + 1] = id, i end
  end
  if #named == 0 then return known end
  local records = redis.pcall('HMGET', ids, unpack(named))
  local some = redis.pcall('EXISTS', cancelled) == 1
  for n, i in ipairs(places) do
    local r, e = records[n] or '', es[i]
    local serial, over = string.sub(e, 5, 20), '0'
    local p = string.sub(r, 1, 16) == serial and parsed(r)
    if not (p and p.expires > 0 and p.expires <= past) then
      marks[#marks + 1] = serial
      marks[#marks + 1] = ARGV[5] .. string.format(' %d ', string.byte(e, 4) + 1) .. ARGV[6]
    end
    if some and redis.pcall('SISMEMBER', cancelled, serial) == 1 then over = '1' end
    known[i] = over .. r
  end
  if #marks > 0 then redis.pcall('HSET', running, unpack(marks)) end
  return known
end

-- took says what the lease has of a channel, what was taken first first.
local function took(c, es, ids, running, cancelled)
  local known = knows(es, ids, running, cancelled)
  for i, e in ipairs(es) do
    say(c, e)
    if known[i] then out[#out + 1] = known[i] end
  end
end

-- tell has the keeper know of the lease, unless another one ends before it, or the keeper looks by itself in time.
-- Where one has been over for a second nobody knew of that, so the keeper is told of it.
local function tell(leased, delay, keeper)
  local first = redis.call('ZRANGE', leased, 0, 0, 'WITHSCORES')
  local over = tonumber(first[2]) < now - 1000
  if first[1] ~= ARGV[1] and not over then return end
  local held = redis.pcall('HGET', keeper, 'until')
  local kept = type(held) == 'string' and tonumber(held) or 0
  if over or to - now <= tonumber(ARGV[4]) or kept <= now then
    redis.pcall('PUBLISH', delay, over and '0' or printed(to - now))
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
    if not header(e) and not newer(e) then
      local payload = string.sub(e, 1, 2) == '\193\0' and string.sub(e, 3) or e
      local headed = '\193\16\0\0' .. ARGV[fixed + #es + 1] .. '\0' .. payload
      redis.call('LPUSH', list, headed)
      redis.call('LREM', list, '1', e)
      e = headed
    end
    es[#es + 1] = e
  end
  took(c, es, ...)
  tell(leased, delay, keeper)
  return nil, true
end

-- again says what a channel has in a list of the lease, which begins anew.
local function again(c, leased, list, delay, keeper, ...)
  redis.call('ZADD', leased, printed(to), ARGV[1])
  local es = redis.call('LRANGE', list, 0, -1)
  for i = 1, math.floor(#es / 2) do es[i], es[#es + 1 - i] = es[#es + 1 - i], es[i] end
  took(c, es, ...)
  tell(leased, delay, keeper)
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
