-- Lapse: ends a lease that is over. Its elements count an attempt and go where promoted ones go; those whose attempts
-- are used up go to dead. After an absence of Redis every holder shall have time to settle: a grace of a quarter of the
-- lease, at most 5 s. So a caller that has not had this Redis in sight for that long puts the end off by the grace,
-- once; such an end is .5 behind a whole number. The end of a lease that has lost a part already is .25 behind one.
-- KEYS 1 receivers  2 leased  3 the lease's list, a doing list  4 prepare  5 dead  6 ids  7 cancelled  8 done  9 kept
--      10 running  11 waited
-- ARGV 1 name of the lease  2 its ms  3 most attempts, 0: no bound  4 fence and 5 age as in sweep  6 since: from when
--      on the caller has had Redis in sight  7 bytes after which it stops  8 most kept in dead  9 ms kept in dead
--      10 the failure field for dead  11 most results kept  12 most bytes of these  13 most elements
-- reply: -1 where it is not over, or was put off; else to prepare, to dead, dropped as cancelled, trimmed, still there
redis.call('ZREM', KEYS[1], '')
local now = clock()
local length, most = tonumber(ARGV[2]), tonumber(ARGV[3])
local ends = tonumber(redis.call('ZSCORE', KEYS[2], ARGV[1]) or '0')
if now < ends then return {-1} end
local grace, fence = math.min(length / 4, 5000), tonumber(ARGV[4])
local seen = fence > 0 and now - fence <= tonumber(ARGV[5]) and now - tonumber(ARGV[6]) >= grace
if not seen and ends > 0 and ends % 1 == 0 then
  redis.call('ZADD', KEYS[2], printed(now + math.ceil(grace)) .. '.5', ARGV[1])
  return {-1}
end
local k, tracked = {KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]}, redis.call('EXISTS', KEYS[6], KEYS[7]) > 0

-- over ends a message with an id.
local function over(e, id, kind, attempt)
  local m = {serial = string.sub(e, 5, 20), kind = kind, attempt = attempt, failure = string.sub(ARGV[10], 4),
    result = '', retain = number(e, 9), unique = 0, most = tonumber(ARGV[11]), bytes = tonumber(ARGV[12])}
  pcall(conclude, k, id, m, now)
end

-- waits has the record of an id say that its message waits again, an attempt later.
local function waits(e, id, attempt)
  local serial = string.sub(e, 5, 20)
  redis.pcall('HDEL', KEYS[10], serial)
  local p = own(KEYS[6], id, serial)
  if p then redis.pcall('HSET', KEYS[6], id, record(serial, 'p', attempt, now, 0, 'shunt: its lease has ended')) end
end

-- bound is the most attempts of an element: its own, else the lease's; 0: none.
local function bound(e)
  local own = field(e, 6, 8, 8)
  if not own then return most end
  local n = number(e, 6)
  return n > 255 and 0 or n -- negative ones are larger
end

local prepare, dead, dropped, n, bytes = {}, {}, {}, 0, 0
while n < tonumber(ARGV[13]) and bytes < tonumber(ARGV[7]) do
  local e = redis.call('LINDEX', KEYS[3], -1 - n)
  if not e then break end
  n, bytes = n + 1, bytes + #e
  local attempt = 0 -- of what only a newer shunt may rewrite
  if header(e) then
    attempt = math.min(255, string.byte(e, 4) + 1)
    e = string.sub(e, 1, 3) .. string.char(attempt) .. string.sub(e, 5)
  end
  local id, m = tracked and attempt > 0 and idOf(e), {e = e, attempt = attempt}
  m.id = id or nil
  if id and gone(k, string.sub(e, 5, 20)) then
    dropped[#dropped + 1] = m
  elseif attempt > 0 and bound(e) > 0 and attempt >= bound(e) then
    m.e = string.sub(e, 1, 20) .. ARGV[10] .. string.sub(e, 21)
    dead[#dead + 1] = m
  else
    prepare[#prepare + 1] = m
  end
end
-- A key of the wrong type ends the script here, before anything is written; one that nothing goes to does no harm.
if #prepare > 0 then redis.call('LLEN', KEYS[4]) end
if #dead > 0 then redis.call('ZCARD', KEYS[5]) end
for _, m in ipairs(dead) do redis.call('ZADD', KEYS[5], 'NX', latest(KEYS[5], now), m.e) end
for _, m in ipairs(prepare) do redis.call('LPUSH', KEYS[4], m.e) end
if n > 0 then leaveFirst(KEYS[3], n) end
for _, m in ipairs(prepare) do if m.id then waits(m.e, m.id, m.attempt) end end
for _, m in ipairs(dead) do if m.id then over(m.e, m.id, 'd', m.attempt) end end
for _, m in ipairs(dropped) do over(m.e, m.id, 'c', m.attempt - 1) end
local trimmed, left = 0, redis.call('LLEN', KEYS[3])
if #dead > 0 then trimmed = trim(KEYS[5], now, tonumber(ARGV[8]), tonumber(ARGV[9])) end
if left == 0 then
  redis.call('ZREM', KEYS[2], ARGV[1])
else -- it is over for all of them, so the end that extend knows is not put off any more
  redis.call('ZADD', KEYS[2], 'XX', printed(math.floor(ends) - 1) .. '.25', ARGV[1])
end
return {#prepare, #dead, #dropped, trimmed, left}
