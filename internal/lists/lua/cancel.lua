-- Cancel: what waits is never handled from now on, and its id is free; a worker that has it is told.
-- KEYS 1 receivers  2 ids  3 cancelled  4 delay  5 done
-- ARGV 1 id  2 most elements that are looked through for it in delay
-- reply: the record, as it was; '' where there is none
redis.call('ZREM', KEYS[1], '')
local r = redis.call('HGET', KEYS[2], ARGV[1])
local p = parsed(r)
if not p or p.state == 'u' then return '' end
if p.state == 'r' then
  if not flag(p, 2) then
    p.flags = p.flags + 2
    write(KEYS[2], ARGV[1], p, 'r', p.attempt, p.at, p.holder, p.failure)
  end
  redis.pcall('PUBLISH', KEYS[4], 'cancel ' .. p.serial)
  return r
end
local e = p.state == 'd' and not flag(p, 4) and due(KEYS[4], p, tonumber(ARGV[2]))
if e then
  redis.call('ZREM', KEYS[4], e)
else
  redis.call('SADD', KEYS[3], p.serial)
end
redis.call('HDEL', KEYS[2], ARGV[1])
if flag(p, 1) then
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  redis.pcall('PUBLISH', KEYS[5], string.format('%d ', #ARGV[1]) .. ARGV[1] .. p.serial .. string.format('c %d %.0f %.0f 0\n', p.attempt, now, now))
end
return r
