-- first says whether the n elements that were taken first into a doing list are those from one to another, by their
-- counts and their serials. It looks at these two alone: elements come in at the other end, where a reaper also takes
-- them away, and what it has taken was counted when it comes back. What is taken out and comes back uncounted was its
-- worker's to put back, which asks for it no more.
local function first(doing, n, from, to)
  local function head(at) return string.sub(redis.call('LINDEX', doing, at) or '', 3, 20) end
  return head('-1') == from and head('-' .. n) == to
end
