-- Status: what is known of an id, at one moment.
-- KEYS 1 ids  2 running  3 cancelled  4 done  5 delay
-- ARGV 1 id
-- reply: the server's time in ms; its record or ''; who has it or ''; 1 if cancelled; what is kept of it or ''; the
--      earliest due time in delay in ms, or ''
local now = clock()
local r = redis.call('HGET', KEYS[1], ARGV[1])
local holder, cancelled = nil, 0
if r then
  holder = redis.call('HGET', KEYS[2], string.sub(r, 1, 16))
  cancelled = redis.pcall('SISMEMBER', KEYS[3], string.sub(r, 1, 16)) == 1 and 1 or 0
end
local kept = redis.pcall('HGET', KEYS[4], ARGV[1])
kept = type(kept) == 'string' and kept or ''
local first = redis.pcall('ZRANGE', KEYS[5], 0, 0, 'WITHSCORES')
local due = first[2] and printed(tonumber(first[2])) or ''
return {now, r or '', holder or '', cancelled, kept, due}
