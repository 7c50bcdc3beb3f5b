-- Settle: messages with an id leave a doing list for good: acked, cancelled or expired.
-- KEYS 1 doing  2 ids  3 cancelled  4 done  5 done.at  6 kept  7 running  8 waited
-- ARGV 1 most kept  2 most bytes kept, then for each message its id, the element, and '' where it was acked, its id is its own and it wants
--      nothing kept; else kind, attempt, ms to keep what became of it and ms its id stays taken after success, with blanks between, and a
--      line with its result
-- reply: for each 1, or 0 where it was not there, and then nothing has changed
local out, ids, serials = {}, {}, {}
local special = redis.call('EXISTS', KEYS[3], KEYS[8]) > 0
for i = 3, #ARGV, 3 do
  local id, e, how = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local n = redis.call('LREM', KEYS[1], '-1', e) -- a number would be formatted
  out[#out + 1] = n
  if n == 1 then
    local serial = string.sub(e, 5, 20)
    if how == '' and not special then
      ids[#ids + 1] = id
      serials[#serials + 1] = serial
    else
      if how == '' then how = 'a 0 0 0\n' end
      local kind, attempt, retain, unique, result = string.match(how, '^(%a) (%d+) (%d+) (%d+)\n(.*)$')
      local time = redis.call('TIME')
      local m = {serial = serial, kind = kind, attempt = tonumber(attempt), failure = '', result = result, retain = tonumber(retain),
        unique = tonumber(unique), most = tonumber(ARGV[1]), bytes = tonumber(ARGV[2])}
      if m.attempt == 0 and kind == 'a' then m.attempt = string.byte(e, 4) + 1 end
      pcall(finish, {KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]}, id, m, time[1] * 1000 + math.floor(time[2] / 1000))
    end
  end
end
if #ids > 0 then
  local unpack = unpack or table.unpack
  redis.pcall('HDEL', KEYS[2], unpack(ids))
  redis.pcall('HDEL', KEYS[7], unpack(serials))
end
return out
