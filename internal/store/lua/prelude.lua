-- Put before the scripts. Two do without: ack, which runs most often, and unlease.
local unpack = unpack or table.unpack

-- clock is the server's time in ms, and the next whole ms: a message that counts from that is never due before its
-- time. The third is the time in ms with its fraction.
local function clock()
  local time = redis.call('TIME')
  local exact = time[1] * 1000 + time[2] / 1000
  return math.floor(exact), math.ceil(exact), exact
end

-- printed is a time or a duration in ms as a command takes it; Lua itself would round it.
local function printed(ms) return string.format('%.0f', ms) end

-- earliest says whether a due time comes before all that delay had: first is what ZRANGE 0 0 WITHSCORES gave before
-- it was added.
local function earliest(first, to) return not first[2] or to < tonumber(first[2]) end

-- hint publishes a due time if it is the earliest, as ms from now, so that no two clocks are compared.
local function hint(delay, first, to, now)
  if earliest(first, to) then redis.pcall('PUBLISH', delay, printed(to - now)) end
end

-- ahead is the score of the first of a sorted set as text, in µs from now, which is in ms; empty where there is none.
-- Others may put any score there: it is reached with the next whole ms, for scripts compare with whole ones.
local function ahead(first, now)
  if not first[2] then return '' end
  return printed(1000 * math.max(-1e15, math.min(1e15, math.ceil(tonumber(first[2])) - now)))
end
