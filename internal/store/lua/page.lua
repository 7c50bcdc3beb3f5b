-- Page: some elements of a set, in the order of their scores, up to so many bytes, and one at least.
-- KEYS 1 delay or dead
-- ARGV 1 lowest score  2 highest  3 elements to pass over  4 most elements  5 bytes after which it stops
-- reply: each element and its score in turns
local out = {}
local from, most, budget = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local n, bytes, step = 0, 1, 1
while n < most and bytes < budget do
  local es = redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[1], ARGV[2], 'WITHSCORES', 'LIMIT', from + n,
    math.min(step, most - n))
  if #es == 0 then break end
  for i = 1, #es, 2 do
    out[#out + 1], out[#out + 2] = es[i], es[i + 1]
    n, bytes = n + 1, bytes + #es[i]
  end
  step = math.max(1, math.min(#es * 2, math.floor((budget - bytes) * n / bytes))) -- #es is twice their number
end
return out
