-- Take: moves up to n elements from the first of the channels that has any into the worker's doing list there. It is
-- RPOPLPUSH for a full Redis, and for several channels of which nobody knows who has something.
-- KEYS of each channel, in the order they are asked: receivers, prepare, doing
-- ARGV 1 n
-- reply: channel (from 1) and element in turns; a channel that could not be read gives minus its number and the
--      error's text
redis.call('ZREM', KEYS[1], '')
local out, left = {}, tonumber(ARGV[1])
for c = 1, #KEYS / 3 do
  for _ = 1, left do
    local e = redis.pcall('RPOPLPUSH', KEYS[3 * c - 1], KEYS[3 * c])
    if type(e) == 'table' then
      out[#out + 1] = -c
      out[#out + 1] = e.err
      break
    end
    if not e then break end
    out[#out + 1] = c
    out[#out + 1] = e
    left = left - 1
  end
  if left < tonumber(ARGV[1]) then break end
end
return out
