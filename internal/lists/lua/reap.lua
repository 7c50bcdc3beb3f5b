-- Reap: moves what a dead incarnation's worker held to where it is taken again, the newest first, so that what was taken
-- first is next. An element that was in a dying process's hands once goes to the taking end, two or three times to
-- suspect, more often to dead.
-- KEYS 1 receivers  2 the doing list  3 prepare  4 suspect  5 dead
-- ARGV 1 fence and 2 age as in sweep; fence 0: of a superseded one, which may be reaped at any time  3 1: raise the recovery count
--      4 bytes after which it stops  5 most kept in dead  6 ms kept in dead  7 the failure field for dead  8.. a serial for each element
-- reply: -1 outside the fence; else to prepare, to suspect, to dead, trimmed, still there
redis.call('ZREM', KEYS[1], '')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local fence, raise, budget = tonumber(ARGV[1]), ARGV[3] == '1', tonumber(ARGV[4])
if fence > 0 and now - fence > tonumber(ARGV[2]) then return {-1} end
-- A key of the wrong type ends the script here, before anything is written.
redis.call('LLEN', KEYS[3])
redis.call('LLEN', KEYS[4])
redis.call('ZCARD', KEYS[5])

local prepare, suspect, dead, n, bytes = {}, {}, {}, 0, 0
while n < #ARGV - 7 and bytes < budget do
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
      e = '\193\16\1\0' .. ARGV[7 + n] .. '\0' .. e
    end
  end
  if recoveries < 2 then
    prepare[#prepare + 1] = e
  elseif recoveries < 4 then
    suspect[#suspect + 1] = e
  else
    dead[#dead + 1] = string.sub(e, 1, 20) .. ARGV[7] .. string.sub(e, 21)
  end
end
for _, e in ipairs(dead) do redis.call('ZADD', KEYS[5], 'NX', string.format('%.0f', now), e) end
for i = #suspect, 1, -1 do redis.call('LPUSH', KEYS[4], suspect[i]) end
for _, e in ipairs(prepare) do redis.call('RPUSH', KEYS[3], e) end
if n > 0 then redis.call('LTRIM', KEYS[2], n, -1) end
local trimmed = 0
if #dead > 0 then trimmed = trim(KEYS[5], now, tonumber(ARGV[5]), tonumber(ARGV[6])) end
return {#prepare, #suspect, #dead, trimmed, redis.call('LLEN', KEYS[2])}
