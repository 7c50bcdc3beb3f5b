-- What scripts know of ids. An id is taken while the hash ids has a record of it:
--   serial (16 bytes)  state  flags  ' ' attempt  ' ' at  ' ' expires  ' ' holder  '\n' failure
-- state: p waits, d is due later (at), r is in a worker's hands (since at; the holder is incarnation/worker), u is kept taken until at.
-- flags: the sum of 1 somebody waits for its end, 2 cancelled in a worker's hands, 4 put off: wherever it lies, it is due at.
-- attempt: of r the one under way, else those that are over. expires: ms until which it is to be taken; 0: none, or it was taken.
local function record(serial, state, flags, attempt, at, expires, holder, failure)
  return serial .. state .. string.format('%d %d %.0f %.0f ', flags, attempt, at, expires) .. holder .. '\n' .. failure
end

-- parsed is the parts of a record, or nil.
local function parsed(r)
  if not r then return nil end
  local state, flags, attempt, at, expires, holder, failure = string.match(string.sub(r, 17), '^(%a)(%d) (%d+) (%d+) (%d+) (%S*)\n(.*)$')
  if not state then return nil end
  return {serial = string.sub(r, 1, 16), state = state, flags = tonumber(flags), attempt = tonumber(attempt), at = tonumber(at),
    expires = tonumber(expires), holder = holder, failure = failure}
end

-- flag says whether a record has one.
local function flag(p, bit) return math.floor(p.flags / bit) % 2 == 1 end

-- own is the record of an id if it is that of a message, else nil. An index that cannot be read holds up no message.
local function own(ids, id, serial)
  local r = redis.pcall('HGET', ids, id)
  local p = type(r) == 'string' and parsed(r)
  if p and p.serial == serial then return p end
  return nil
end

-- write puts a record back with another state.
local function write(ids, id, p, state, attempt, at, holder, failure)
  redis.pcall('HSET', ids, id, record(p.serial, state, p.flags, attempt, at, 0, holder, failure))
end

-- enter takes an id for a message that waits, or is due later. Where it is taken it gives false and the record that has it.
local function enter(ids, id, serial, state, now, at, expires)
  local new = record(serial, state, 0, 0, at, expires, '', '')
  if redis.call('HSETNX', ids, id, new) == 1 then return true end
  local old = redis.call('HGET', ids, id)
  local p = parsed(old)
  if not p or p.state == 'u' and p.at <= now or p.state ~= 'r' and p.expires > 0 and p.expires <= now then
    redis.call('HSET', ids, id, new)
    return true
  end
  return false, old
end

-- wait notes that a message has left a worker's hands and waits again, or is in those of another holder.
local function wait(ids, id, serial, holder)
  local p = id and own(ids, id, serial)
  if not p or p.state ~= 'r' then return end
  if holder then
    write(ids, id, p, 'r', p.attempt, p.at, holder, p.failure)
  else
    write(ids, id, p, 'p', math.max(0, p.attempt - 1), p.at, '', p.failure)
  end
end

-- due is a message's element in delay, or nil where it is not among the first n that are due at its time.
local function due(delay, p, n)
  local at = string.format('%.0f', p.at)
  for _, e in ipairs(redis.call('ZRANGEBYSCORE', delay, at, at, 'LIMIT', 0, n)) do
    if string.sub(e, 5, 20) == p.serial then return e end
  end
  return nil
end

-- stamp writes into an element when it expires.
local function stamp(e, ms)
  local bytes = ''
  for _ = 1, 8 do
    bytes = string.char(ms % 256) .. bytes
    ms = math.floor(ms / 256)
  end
  return string.sub(e, 1, 23) .. bytes .. string.sub(e, 32)
end
