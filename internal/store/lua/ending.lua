-- What became of a message with an id is kept, where it asked for that, in the hash done:
--   serial (16 bytes)  kind  ' ' attempt  ' ' ms of its end  ' ' ms until which it is kept  ' ' bytes of failure  '\n'
--   failure result
-- kind: a acked, d dead, c cancelled, x expired. The field '' counts the bytes of all. The sorted set kept has 'e'
-- and the id of each outcome at minus the ms of its end, so the latest end comes first. Its other members are to be
-- forgotten at the ms that is their score: 'r' and the id of an outcome, 'u' and an id that is taken. k: the keys
-- ids, cancelled, done, kept, running, waited.

-- forget removes what is kept of an id; it returns the bytes of that.
local function forget(k, id)
  local out = redis.call('HGET', k[3], id)
  redis.call('HDEL', k[3], id)
  redis.call('ZREM', k[4], 'e' .. id, 'r' .. id)
  if not out then return 0 end
  if redis.call('HINCRBY', k[3], '', -#out) <= 0 then redis.call('HDEL', k[3], '') end
  return #out
end

-- tidy forgets up to n things whose time is over; it tells how many those were.
local function tidy(k, now, n)
  local over = redis.call('ZRANGEBYSCORE', k[4], '(0', printed(now), 'LIMIT', 0, n)
  for _, member in ipairs(over) do
    local id = string.sub(member, 2)
    if string.sub(member, 1, 1) == 'r' then
      forget(k, id)
    else
      local p = parsed(redis.call('HGET', k[1], id))
      if p and p.state == 'u' and p.at <= now then redis.call('HDEL', k[1], id) end
    end
    redis.call('ZREM', k[4], member)
  end
  return #over
end

-- outcomes counts what is kept.
local function outcomes(kept) return redis.call('ZCOUNT', kept, '-inf', '(0') end

-- dropOldest forgets the outcome that ended first of so many; it returns the bytes of that. What is not shunt's goes,
-- too.
local function dropOldest(k, count)
  local bytes, oldest = 0, redis.call('ZRANGE', k[4], count - 1, count - 1)[1]
  if string.sub(oldest, 1, 1) == 'e' then bytes = forget(k, string.sub(oldest, 2)) end
  redis.call('ZREM', k[4], oldest)
  return bytes
end

-- keep keeps what became of an id, and drops the oldest beyond so many and so many bytes. done comes after the key by
-- which it is forgotten, which ends this where it is of the wrong type.
local function keep(k, id, out, now, retain, most, bytes)
  local old = redis.call('HGET', k[3], id)
  redis.call('ZADD', k[4], printed(now + retain), 'r' .. id, printed(-now), 'e' .. id)
  redis.call('HSET', k[3], id, out)
  redis.call('HINCRBY', k[3], '', #out - (old and #old or 0))
  tidy(k, now, 4)
  local sum = tonumber(redis.call('HGET', k[3], '') or '0')
  for _ = 1, 16 do
    local count = outcomes(k[4])
    if count <= 1 or (most <= 0 or count <= most) and (bytes <= 0 or sum <= bytes) then return end
    sum = sum - dropOldest(k, count)
  end
end

-- gone says whether a message was cancelled.
local function gone(k, serial) return redis.pcall('SISMEMBER', k[2], serial) == 1 end

-- conclude records that a message is over: its id is free, or kept taken; what became of it is kept, and published to
-- those who wait for it. m has serial, kind, attempt, failure, result, retain, unique, most and bytes, and may have:
--   mine: the message's own record, where another message has the id by now
--   waits: the element lies in its list until a worker meets it
-- Call it last in a script, when the element has left its list, unless m.waits. Nobody calls it for that message again:
-- so the id is freed first, and no key of the wrong type keeps the rest from being done.
local function conclude(k, id, m, now)
  local p = not m.mine and own(k[1], id, m.serial)
  if p and m.unique > 0 and m.kind == 'a' then
    redis.call('HSET', k[1], id, record(m.serial, 'u', m.attempt, now + m.unique, 0, ''))
    redis.pcall('ZADD', k[4], printed(now + m.unique), 'u' .. id)
    pcall(tidy, k, now, 4)
  elseif p then
    redis.call('HDEL', k[1], id)
  end
  redis.pcall('HDEL', k[5], m.serial)
  if not m.waits then redis.pcall('SREM', k[2], m.serial) end
  local waited, retain = redis.pcall('SREM', k[6], m.serial) == 1, m.kind ~= 'c' and m.retain or 0
  if waited then retain = math.max(retain, 60000) end -- for whoever is just about to hear of it
  if retain <= 0 then return end
  local head = m.serial .. m.kind .. string.format(' %d %.0f %.0f %d\n', m.attempt, now, now + retain, #m.failure)
  local out = head .. m.failure .. m.result
  pcall(keep, k, id, out, now, retain, m.most, m.bytes)
  if waited then redis.pcall('PUBLISH', k[3], string.format('%d ', #id) .. id .. out) end
end

-- replaced adds the next form of an element to a sorted set, and only then has the old one leave its doing list. It
-- returns 1; 0 where the old one was not there, or an error, and then nothing has changed: it takes back only what
-- this call has added.
local function replaced(doing, old, set, score, new)
  local added = redis.call('ZADD', set, 'NX', score, new)
  local left = leave(doing, old, '1')
  if left ~= 1 and added == 1 then redis.call('ZREM', set, new) end
  return left
end

-- endedCancelled ends a message with an id that was cancelled while its handler ran, in place of its verdict. It
-- returns nil where it was not cancelled, else 1, 0 where it was not in its list, or an error.
local function endedCancelled(k, doing, id, e, m, now)
  if not gone(k, m.serial) then return nil end
  local left = leave(doing, e, '1')
  if left == 1 then
    m.kind = 'c'
    pcall(conclude, k, id, m, now)
  end
  return left
end
