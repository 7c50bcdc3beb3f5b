-- Forget: an operator's purge of what became of messages. It drops those that ended first; what ends meanwhile stays.
-- KEYS 1 done  2 kept
-- ARGV 1 most that are dropped
-- reply: number dropped, number left
local count = outcomes(KEYS[2])
local n = math.min(tonumber(ARGV[1]), count)
for i = 0, n - 1 do dropOldest({'', '', KEYS[1], KEYS[2]}, count - i) end
if n == count then redis.call('DEL', KEYS[1]) end -- and what a fault has left there
return {n, count - n}
