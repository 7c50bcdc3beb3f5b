-- Tally: adds what one process has counted since its last flush to what the channel keeps, by minute, by ten minutes
-- and by day of the server's clock. Each is added at once, so that nobody adds up later. A flush that is sent again
-- changes nothing: the last number of each process is kept.
-- KEYS 1 counts  2 prepare  3 suspect  4 delay  5 dead: how many lie there is noted with each record
-- ARGV 1 the process  2 the flush's number  3 sums: of each its number, a byte, and the sum as a varint
--      4 ms for which a channel that is idle keeps its counts  5 most bytes of these
-- reply: 1; 0 where the flush was counted before
--
-- The hash has chunks: m, t or d with a number, each of some records, the newest first. A record is its place in the
-- chunk (1 byte), its length (varint), and sums. It also has p with a process: its last number, and the minute of that;
-- and b: the bytes of all but the latest chunks.
local byte, char, floor = string.byte, string.char, math.floor
local minute = floor(clock() / 60000)
local process = 'p' .. ARGV[1]
local before = redis.call('HGET', KEYS[1], process)
if before and tonumber(string.match(before, '^(%d+)')) >= tonumber(ARGV[2]) then return 0 end

local function varint(s, p)
  local n, unit = 0, 1
  while true do
    local b = byte(s, p)
    p = p + 1
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

-- add adds sums, which are the bytes of s from p to last.
local function add(sums, s, p, last)
  while p <= last do
    local number, n = byte(s, p)
    n, p = varint(s, p + 1)
    sums[number] = (sums[number] or 0) + n
  end
end

local new, lying = {}, {}
add(new, ARGV[3], 1, #ARGV[3])
local function many(command, key)
  local n = redis.pcall(command, key)
  return type(n) == 'number' and n or 0
end
lying[13] = many('LLEN', KEYS[2]) + many('LLEN', KEYS[3])
lying[14], lying[15] = many('ZCARD', KEYS[4]), many('ZCARD', KEYS[5])

-- A chunk of each: its letter, the minutes of a record, the records of a chunk, and the chunks that are kept.
local forms = {{'m', 1, 30, 7}, {'t', 10, 24, 13}, {'d', 1440, 30, 14}}
local begun, bytes = false, tonumber(redis.call('HGET', KEYS[1], 'b') or '0')
for _, f in ipairs(forms) do
  local n = floor(minute / f[2])
  local name, place = f[1] .. printed(floor(n / f[3])), n % f[3]
  local chunk = redis.call('HGET', KEYS[1], name)
  local sums, rest = {}, chunk or ''
  for number, v in pairs(new) do sums[number] = v end
  if chunk and byte(chunk, 1) >= place then -- more where the clock was put back
    local length, p = varint(chunk, 2)
    place = byte(chunk, 1)
    add(sums, chunk, p, p + length - 1)
    rest = string.sub(chunk, p + length)
  end
  for number, n in pairs(lying) do sums[number] = n > 0 and n or nil end
  local numbers, text = {}, {}
  for number in pairs(sums) do numbers[#numbers + 1] = number end
  table.sort(numbers)
  for i, number in ipairs(numbers) do text[i] = char(number) .. printed7(sums[number]) end
  text = table.concat(text)
  f.newest = char(place) .. printed7(#text) .. text
  redis.call('HSET', KEYS[1], name, f.newest .. rest)
  f.name, f.bytes, begun, bytes = name, #f.newest + #rest, begun or not chunk, bytes + #f.newest + #rest
end
redis.call('HSET', KEYS[1], process, ARGV[2] .. ' ' .. printed(minute))
if not begun and bytes <= tonumber(ARGV[5]) then return 1 end

-- What is old goes when a chunk begins; and of what is too much the oldest, by minute, by ten minutes and by day.
local each, most = 64, 200 -- what a field costs beside its value, and the processes that are kept
local chunks, processes, total = {m = {}, t = {}, d = {}}, {}, 0
for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do
  local letter, n = string.sub(name, 1, 1), tonumber(string.sub(name, 2))
  if letter == 'p' then
    local at = tonumber(string.match(redis.call('HGET', KEYS[1], name), ' (%d+)$') or '0')
    processes[#processes + 1] = {name = name, at = at}
  elseif chunks[letter] and n then
    chunks[letter][#chunks[letter] + 1] = n
    total = total + each + redis.call('HSTRLEN', KEYS[1], name)
  end
end
table.sort(processes, function(a, b) return a.at > b.at end)
for i, p in ipairs(processes) do
  if i > most or p.at < minute - 120 then redis.call('HDEL', KEYS[1], p.name) else total = total + each + #p.name end
end
local function drop(name)
  total = total - each - redis.call('HSTRLEN', KEYS[1], name)
  redis.call('HDEL', KEYS[1], name)
end
for _, f in ipairs(forms) do
  local of, oldest = chunks[f[1]], floor(minute / f[2] / f[3]) - f[4]
  table.sort(of)
  for _, n in ipairs(of) do
    local name = f[1] .. printed(n)
    if name ~= f.name and (n <= oldest or total > tonumber(ARGV[5])) then drop(name) end
  end
end
for _, f in ipairs(forms) do
  if total > tonumber(ARGV[5]) then -- the latest chunk alone is too large
    total, f.bytes = total - f.bytes + #f.newest, #f.newest
    redis.call('HSET', KEYS[1], f.name, f.newest)
  end
  total = total - f.bytes
end
redis.call('HSET', KEYS[1], 'b', printed(total))
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
