-- Reap: moves what a dead incarnation's worker held to where it is taken again, the newest first, so that what was
-- taken first is next. An element that was in a dying process's hands once goes to the taking end, two or three times
-- to suspect, more often to dead.
-- KEYS 1 receivers  2 the doing list  3 prepare  4 suspect  5 dead  6 ids  7 cancelled  8 done  9 kept  10 running
--      11 waited
-- ARGV 1 fence and 2 age as in sweep; fence 0: of a superseded one, which may be reaped at any time  3 1: raise the
--      recovery count  4 bytes after which it stops  5 most kept in dead  6 ms kept in dead  7 the failure field for
--      dead  8 most results kept  9 most bytes of these  10.. a serial for each element
-- reply: -1 outside the fence; else to prepare, to suspect, to dead, trimmed, still there, bytes of what was moved,
--      dropped as cancelled
redis.call('ZREM', KEYS[1], '')
local now = clock()
local fence, raise, budget = tonumber(ARGV[1]), ARGV[3] == '1', tonumber(ARGV[4])
if fence > 0 and now - fence > tonumber(ARGV[2]) then return {-1} end
local k, tracked = {KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]}, redis.call('EXISTS', KEYS[6], KEYS[7]) > 0
-- ended ends a message with an id, for the reason given.
local function ended(e, id, kind)
  local m = {serial = string.sub(e, 5, 20), kind = kind, attempt = string.byte(e, 4), failure = string.sub(ARGV[7], 4),
    result = '', retain = number(e, 9), unique = 0, most = tonumber(ARGV[8]), bytes = tonumber(ARGV[9])}
  pcall(conclude, k, id, m, now)
end

local prepare, suspect, dead, dropped, n, bytes = {}, {}, {}, {}, 0, 0
while n < #ARGV - 9 and bytes < budget do
  local e = redis.call('LINDEX', KEYS[2], n)
  if not e then break end
  n = n + 1
  bytes = bytes + #e
  local recoveries = 0
  if raise and not newer(e) then
    if header(e) then
      recoveries = math.min(255, string.byte(e, 3) + 1)
      e = string.sub(e, 1, 2) .. string.char(recoveries) .. string.sub(e, 4)
    else
      recoveries = 1
      if string.sub(e, 1, 2) == '\193\0' then e = string.sub(e, 3) end
      e = '\193\16\1\0' .. ARGV[9 + n] .. '\0' .. e
    end
  end
  if recoveries < 2 then
    prepare[#prepare + 1] = back(KEYS[6], e) -- where no recovery is counted nothing else says that it was taken
  elseif recoveries < 4 then
    suspect[#suspect + 1] = e
  else
    local id = tracked and idOf(e)
    if id and gone(k, string.sub(e, 5, 20)) then
      dropped[#dropped + 1] = {e, id}
    else
      dead[#dead + 1] = string.sub(e, 1, 20) .. ARGV[7] .. string.sub(e, 21)
    end
  end
end
-- A key of the wrong type ends the script here, before anything is written; one that nothing goes to does no harm.
if #prepare > 0 then redis.call('LLEN', KEYS[3]) end
if #suspect > 0 then redis.call('LLEN', KEYS[4]) end
if #dead > 0 then redis.call('ZCARD', KEYS[5]) end
for _, e in ipairs(dead) do redis.call('ZADD', KEYS[5], 'NX', latest(KEYS[5], now), e) end
for i = #suspect, 1, -1 do redis.call('LPUSH', KEYS[4], suspect[i]) end
for _, e in ipairs(prepare) do redis.call('RPUSH', KEYS[3], e) end
if n > 0 then leaveLast(KEYS[2], n) end
if tracked then
  for _, to in ipairs({prepare, suspect, dead}) do
    for _, e in ipairs(to) do
      local id = idOf(e)
      if id and to == dead then
        ended(e, id, 'd')
      elseif id then
        pcall(wait, KEYS[6], KEYS[10], id, string.sub(e, 5, 20))
      end
    end
  end
  for _, d in ipairs(dropped) do ended(d[1], d[2], 'c') end
end
local trimmed = 0
if #dead > 0 then trimmed = trim(KEYS[5], now, tonumber(ARGV[5]), tonumber(ARGV[6])) end
return {#prepare, #suspect, #dead, trimmed, redis.call('LLEN', KEYS[2]), bytes, #dropped}
