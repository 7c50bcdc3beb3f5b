-- Enqueue later: adds elements to delay, due at one time, and tells of a new earliest one, in ms from now. It does
-- not open with a freeing write: a full Redis takes no new messages. Sent again, it adds nothing that is still there.
-- KEYS 1 delay
-- ARGV 1 'in', 'at', or 'again' (at, but only while that is ahead)  2 ms from now, or ms since 1970  3.. elements
-- reply: due time in ms; 0 if it is past where that matters
local now, soonest = clock()
local due = tonumber(ARGV[2])
if ARGV[1] == 'in' then due = soonest + due end
if ARGV[1] == 'again' and due <= now then return 0 end
local score = printed(due)
local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
local args = {}
for i = 3, #ARGV do
  args[#args + 1] = score
  args[#args + 1] = ARGV[i]
end
redis.call('ZADD', KEYS[1], 'NX', unpack(args))
hint(KEYS[1], first, due, now)
return due
