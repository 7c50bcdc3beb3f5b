-- Once: enqueues messages for a key, and notes in the key's row that it has. Where the row is there it enqueues nothing
-- and tells the row. So it may be sent again, by anybody and at any time while the row is kept. It does not open with a
-- freeing write: a full Redis takes no new messages.
-- The row is a byte with the length of the note, the note, and for each message its serial; 16 zero bytes for one that
-- was refused.
-- KEYS 1 the key's row  2 prepare  3 delay  4 ids  5 running
-- ARGV 1 ms for which the row is kept  2 the note, up to 255 bytes  3 'always': the row is written also where all were
--      refused; else ''; then for each message 'now', 'in' or 'at', ms from now, or ms since 1970, its id or '', ms
--      after which it expires or 0, the element; negative ms may end before it is due
-- reply: 1, then for each message 1, or the record of the message that has its id; or 0 and the row that was there;
--      EXPIRES where one would expire before it is due
local row = redis.call('GET', KEYS[1])
if row then return {0, row} end
redis.call('LLEN', KEYS[2]) -- a key of the wrong type ends the script here
redis.call('ZCARD', KEYS[3])
redis.call('HLEN', KEYS[4])

local now, soonest = clock()
local dues = {}
for i = 4, #ARGV, 5 do
  local due, ttl = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 3])
  if ARGV[i] == 'in' then due = soonest + due end
  if ARGV[i] == 'now' or due <= now then
    due = now
  elseif ttl > 0 and now + ttl <= due then
    return redis.error_reply('EXPIRES before it is due')
  end
  dues[i] = due
end

local out, es, later, taken, serials, any = {1}, {}, {}, {}, {}, false

local function undo(err)
  for id, serial in pairs(taken) do
    if own(KEYS[4], id, serial) then redis.call('HDEL', KEYS[4], id) end
  end
  return err
end

for i = 4, #ARGV, 5 do
  local id, ttl, e, due = ARGV[i + 2], tonumber(ARGV[i + 3]), ARGV[i + 4], dues[i]
  local serial, expires, state = string.sub(e, 5, 20), 0, due > now and 'd' or 'p'
  if ttl ~= 0 then
    expires = now + math.abs(ttl)
    e = stamp(e, expires)
  end
  local ok, has = true, nil
  if id ~= '' then ok, has = enter(KEYS[4], KEYS[5], id, serial, state, now, due, expires) end
  if not ok then
    out[#out + 1], serials[#serials + 1] = has, string.rep('\0', 16)
  else
    if id ~= '' then taken[id] = serial end
    if state == 'p' then es[#es + 1] = e else later[#later + 1] = {due, e} end
    out[#out + 1], serials[#serials + 1], any = 1, serial, true
  end
end
if not any and ARGV[3] == '' then return out end
if #es > 0 then -- the first write but for ids: where it is refused, nothing was enqueued
  local done = redis.pcall('LPUSH', KEYS[2], unpack(es))
  if type(done) == 'table' then return undo(done) end
end
for _, l in ipairs(later) do
  local first = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
  local done = redis.pcall('ZADD', KEYS[3], printed(l[1]), l[2])
  if type(done) == 'table' then return undo(done) end
  hint(KEYS[3], first, l[1], now)
end
redis.call('SET', KEYS[1], string.char(#ARGV[2]) .. ARGV[2] .. table.concat(serials), 'PX', ARGV[1])
return out
