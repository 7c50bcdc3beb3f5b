-- Settle: messages with an id leave a doing list for good: acked, cancelled or expired.
-- KEYS 1 doing  2 ids  3 cancelled  4 done  5 kept  6 running  7 waited; 8.. with n = 0: the list of each message,
--      where they are not all in doing
-- ARGV 1 most kept  2 most bytes kept  3 n: 0, or how many; then one of two forms.
--   n > 0: the n that were taken first are acked; each has its own id, and none wants anything kept. Then follow counts
--      and serial of the first, the same of the last, their ids, and their serials.
--   n = 0: for each message its id, the element, and how it ends. '' is an ack that wants nothing kept. Else: kind,
--      attempt, ms to keep what became of it and ms its id stays taken after success, with blanks between, and a line
--      with its result.
-- reply: n > 0: 1; -1 where these are not the first, and then nothing has changed
--        n = 0: for each message 1; 0 where it was not there, and then nothing has changed
-- What asked for nothing to be kept is looked at one by one only where somebody waits, or something was cancelled.
local special = redis.call('EXISTS', KEYS[3], KEYS[7]) > 0

-- plain is the end of a message that is acked and asked for nothing: its attempt is read from the element.
local plain = 'a 0 0 0\n'

-- over ends a message that is out of the list.
local function over(id, e, how)
  local kind, attempt, retain, unique, result = string.match(how, '^(%a) (%d+) (%d+) (%d+)\n(.*)$')
  local m = {serial = string.sub(e, 5, 20), kind = kind, attempt = tonumber(attempt), failure = '', result = result,
    retain = tonumber(retain), unique = tonumber(unique), most = tonumber(ARGV[1]), bytes = tonumber(ARGV[2])}
  if m.attempt == 0 and kind == 'a' then m.attempt = string.byte(e, 4) + 1 end
  pcall(conclude, {KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]}, id, m, (clock()))
end

local n = tonumber(ARGV[3])
if n > 0 then
  if not first(KEYS[1], n, ARGV[4], ARGV[5]) then return -1 end
  local ids, es = {}, {}
  if special then
    for i = 6, 5 + n do ids[ARGV[n + i]] = ARGV[i] end
    es = redis.call('LRANGE', KEYS[1], -n, -1)
    for _, e in ipairs(es) do
      if not ids[string.sub(e, 5, 20)] then return -1 end
    end
  end
  leaveFirst(KEYS[1], n)
  for i = #es, 1, -1 do over(ids[string.sub(es[i], 5, 20)], es[i], plain) end
  if not special then
    redis.pcall('HDEL', KEYS[2], unpack(ARGV, 6, 5 + n))
    redis.pcall('HDEL', KEYS[6], unpack(ARGV, 6 + n, 5 + 2 * n))
  end
  return 1
end

local out, ids, serials = {}, {}, {}
for i = 4, #ARGV, 3 do
  local id, e, how = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local n = leave(KEYS[8] and KEYS[7 + (i - 1) / 3] or KEYS[1], e, '-1')
  -- A list that is not shunt's is its message's alone; what else is refused, is refused to all.
  if type(n) == 'table' and not (KEYS[8] and string.find(n.err, '^WRONGTYPE')) then return n end
  out[#out + 1] = n
  if n == 1 and (special or how ~= '') then
    if how == '' then how = plain end
    over(id, e, how)
  elseif n == 1 then
    ids[#ids + 1] = id
    serials[#serials + 1] = string.sub(e, 5, 20)
  end
end
if #ids > 0 then
  redis.pcall('HDEL', KEYS[2], unpack(ids))
  redis.pcall('HDEL', KEYS[6], unpack(serials))
end
return out
