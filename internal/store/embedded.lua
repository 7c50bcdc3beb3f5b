-- Left: what is left in some channels, as seen at one moment. Asking for one list after another might miss messages
-- that move meanwhile, and bring forward those due after them. It can also bring all due times forward, by as much as
-- makes the first one due now, and then it wakes the receiver. Done again it changes nothing. For the test kit's
-- embedded Redis alone: it looks at all keys.
-- ARGV 1 now in ms  2 1: bring due times forward, if only delayed messages are left; else 0  3.. channels
-- reply: 0 nothing, 1 something that is ready, suspect or being handled, 2 only delayed messages
local first
local doing = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  doing[string.match(key, '^(.*)doing%.[^.]*%.[^.]*$') or ''] = true
end
for i = 3, #ARGV do
  local p = '{' .. ARGV[i] .. '}.'
  if doing[p] or redis.call('EXISTS', p .. 'prepare', p .. 'suspect') > 0 then return 1 end
  local due = redis.call('ZRANGE', p .. 'delay', 0, 0, 'WITHSCORES')[2]
  if due and (not first or tonumber(due) < first) then first = tonumber(due) end
end
if not first then return 0 end
local sooner = first - ARGV[1]
if ARGV[2] == '0' or sooner <= 0 then return 2 end
for i = 3, #ARGV do
  local key = '{' .. ARGV[i] .. '}.delay'
  for _, element in ipairs(redis.call('ZRANGE', key, 0, -1)) do
    redis.call('ZINCRBY', key, string.format('%d', -sooner), element)
  end
  redis.call('PUBLISH', key, 0) -- ms until the earliest is due, as every script tells that adds one
end
return 2
