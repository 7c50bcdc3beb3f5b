-- Tally: adds what one process has counted since its last flush to what the channel keeps, by minute, by ten minutes
-- and by day of the server's clock. Each is added at once, so that nobody adds up later. A flush that is sent again
-- changes nothing: the last number of each process is kept.
-- KEYS 1 counts  2 prepare  3 suspect  4 delay  5 dead: how many lie there is noted with each record
-- ARGV 1 the process  2 the flush's number  3 sums: of each its number, a byte, and the sum as a varint
--      4 ms for which a channel that is idle keeps its counts  5 most bytes of old records: m, t and d, with spaces
-- reply: 1; 0 where the flush was counted before
--
-- The hash has the record that grows as m, t or d: the number of its minute, ten minutes or day, as a varint, and sums.
-- Old records are in chunks, m, t or d with a number: of each its place in the chunk (1 byte), its length (varint), and
-- sums. mkept, tkept and dkept are the first whose record is kept, where older ones were dropped. p with a process is
-- its last number, and the minute of that.
local byte, char, floor, sub = string.byte, string.char, math.floor, string.sub
local minute = floor(clock() / 60000)
local process = 'p' .. ARGV[1]
local before = redis.call('HGET', KEYS[1], process)
if before and tonumber(string.match(before, '^%d+') or '0') >= tonumber(ARGV[2]) then return 0 end

local function varint(s, p)
  local n, unit = 0, 1
  while true do
    local b = byte(s, p)
    p = p + 1
    if unit > 2 ^ 46 then error('that is no sum') end
    n = n + b % 128 * unit
    if b < 128 then return n, p end
    unit = unit * 128
  end
end

local function printed7(n)
  local s = ''
  while n > 127 do
    s = s .. char(n % 128 + 128)
    n = floor(n / 128)
  end
  return s .. char(n)
end

-- add adds sums, which are the bytes of s from p on.
local function add(sums, s, p)
  while p <= #s do
    local number, n = byte(s, p)
    n, p = varint(s, p + 1)
    sums[number] = (sums[number] or 0) + n
  end
end

local function text(sums)
  local numbers, all = {}, {}
  for number, n in pairs(sums) do
    if n > 0 then numbers[#numbers + 1] = number end
  end
  table.sort(numbers)
  for i, number in ipairs(numbers) do all[i] = char(number) .. printed7(sums[number]) end
  return table.concat(all)
end

local function many(command, key)
  local n = redis.pcall(command, key)
  return type(n) == 'number' and n or 0
end
local waiting = many('LLEN', KEYS[2]) + many('LLEN', KEYS[3])
local delayed, dead = many('ZCARD', KEYS[4]), many('ZCARD', KEYS[5])

-- Of each form: its letter, the minutes of a record, the records of a chunk, and the chunks that are kept.
local forms = {{'m', 1, 20, 10}, {'t', 10, 18, 17}, {'d', 1440, 20, 19}}
local far = 2 -- records or chunks; what lies further ahead was written before the clock was put right
local begins = redis.call('HLEN', KEYS[1]) > 140
for _, f in ipairs(forms) do
  local now = floor(minute / f[2])
  local current, sums, at, p = redis.call('HGET', KEYS[1], f[1]), {}, nil, nil
  local read = current and pcall(function()
    at, p = varint(current, 1)
    add(sums, current, p)
  end) -- what is no record is no loss
  if read and at >= now and at <= now + far then -- later where the clock was put back
    now = at
  else
    if read then
      local chunk, old = f[1] .. printed(floor(at / f[3])), sub(current, p)
      local others = redis.call('HGET', KEYS[1], chunk) or ''
      redis.call('HSET', KEYS[1], chunk, others .. char(at % f[3]) .. printed7(#old) .. old)
    end
    sums, begins = {}, true
  end
  add(sums, ARGV[3], 1)
  sums[13], sums[14], sums[15] = waiting, delayed, dead
  redis.call('HSET', KEYS[1], f[1], printed7(now) .. text(sums))
  f.now, f.newest = now, floor(now / f[3])
end
redis.call('HSET', KEYS[1], process, ARGV[2] .. ' ' .. printed(minute))
if not begins then return 1 end

-- With each minute what is old goes, and of each form the oldest of what is too much.
local chunks, processes = {m = {}, t = {}, d = {}}, {}
for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do
  local letter, n = sub(name, 1, 1), tonumber(sub(name, 2))
  if letter == 'p' and name ~= process then
    local at = tonumber(string.match(redis.call('HGET', KEYS[1], name), ' (%d+)$') or '0')
    processes[#processes + 1] = {name, at}
  elseif chunks[letter] and n then
    table.insert(chunks[letter], n)
  elseif letter ~= 'p' and not chunks[name] and not chunks[string.match(name, '^(.)kept$')] then
    redis.call('HDEL', KEYS[1], name) -- it is not shunt's
  end
end
table.sort(processes, function(a, b) return a[2] > b[2] end)
for i, p in ipairs(processes) do
  if i >= 60 or p[2] < minute - 120 then redis.call('HDEL', KEYS[1], p[1]) end
end
local most = {string.match(ARGV[5], '(%d+) (%d+) (%d+)')}
for i, f in ipairs(forms) do
  local bytes, kept = 0, nil
  table.sort(chunks[f[1]], function(a, b) return a > b end)
  for _, n in ipairs(chunks[f[1]]) do
    local name = f[1] .. printed(n)
    bytes = bytes + 64 + redis.call('HSTRLEN', KEYS[1], name)
    if n <= f.newest - f[4] or n > f.newest + far or bytes > tonumber(most[i]) then
      redis.call('HDEL', KEYS[1], name)
      if n <= f.newest then kept = kept or (n + 1) * f[3] end
    end
  end
  -- where the clock was put back since, what is counted now is kept
  kept = math.min(kept or tonumber(redis.call('HGET', KEYS[1], f[1] .. 'kept') or '') or -1, f.now)
  if kept >= 0 then redis.call('HSET', KEYS[1], f[1] .. 'kept', printed(kept)) end
end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
