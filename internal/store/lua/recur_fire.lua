-- Recur fire: enqueues what ticks of a recurring message ask for, if its record is still the one that the caller read
-- and it is time. The record's head, a line, changes with it: so of all who try, and of one who tries again, exactly
-- one enqueues.
-- KEYS 1 recur  2 prepare  3 ids  4 running
-- ARGV 1 name  2 the head as read  3 the head to write  4 ms since 1970 from which and 5 until which it is time, 0:
--      no bound  6 the messages' id, or ''  7 ms since 1970 when they expire, or 0  8.. elements
-- reply: now in ms, then number enqueued: fewer where the id is taken, and ''; or -1 and the head that is there, ''
--      for none; or -2 and '' if it is not the time
local now = clock()
local r = redis.call('HGET', KEYS[1], ARGV[1])
if not r or string.sub(r, 1, #ARGV[2]) ~= ARGV[2] then return {now, -1, r and string.match(r, '^[^\n]*\n') or ''} end
local to = tonumber(ARGV[5])
if now < tonumber(ARGV[4]) or to > 0 and now > to then return {now, -2, ''} end

redis.call('LLEN', KEYS[2]) -- a key of the wrong type ends the script here
local es, taken = {}, nil
for i = 8, #ARGV do
  local serial = string.sub(ARGV[i], 5, 20)
  if ARGV[6] == '' then
    es[#es + 1] = ARGV[i]
  elseif enter(KEYS[3], KEYS[4], ARGV[6], serial, 'p', now, now, tonumber(ARGV[7])) then
    es[#es + 1] = ARGV[i]
    taken = serial
  end
end
if #es > 0 then
  local done = redis.pcall('LPUSH', KEYS[2], unpack(es))
  if type(done) == 'table' then
    if taken and own(KEYS[3], ARGV[6], taken) then redis.call('HDEL', KEYS[3], ARGV[6]) end
    return done
  end
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3] .. string.sub(r, #ARGV[2] + 1))
redis.pcall('PUBLISH', KEYS[1], ARGV[3] .. ARGV[1])
return {now, #es, ''}
