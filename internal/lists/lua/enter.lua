-- Enter: delivers messages with an id, now, all of them or on an error none. It is deliver without what few messages ask for. It may be
-- sent again: a receipt, kept until the deliverer says that it has the reply, tells that it was executed.
-- KEYS 1 prepare  2 ids  3 receipts
-- ARGV 1 how many serials need their receipts no more  2.. these; then for each message its id and the element
-- reply: for each 1, or the record of the message that has its id
local from = 2 + ARGV[1]
local out, es, ids = {}, {}, {}
for i = from, #ARGV, 2 do
  local id, e = ARGV[i], ARGV[i + 1]
  local serial = string.sub(e, 5, 20)
  if redis.call('SADD', KEYS[3], serial) == 0 then
    out[#out + 1] = 1
  elseif redis.call('HSETNX', KEYS[2], id, serial .. 'p0 0 0 0 \n') == 1 then
    out[#out + 1] = 1
    es[#es + 1] = e
    ids[#ids + 1] = id
  else
    redis.call('SREM', KEYS[3], serial) -- a receipt says that it was delivered
    out[#out + 1] = redis.call('HGET', KEYS[2], id)
  end
end
local unpack = unpack or table.unpack
if #es > 0 then
  local done = redis.pcall('LPUSH', KEYS[1], unpack(es))
  if type(done) == 'table' then
    redis.call('HDEL', KEYS[2], unpack(ids))
    for _, e in ipairs(es) do redis.call('SREM', KEYS[3], string.sub(e, 5, 20)) end
    return done
  end
end
if from > 2 then redis.call('SREM', KEYS[3], unpack(ARGV, 2, from - 1)) end
return out
