-- Postpone: another due time for a message that waits or is due later; one that is past brings it to prepare. What lies in prepare
-- stays there, marked, until it is taken.
-- KEYS 1 receivers  2 ids  3 delay  4 prepare
-- ARGV 1 id  2 'in' or 'at'  3 ms from now, or ms since 1970  4 most elements that are looked through for it in delay  5 the element, where known
-- reply: the record, as it was, or '' where there is none; 1, or 0 where it lies in delay and was not found
redis.call('ZREM', KEYS[1], '')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local to = tonumber(ARGV[3])
if ARGV[2] == 'in' then to = time[1] * 1000 + math.ceil(time[2] / 1000) + to end
local r = redis.call('HGET', KEYS[2], ARGV[1])
local p = parsed(r)
if not p or p.state == 'u' then return {'', 1} end
if p.state == 'r' then return {r, 1} end
local function mark(state, flags, at)
  redis.call('HSET', KEYS[2], ARGV[1], record(p.serial, state, flags, p.attempt, at, p.expires, '', p.failure))
end
local plain = p.flags % 4
if p.state == 'd' and not flag(p, 4) then
  local e = ARGV[5]
  if not (e and redis.call('ZSCORE', KEYS[3], e)) then e = due(KEYS[3], p, tonumber(ARGV[4])) end
  if e and to > now then
    local first = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
    redis.call('ZADD', KEYS[3], string.format('%.0f', to), e)
    mark('d', plain, to)
    if to < tonumber(first[2]) or e == first[1] then redis.pcall('PUBLISH', KEYS[3], string.format('%.0f', to - now)) end
    return {r, 1}
  elseif e then
    redis.call('LPUSH', KEYS[4], e)
    redis.call('ZREM', KEYS[3], e)
    mark('p', plain, now)
    return {r, 1}
  elseif p.at > now then
    return {r, 0} -- it is among more that are due at the same time
  end
end
if to > now then mark('d', plain + 4, to) else mark('p', plain, now) end
return {r, 1}
