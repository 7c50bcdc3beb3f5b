-- Start: what a worker has taken is about to be handled: of messages with an id or a time of their own.
-- KEYS 1 receivers  2 ids  3 cancelled
-- ARGV 1 the holder, then for each message its id or '', serial, ms until which it is to be taken or 0, number of this attempt, 1 if it was
--      surely taken before
-- reply: the server's time in ms, then for each 0 to be handled, 1 cancelled, 2 expired, else the ms until which it was put off
redis.call('ZREM', KEYS[1], '')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local any = redis.call('EXISTS', KEYS[3]) == 1
local out = {now}
for i = 2, #ARGV, 5 do
  local id, serial, expires, attempt = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  local verdict = 0
  local p = id ~= '' and own(KEYS[2], id, serial)
  if p then -- it knows best; without one the id is another's by now
    expires = p.expires
  elseif id == '' and ARGV[i + 4] == '1' then
    expires = 0
  end
  if any and redis.pcall('SISMEMBER', KEYS[3], serial) == 1 or p and flag(p, 2) then
    verdict = 1
  elseif p and flag(p, 4) and p.at > now then
    verdict = p.at
  elseif expires > 0 and expires <= now then
    verdict = 2
  elseif p and p.state ~= 'u' then -- one that is over was asked for by a connection that broke
    p.flags = p.flags % 2
    write(KEYS[2], id, p, 'r', attempt, now, ARGV[1], p.failure)
  end
  out[#out + 1] = verdict
end
return out
