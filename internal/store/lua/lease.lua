-- Lease: moves up to n elements from the first of the channels that has any into a list of its own, which a lease ends.
-- A suspect is taken alone. A bare payload gets a header, so that no two that a lease holds are the same. Of a message
-- with an id it notes who has it, unless it has expired: that is nobody's, and its id is free. Sent again under the
-- same name the script gives what it had taken, and the lease begins anew. Where the lease was given up meanwhile, it
-- takes nothing.
-- KEYS of each channel, in the order they are asked: receivers, prepare, suspect, leased, the lease's list, delay,
--      keeper, ids, running, cancelled
-- ARGV 1 name of the lease  2 its ms  3 bytes after which it stops  4 ms within which a keeper looks by itself  5 holder
--      of what it takes  6 ms since 1970 by the puller's clock  7.. n serials
-- reply: now in ms; then channel (from 1), element, and what is known of its id in turns, what was taken first first:
--      empty where nothing is, else 1 if the message is cancelled and 0 if not, and the record of its id if it has one.
--      A channel that could not be read gives minus its number, the error's text, and nothing.
redis.pcall('ZREM', KEYS[1], '') -- where that key is not shunt's the other channels are read all the same
local past, now = clock() -- the last and the next whole ms: what has expired by past has
local to, budget = now + tonumber(ARGV[2]), tonumber(ARGV[3])
local out, per, fixed = {past}, 10, 6
local function say(c, text, id) out[#out + 1], out[#out + 2], out[#out + 3] = c, text, id end

-- failed is the first error among some replies, or nil.
local function failed(replies)
  for _, reply in ipairs(replies) do
    if type(reply) == 'table' and reply.err then return reply.err end
  end
  return nil
end

-- known notes who has a message with an id, and gives what is known of that. An index that cannot be read holds up no
-- message.
local function known(e, ids, running, cancelled)
  local id = idOf(e)
  if not id then return '' end
  local serial, r = string.sub(e, 5, 20), redis.pcall('HGET', ids, id)
  if type(r) ~= 'string' then r = '' end
  local p = string.sub(r, 1, 16) == serial and parsed(r)
  if not (p and p.expires > 0 and p.expires <= past) then
    local attempt = string.byte(e, 4) + 1
    redis.pcall('HSET', running, serial, ARGV[5] .. string.format(' %d ', attempt) .. ARGV[6])
  end
  local over = redis.pcall('SISMEMBER', cancelled, serial) == 1
  return (over and '1' or '0') .. r
end

-- took says what the lease has of a channel, and begins it anew. first is the lease that ended first before.
local function took(c, leased, list, first, delay, keeper, ids, running, cancelled)
  redis.call('ZADD', leased, printed(to), ARGV[1])
  local es = redis.call('LRANGE', list, 0, -1)
  for i = #es, 1, -1 do say(c, es[i], known(es[i], ids, running, cancelled)) end
  if not earliest(first, to) then return end
  local held = redis.pcall('HGET', keeper, 'until')
  local kept = type(held) == 'string' and tonumber(held) or 0
  if to - now > tonumber(ARGV[4]) and kept > now then return end
  hint(delay, first, to, now)
end

-- take leases what one channel has. It returns an error before anything has moved, and whether it has taken something.
local function take(c, prepare, suspect, leased, list, ...)
  local first = redis.pcall('ZRANGE', leased, 0, 0, 'WITHSCORES')
  local suspects, waiting = redis.pcall('LLEN', suspect), redis.pcall('LLEN', prepare)
  local bad = failed({first, suspects, waiting})
  if bad then return bad, false end
  if redis.call('ZSCORE', leased, ARGV[1]) then return nil, false end
  local from, most, n, bytes = prepare, #ARGV - fixed, 0, 0
  if suspects > 0 then from, most = suspect, 1 elseif waiting == 0 then return nil, false end
  redis.call('ZADD', leased, printed(to), ARGV[1]) -- first, so that nothing is in a list that no lease ends
  while n < most and bytes < budget do
    local e = redis.call('RPOPLPUSH', from, list)
    if not e then break end
    n, bytes = n + 1, bytes + #e
    if not header(e) and not newer(e) then
      local payload = string.sub(e, 1, 2) == '\193\0' and string.sub(e, 3) or e
      redis.call('LPUSH', list, '\193\16\0\0' .. ARGV[fixed + n] .. '\0' .. payload)
      redis.call('LREM', list, '1', e)
    end
  end
  took(c, leased, list, first, ...)
  return nil, true
end

local lists = {}
for c = 1, #KEYS / per do lists[c] = KEYS[per * c - 5] end
if redis.call('EXISTS', unpack(lists)) > 0 then
  for c, list in ipairs(lists) do
    if redis.call('EXISTS', list) == 1 then took(c, KEYS[per * c - 6], list, {}, unpack(KEYS, per * c - 4, per * c)) end
  end
  return out
end
for c = 1, #lists do
  local bad, some = take(c, unpack(KEYS, per * c - 8, per * c))
  if bad then say(-c, bad, '') end
  if some then break end
end
return out
