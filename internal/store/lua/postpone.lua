-- Postpone: another due time for a message that is due later; one that is past brings it to prepare. What waits to be
-- taken stays where it is.
-- KEYS 1 receivers  2 ids  3 delay  4 prepare  5 running
-- ARGV 1 id; '' where it has none: then 6 is its element  2 'in' or 'at'  3 ms from now, or ms since 1970
--      4 most elements that are looked through for it in delay  5 serial
--      6 the element, where known; '' where it was looked for and is not there
-- reply: the record, as it was, or '' where that message has none; then 1; 0 where it lies in delay and was not
--      found, or where it has no id and is not in delay; 2 where a worker has it; 3 where it waits to be taken already,
--      and the new time is ahead
redis.call('ZREM', KEYS[1], '')
local now, soonest = clock()
local to = tonumber(ARGV[3])
if ARGV[2] == 'in' then to = soonest + to end

-- move gives an element of delay its new time; past brings it to prepare.
local function move(e)
  if to > now then
    local first = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
    redis.call('ZADD', KEYS[3], printed(to), e)
    if to < tonumber(first[2]) or e == first[1] then redis.pcall('PUBLISH', KEYS[3], printed(to - now)) end
  else
    redis.call('LPUSH', KEYS[4], e)
    redis.call('ZREM', KEYS[3], e)
  end
end

if ARGV[1] == '' then
  if not redis.call('ZSCORE', KEYS[3], ARGV[6]) then return {'', 0} end
  move(ARGV[6])
  return {'', 1}
end
local r = redis.call('HGET', KEYS[2], ARGV[1])
local p = own(KEYS[2], ARGV[1], ARGV[5])
if not p or p.state == 'u' or expired(p, KEYS[5], now) then return {'', 1} end
if redis.call('HEXISTS', KEYS[5], p.serial) == 1 then return {r, 2} end
if p.state == 'd' then
  local e = ARGV[6]
  if not (e and e ~= '' and redis.call('ZSCORE', KEYS[3], e)) then e = due(KEYS[3], p, tonumber(ARGV[4])) end
  if e then
    move(e)
    local state, at = 'p', now
    if to > now then state, at = 'd', to end
    redis.call('HSET', KEYS[2], ARGV[1], record(p.serial, state, p.attempts, at, p.expires, p.failure))
    return {r, 1}
  elseif p.at > now and ARGV[6] ~= '' then
    return {r, 0} -- it is among more that are due at the same time
  end
end
return {r, to > now and 3 or 1} -- what waits is due already
