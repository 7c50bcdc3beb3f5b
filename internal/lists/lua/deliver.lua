-- Deliver: messages with an id or a time of their own, now or later, all of them or on an error none. It may be sent again: a receipt,
-- kept until the deliverer says that it has the reply, tells that it was executed. It does not open with a freeing write: a full Redis
-- takes no new messages.
-- KEYS 1 prepare  2 delay  3 ids  4 receipts  5 running
-- ARGV 1 'now', 'in' or 'at'  2 ms from now, or ms since 1970  3 how many serials need their receipts no more  4.. these; then for each message
--      its id or '', ms after which it expires or 0, the element
-- reply: due time in ms, then for each 1, or the record of the message that has its id
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local mode, due = ARGV[1], tonumber(ARGV[2])
if mode == 'in' then due = time[1] * 1000 + math.ceil(time[2] / 1000) + due end -- never before
local state = 'd'
if mode == 'now' or due <= now then state, due = 'p', now end
local score = string.format('%.0f', due)
local unpack = unpack or table.unpack
redis.call('HLEN', KEYS[3]) -- a key of the wrong type ends the script here

local function undo(es, taken, err)
  for id, serial in pairs(taken) do
    if own(KEYS[3], id, serial) then redis.call('HDEL', KEYS[3], id) end
  end
  for _, e in ipairs(es) do redis.call('SREM', KEYS[4], string.sub(e, 5, 20)) end
  return err
end

local out, es, taken = {due}, {}, {}
local from = 4 + tonumber(ARGV[3])
for i = from, #ARGV, 3 do
  local id, ttl, e = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2]
  local serial, expires = string.sub(e, 5, 20), 0
  local reply = 1
  local new = redis.pcall('SADD', KEYS[4], serial)
  if type(new) == 'table' then return undo(es, taken, new) end
  if new == 1 then
    if ttl > 0 then
      expires = now + ttl
      e = stamp(e, expires)
    end
    local ok, has = true, nil
    if id ~= '' then
      ok, has = enter(KEYS[3], KEYS[5], id, serial, state, now, due, expires)
    end
    if ok then
      es[#es + 1] = e
      if id ~= '' then taken[id] = serial end
    else
      redis.call('SREM', KEYS[4], serial) -- a receipt says that it was delivered
      reply = has
    end
  end
  out[#out + 1] = reply
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
    if type(done) ~= 'table' and (not first[2] or due < tonumber(first[2])) then redis.pcall('PUBLISH', KEYS[2], string.format('%.0f', due - now)) end
  end
  if type(done) == 'table' then return undo(es, taken, done) end
end
if from > 4 then redis.call('SREM', KEYS[4], unpack(ARGV, 4, from - 1)) end
return out
