-- Enter: enqueues messages with an id, now, all of them or on an error none. It is enqueue without what few messages
-- ask for, and is sent but once; what follows it, where its reply is lost, is enqueue.
-- KEYS 1 prepare  2 ids  3 receipts
-- ARGV 1 how many receipts are needed no more  2 words a message: 2, or 3 where some expire  3.. the receipts; then for
--      each message its id, the element, and as a third word the ms after which it expires, or 0
-- reply: for each 1, or the record of the message that has its id; then now in ms, 0 where nothing asked for it
local from, step = 3 + ARGV[1], tonumber(ARGV[2])
local out, es, ids, refused, records = {}, {}, {}, {}, {}
local now

-- formed is a message's element, and the record of its id.
local function formed(i)
  local e, ttl = ARGV[i + 1], step == 3 and ARGV[i + 2] or '0'
  local serial = string.sub(e, 5, 20)
  if ttl == '0' then return e, serial .. 'p 0 0 0 \n' end
  now = now or clock()
  local ms = now + ttl
  return stamp(e, ms), serial .. 'p 0 0 ' .. printed(ms) .. ' \n'
end

-- free says whether no id is taken, as it mostly is: then all are taken at once.
local function free()
  local seen = {}
  for i = from, #ARGV, step do
    local id, n = ARGV[i], #es + 1
    if seen[id] then return false end
    seen[id], ids[n], out[n], records[2 * n - 1] = true, id, 1, id
    es[n], records[2 * n] = formed(i)
  end
  local taken = redis.call('HMGET', KEYS[2], unpack(ids))
  for n = 1, #es do
    if taken[n] then return false end
  end
  return true
end

local all = #ARGV - from >= 3 * step - 1 and free()
local receipt = string.sub(ARGV[from + 1], 5, 20)
local new = redis.pcall('SADD', KEYS[3], receipt)
if type(new) == 'table' then return new end
-- Nobody waits for this reply, then.
if new == 0 then return redis.error_reply('ERR it was sent again, and that was executed before') end
if all then
  redis.call('HSET', KEYS[2], unpack(records))
else
  out, es, ids = {}, {}, {}
  for i = from, #ARGV, step do
    local id, n = ARGV[i], #es + 1
    local e, record = formed(i)
    if redis.call('HSETNX', KEYS[2], id, record) == 1 then
      out[#out + 1] = 1
      es[n], ids[n] = e, id
    else
      now = now or clock()
      out[#out + 1] = redis.call('HGET', KEYS[2], id)
      refused[#refused + 1] = 'x' .. string.sub(e, 5, 20)
    end
  end
end
if #es == 0 then
  redis.call('SREM', KEYS[3], receipt) -- it says that something was enqueued
else
  if #refused > 0 then redis.call('SADD', KEYS[3], unpack(refused)) end
  local done = redis.pcall('LPUSH', KEYS[1], unpack(es))
  if type(done) == 'table' then
    redis.call('HDEL', KEYS[2], unpack(ids))
    redis.call('SREM', KEYS[3], receipt, unpack(refused))
    return done
  end
end
if from > 3 then redis.call('SREM', KEYS[3], unpack(ARGV, 3, from - 1)) end
out[#out + 1] = now or 0
return out
