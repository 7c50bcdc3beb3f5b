-- Enter: delivers messages with an id, now, all of them or on an error none. It is deliver without what few messages ask for. It may be
-- sent again: a receipt, kept until the deliverer says that it has the reply, tells that it was executed.
-- KEYS 1 prepare  2 ids  3 receipts
-- ARGV 1 how many serials need their receipts no more  2.. these; then for each message its id and the element
-- reply: for each 1, or the record of the message that has its id
local from = 2 + ARGV[1]
local unpack = unpack or table.unpack
local out, es, ids, serials = {}, {}, {}, {}

-- fresh takes all of them at once, where none was sent before and none has the id of another, as it mostly is. Before Redis 6.2 it does not.
local function fresh()
  local records, seen = {}, {}
  for i = from, #ARGV, 2 do
    local id, e, n = ARGV[i], ARGV[i + 1], #es + 1
    if seen[id] then return false end
    seen[id], ids[n], es[n], serials[n] = true, id, e, string.sub(e, 5, 20)
    records[2 * n - 1], records[2 * n] = id, serials[n] .. 'p0 0 0 0 \n'
  end
  local had, taken = redis.pcall('SMISMEMBER', KEYS[3], unpack(serials)), redis.call('HMGET', KEYS[2], unpack(ids))
  if had.err then return false end
  for n = 1, #es do
    if had[n] ~= 0 or taken[n] then return false end
    out[n] = 1
  end
  redis.call('SADD', KEYS[3], unpack(serials))
  redis.call('HSET', KEYS[2], unpack(records))
  return true
end

if #ARGV - from < 4 or not fresh() then
  out, es, ids, serials = {}, {}, {}, {}
  for i = from, #ARGV, 2 do
    local id, e = ARGV[i], ARGV[i + 1]
    local n, serial = #es + 1, string.sub(e, 5, 20)
    if redis.call('SADD', KEYS[3], serial) == 0 then
      out[#out + 1] = 1
    elseif redis.call('HSETNX', KEYS[2], id, serial .. 'p0 0 0 0 \n') == 1 then
      out[#out + 1] = 1
      es[n], ids[n], serials[n] = e, id, serial
    else
      redis.call('SREM', KEYS[3], serial) -- a receipt says that it was delivered
      out[#out + 1] = redis.call('HGET', KEYS[2], id)
    end
  end
end
if #es > 0 then
  local done = redis.pcall('LPUSH', KEYS[1], unpack(es))
  if type(done) == 'table' then
    redis.call('HDEL', KEYS[2], unpack(ids))
    redis.call('SREM', KEYS[3], unpack(serials))
    return done
  end
end
if from > 2 then redis.call('SREM', KEYS[3], unpack(ARGV, 2, from - 1)) end
return out
