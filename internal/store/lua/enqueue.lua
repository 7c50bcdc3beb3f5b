-- Enqueue: messages with an id or a time of their own, now or later, all of them or on an error none. It may be sent
-- again: a receipt, the first one's serial, kept until the producer says that he has the reply, tells that it was
-- executed. What was refused beside others that were enqueued is noted, too, by an x before its serial, and is looked
-- at anew. What was refused by a repetition has a y as well, and stays refused: an earlier sending may come later, when
-- the id is free. It does not open with a freeing write: a full Redis takes no new messages.
-- KEYS 1 prepare  2 delay  3 ids  4 receipts  5 running
-- ARGV 1 'now', 'in' or 'at'  2 ms from now, or ms since 1970  3 1: it is a repetition, else 0  4 how many receipts
--      are needed no more  5.. these; then for each message its id or '', ms after which it expires or 0, the element;
--      negative ms may end before it is due
-- reply: due time in ms, then for each 1, or the record of the message that has its id, or 'refused' where that is not
--      there any more; EXPIRES where one would expire before it is due
local now, soonest = clock()
local mode, due = ARGV[1], tonumber(ARGV[2])
if mode == 'in' then due = soonest + due end
local state = 'd'
if mode == 'now' or due <= now then state, due = 'p', now end
local score = printed(due)
redis.call('HLEN', KEYS[3]) -- a key of the wrong type ends the script here

local from = 5 + tonumber(ARGV[4])
if state == 'd' then
  for i = from, #ARGV, 3 do
    local ttl = tonumber(ARGV[i + 1])
    if ttl > 0 and now + ttl <= due then return redis.error_reply('EXPIRES before it is due') end
  end
end
local receipt = string.sub(ARGV[from + 2], 5, 20)
local new = redis.pcall('SADD', KEYS[4], receipt)
if type(new) == 'table' then return new end
local again = new == 0
local out, es, taken, refused, anew, final = {due}, {}, {}, {}, {}, {}

local function undo(err)
  for id, serial in pairs(taken) do
    if own(KEYS[3], id, serial) then redis.call('HDEL', KEYS[3], id) end
  end
  for _, x in ipairs(anew) do redis.call('SADD', KEYS[4], x) end
  if not again then redis.call('SREM', KEYS[4], receipt, unpack(refused)) end
  return err
end

for i = from, #ARGV, 3 do
  local id, ttl, e = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2]
  local serial, expires = string.sub(e, 5, 20), 0
  local x, y = 'x' .. serial, 'y' .. serial
  local reply = 1
  if again and redis.call('SISMEMBER', KEYS[4], y) == 1 then
    reply = redis.call('HGET', KEYS[3], id) or 'refused'
  elseif not again or redis.call('SISMEMBER', KEYS[4], x) == 1 then
    if ttl ~= 0 then
      expires = now + math.abs(ttl)
      e = stamp(e, expires)
    end
    local ok, has = true, nil
    if id ~= '' then
      ok, has = enter(KEYS[3], KEYS[5], id, serial, state, now, due, expires)
    end
    if ok then
      es[#es + 1] = e
      if id ~= '' then taken[id] = serial end
      if again then anew[#anew + 1] = x end
    else
      refused[#refused + 1] = x
      if ARGV[3] == '1' then final[#final + 1] = y end
      reply = has
    end
  end
  out[#out + 1] = reply
end
if again and #anew > 0 then
  redis.call('SREM', KEYS[4], unpack(anew))
elseif not again and #es == 0 and #final == 0 then
  redis.call('SREM', KEYS[4], receipt) -- it says that something was enqueued
elseif not again and #refused > 0 then
  redis.call('SADD', KEYS[4], unpack(refused))
end
if #es > 0 then
  local done
  if state == 'p' then
    done = redis.pcall('LPUSH', KEYS[1], unpack(es))
  else
    local first = redis.pcall('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
    local args = {}
    for _, e in ipairs(es) do
      args[#args + 1] = score
      args[#args + 1] = e
    end
    done = redis.pcall('ZADD', KEYS[2], 'NX', unpack(args))
    if type(done) ~= 'table' then hint(KEYS[2], first, due, now) end
  end
  if type(done) == 'table' then return undo(done) end
end
if #final > 0 then redis.call('SADD', KEYS[4], unpack(final)) end
if from > 5 then redis.call('SREM', KEYS[4], unpack(ARGV, 5, from - 1)) end
return out
