-- Sweep: lists the living whose leases ran out as dead, claims dead ones whose lists are to be looked at, and looks
-- after suspects and delay on the way. It judges a lease only within fence + age of the server's time, and only if
-- the caller has seen Redis for half of that lease without a break: after a pause, or a jump of the clock, all have
-- run out. The fence must lie a third of that lease behind the begin of this time, for the holder beats as often; and
-- no more than three quarters before now, as the caller's own lease may be much longer. A key of the wrong type at
-- suspect or delay keeps nobody's messages with the dead.
-- KEYS 1 receivers  2 receivers.dead  3 suspect  4 delay  5 keeper  6 ids  7 cancelled  8 done  9 kept  10 running
--      11 waited  12 leased
-- ARGV 1 fence: server's time in ms of the beat before it; 0: judge nobody  2 age in ms  3 most claims  4 name that
--      asks to be keeper, or ''  5 ms that a keeper keeps  6 server's time in ms since when the caller has seen it
--      there all the time  7 ms for which a claim keeps others away
-- reply: names and values in turns, all of them text. now and died are always there, claim as often as there is one,
--      and each other only where it is so.
--   now         the server's time in ms
--   died        number of receivers that were found dead just now
--   suspects    number of suspects
--   due         µs to the first due time in delay, negative if overdue
--   lapse       µs to the first end of a lease, negative if it is past
--   unreadable  why suspects cannot be counted, or delay or leased cannot be read; of several the last counts
--   keeper      1: the bid was accepted
--   known       receivers that are listed, living or dead, up to 16
--   unforgotten 1: more outcomes are over than one sweep forgets
--   unjudged    1: a dead one, or one whose lease ran out, may be judged only after another beat
--   again       ms until one that died lately is to be looked at again, or one whose lease ran out may be judged
--   claim       a member of receivers.dead that is left to the caller
redis.call('ZREM', KEYS[1], '')
local now, _, exact = clock()
local fence = tonumber(ARGV[1])
local judge = fence > 0 and now - fence <= tonumber(ARGV[2])

local suspects = redis.pcall('LLEN', KEYS[3])
local first = redis.pcall('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES')

-- A score further ahead than it can have been set was set before the clock was set back.
local last = redis.call('ZREVRANGE', KEYS[1], 0, 7, 'WITHSCORES')
local known = #last / 2
for i = 1, #last, 2 do
  local lease = tonumber(string.match(last[i], '%-(%d+)$') or '')
  local ends = lease and now + math.floor(lease * 4 / 3)
  if ends and tonumber(last[i + 1]) > ends then redis.call('ZADD', KEYS[1], printed(ends), last[i]) end
end
last = redis.call('ZREVRANGE', KEYS[2], 0, 7, 'WITHSCORES')
known = known + #last / 2
for i = 1, #last, 2 do
  if tonumber(last[i + 1]) > now + 600000 then redis.call('ZADD', KEYS[2], printed(now), last[i]) end
end

local leased = redis.pcall('ZRANGE', KEYS[12], 0, 0, 'WITHSCORES')
last = leased[2] and redis.call('ZREVRANGE', KEYS[12], 0, 7, 'WITHSCORES') or {}
for i = 1, #last, 2 do -- no lease is longer than a week, nor is one put off for longer
  local length = tonumber(string.match(last[i], '%-(%d+)$') or '')
  if length and tonumber(last[i + 1]) > now + 604801000 then
    redis.call('ZADD', KEYS[12], printed(now + length), last[i])
  end
end

local died, unjudged, again = 0, false, nil
local function soon(ms) again = math.min(again or ms, ms) end
-- Those that may not be judged yet, for their leases are long, hide none after them.
local passed, names = 0, nil
repeat
  names = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', printed(now), 'LIMIT', passed, judge and 64 or 1)
  for _, name in ipairs(names) do
    local lease = tonumber(string.match(name, '%-(%d+)$') or '') or 0
    local row = now - tonumber(ARGV[6])
    if judge and row < lease / 2 then
      passed = passed + 1
      soon(math.ceil(lease / 2 - row))
    elseif not judge or lease > 0 and (now - fence > lease * 3 / 4 or fence - tonumber(ARGV[6]) < lease / 3) then
      passed, unjudged = passed + 1, true
    else
      redis.call('ZADD', KEYS[2], 'NX', printed(now), name .. ' ' .. printed(now) .. ' r')
      redis.call('ZREM', KEYS[1], name)
      if redis.pcall('HGET', KEYS[5], 'name') == name then redis.pcall('DEL', KEYS[5]) end
      died = died + 1
    end
  end
until #names < 64 or died >= 64 or passed >= 1024

local claims = {}
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', printed(now), 'LIMIT', 0, 256)) do
  local death, how = string.match(member, ' (%d+) (%a)$')
  if how == 's' or how == 'c' or judge then
    claims[#claims + 1] = {member, tonumber(death or '0')}
  else
    unjudged = true
  end
end
-- Whoever has claimed one may be dead itself by then. What died long ago has been looked at before, and is in no hurry.
local later = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. printed(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 16)
for i = 1, #later, 2 do
  local death = tonumber(string.match(later[i], ' (%d+) %a$') or '0')
  if now - death < 60000 then
    soon(tonumber(later[i + 1]) - now)
    break
  end
end
-- Who goes on with a burial finds the same one first each time.
table.sort(claims, function(a, b) return a[2] > b[2] or a[2] == b[2] and a[1] < b[1] end)
local most = math.min(#claims, tonumber(ARGV[3]))

local keeper, unforgotten = false, false
if ARGV[4] ~= '' then
  -- A keeper is only for speed: what is not allowed here, or is no hash, must not keep the dead from being found.
  local held = redis.pcall('HMGET', KEYS[5], 'name', 'until')
  local ends = tonumber(held[2] or '0') or 0
  if not held.err and (held[1] == ARGV[4] or ends <= now or ends > now + tonumber(ARGV[5])) then
    local set = redis.pcall('HSET', KEYS[5], 'name', ARGV[4], 'until', printed(now + tonumber(ARGV[5])))
    keeper = type(set) ~= 'table'
  end
  if keeper and redis.call('EXISTS', KEYS[9]) == 1 then
    local ok, n = pcall(tidy, {KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]}, now, 100)
    unforgotten = ok and n == 100
  end
end

local out = {}
local function say(name, value)
  out[#out + 1], out[#out + 2] = name, type(value) == 'number' and printed(value) or value
end
say('now', now)
say('died', died)
if type(suspects) == 'table' then say('unreadable', suspects.err) else say('suspects', suspects) end
if first.err then
  say('unreadable', first.err)
elseif first[2] then
  say('due', ahead(first, exact))
end
if leased.err then
  say('unreadable', leased.err)
elseif leased[2] then
  say('lapse', ahead(leased, exact))
end
if keeper then say('keeper', 1) end
if known > 0 then say('known', known) end
if unforgotten then say('unforgotten', 1) end
if unjudged then say('unjudged', 1) end
if again then say('again', again) end
for i = 1, most do
  redis.call('ZADD', KEYS[2], printed(now + tonumber(ARGV[7])), claims[i][1])
  say('claim', claims[i][1])
end
return out
