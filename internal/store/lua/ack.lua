-- Ack: what was taken first into a doing list leaves it for good.
-- KEYS 1 doing
-- ARGV 1 n: how many they are  2 counts and serial of the first  3 of the last
-- reply: 1, or -1 where these are not the first n, and then nothing has changed
if not first(KEYS[1], ARGV[1], ARGV[2], ARGV[3]) then return -1 end
leaveFirst(KEYS[1], ARGV[1])
return 1
