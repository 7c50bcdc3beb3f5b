-- Unlease: forgets leases of which nothing is left. Without it they are forgotten at their end.
-- KEYS 1 leased  2.. the leases' lists
-- ARGV names of the leases
-- reply: number forgotten
local n = 0
for i = 1, #ARGV do
  if redis.call('EXISTS', KEYS[1 + i]) == 0 then n = n + redis.call('ZREM', KEYS[1], ARGV[i]) end
end
return n
