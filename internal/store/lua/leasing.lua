-- What the takes under a lease have in common.

-- headed gives an element that was just taken into a list, with a header if it was bare, so that no two that a lease
-- holds are the same.
local function headed(list, e, serial)
  if header(e) or newer(e) then return e end
  local payload = string.sub(e, 1, 2) == '\193\0' and string.sub(e, 3) or e
  local new = '\193\16\0\0' .. serial .. '\0' .. payload
  redis.call('LPUSH', list, new)
  redis.call('LREM', list, '1', e)
  return new
end

-- knows gives what is known of the ids of those elements that have one, by their places, and notes who has their
-- messages, unless these have expired by past: holder gives the holder of the ith, and ms is the puller's clock. An
-- index that cannot be read holds up none.
local function knows(es, holder, ms, past, ids, running, cancelled)
  local known, named, places, marks = {}, {}, {}, {}
  for i, e in ipairs(es) do
    local id = string.byte(e, 21) ~= 0 and idOf(e) -- most have no field at all
    if id then named[#named + 1], places[#places + 1] = id, i end
  end
  if #named == 0 then return known end
  local records = redis.pcall('HMGET', ids, unpack(named))
  local some = redis.pcall('EXISTS', cancelled) == 1
  for n, i in ipairs(places) do
    local r, e = records[n] or '', es[i]
    local serial, over = string.sub(e, 5, 20), '0'
    local p = string.sub(r, 1, 16) == serial and parsed(r)
    if not (p and p.expires > 0 and p.expires <= past) then
      marks[#marks + 1] = serial
      marks[#marks + 1] = holder(i) .. string.format(' %d ', string.byte(e, 4) + 1) .. ms
    end
    if some and redis.pcall('SISMEMBER', cancelled, serial) == 1 then over = '1' end
    known[i] = over .. r
  end
  if #marks > 0 then redis.pcall('HSET', running, unpack(marks)) end
  return known
end

-- tell has the keeper know of leases that just began, by their names, unless another one ends before them, or the
-- keeper looks within so many ms by itself. Where one has been over for a second nobody knew, so the keeper is told.
local function tell(leased, delay, keeper, names, now, looks)
  local first = redis.call('ZRANGE', leased, 0, 0, 'WITHSCORES')
  local left = tonumber(first[2]) - now
  if not names[first[1]] and left > -1000 then return end
  local held = redis.pcall('HGET', keeper, 'until')
  local kept = type(held) == 'string' and tonumber(held) or 0
  if left <= looks or kept <= now then redis.pcall('PUBLISH', delay, printed(math.max(0, left))) end
end
