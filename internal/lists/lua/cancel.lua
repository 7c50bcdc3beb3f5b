-- Cancel: what waits is never handled from now on, and its id is free; a worker that has it is told.
-- KEYS 1 receivers  2 ids  3 cancelled  4 delay  5 done  6 done.at  7 kept
-- ARGV 1 id  2 serial  3 most elements that are looked through for it in delay  4 most kept  5 most bytes kept
-- reply: the record, as it was; '' where that message has none
redis.call('ZREM', KEYS[1], '')
local p = own(KEYS[2], ARGV[1], ARGV[2])
if not p or p.state == 'u' then return '' end
local r = redis.call('HGET', KEYS[2], ARGV[1])
if p.state == 'r' then
  if not flag(p, 2) then
    p.flags = p.flags + 2
    write(KEYS[2], ARGV[1], p, 'r', p.attempt, p.at, p.holder, p.failure)
  end
  redis.pcall('PUBLISH', KEYS[4], 'cancel ' .. p.serial)
  return r
end
local e = p.state == 'd' and not flag(p, 4) and due(KEYS[4], p, tonumber(ARGV[3]))
if not e then redis.call('SADD', KEYS[3], p.serial) end
local time = redis.call('TIME')
local m = {serial = p.serial, kind = 'c', attempt = p.attempt, failure = '', result = '', retain = 0, unique = 0, most = tonumber(ARGV[4]),
  bytes = tonumber(ARGV[5]), waits = not e}
finish({KEYS[2], KEYS[3], KEYS[5], KEYS[6], KEYS[7]}, ARGV[1], m, time[1] * 1000 + math.floor(time[2] / 1000))
if e then redis.call('ZREM', KEYS[4], e) end
return r
