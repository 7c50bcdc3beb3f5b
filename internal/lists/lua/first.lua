-- first says whether the n elements that were taken first into a doing list are those from one serial to another. It looks at these two
-- alone: elements come in at the other end, so none can have come between, and whoever takes away another's takes all that he has.
local function first(list, n, from, to)
  local function serial(at) return string.sub(redis.call('LINDEX', list, at) or '', 5, 20) end
  return serial('-1') == from and serial('-' .. n) == to
end
