-- What scripts know of ids. An id is taken while the hash ids has a record of it:
--   serial (16 bytes)  state  ' ' attempts  ' ' at  ' ' expires  ' ' '\n' failure
-- state: p it waits, d it is due later, u it is over and its id is kept taken. attempts: how many are over. at: since
-- when it waits (p), when it is due (d), until when its id is taken (u), in ms. expires: ms until which it is to be
-- taken; 0: none, or it was taken. Whose serial is in the hash running is in a worker's hands, whatever its
-- record says; whose is in the set cancelled is not to be handled, or its handler to be ended.
local function record(serial, state, attempts, at, expires, failure)
  return serial .. state .. string.format(' %d %.0f %.0f \n', attempts, at, expires) .. failure
end

-- parsed is the parts of a record, or nil.
local function parsed(r)
  if not r then return nil end
  local state, attempts, at, expires, failure = string.match(string.sub(r, 17), '^(%a) (%d+) (%d+) (%d+) \n(.*)$')
  if not state then return nil end
  return {serial = string.sub(r, 1, 16), state = state, attempts = tonumber(attempts), at = tonumber(at),
    expires = tonumber(expires), failure = failure}
end

-- own is the record of an id if it is that of a message, else nil. An index that cannot be read holds up no message.
local function own(ids, id, serial)
  local r = redis.pcall('HGET', ids, id)
  local p = type(r) == 'string' and string.sub(r, 1, 16) == serial and parsed(r)
  return p or nil
end

-- lost says whether an id is a message's no longer: another has it, or had it and is over.
local function lost(ids, id, serial)
  local r = redis.pcall('HGET', ids, id)
  return not r or type(r) == 'string' and string.sub(r, 1, 16) ~= serial
end

-- back is an element as it goes back to where it was taken from: it does not expire any more; but for one that had not
-- begun when its time was over, and has lost its id since.
local function back(ids, e)
  local new = taken(e)
  if new ~= e and idOf(e) and lost(ids, idOf(e), string.sub(e, 5, 20)) then return e end
  return new
end

-- expired says of a record that its message was to be taken by now, and nobody has it: it is over, wherever it lies.
-- Where it cannot be read who has it, it is not: an error would end its script halfway.
local function expired(p, running, now)
  return p.expires > 0 and p.expires <= now and redis.pcall('HEXISTS', running, p.serial) == 0
end

-- enter takes an id for a message that waits, or is due later. Where it is taken it gives false and the record that
-- has it.
local function enter(ids, running, id, serial, state, now, at, expires)
  local new = record(serial, state, 0, at, expires, '')
  if redis.call('HSETNX', ids, id, new) == 1 then return true end
  local old = redis.call('HGET', ids, id)
  local p = parsed(old)
  if p and not (p.state == 'u' and p.at <= now) and not expired(p, running, now) then
    return false, old
  end
  redis.call('HSET', ids, id, new)
  return true
end

-- wait notes that a message has left a worker's hands and waits again, so it was taken and does not expire; or is in
-- those of another, with the attempt that is under way.
local function wait(ids, running, id, serial, holder)
  local mark = redis.pcall('HGET', running, serial)
  if holder then
    if type(mark) == 'string' then redis.pcall('HSET', running, serial, holder .. string.match(mark, ' .*$')) end
    return
  end
  if type(mark) == 'string' then redis.pcall('HDEL', running, serial) end
  local p = id and own(ids, id, serial)
  if p and p.expires > 0 then redis.pcall('HSET', ids, id, record(serial, p.state, p.attempts, p.at, 0, p.failure)) end
end

-- due is a message's element in delay, or nil where it is not among the first n, or 128 KB, that are due at its time.
local function due(delay, p, n)
  local at, from, bytes = printed(p.at), 0, 0
  local low, high = 0, n
  while low < high do -- they lie there by their bytes: by serial, as long as what is before it is alike
    local i = math.floor((low + high) / 2)
    local e = redis.call('ZRANGEBYSCORE', delay, at, at, 'LIMIT', i, 1)[1]
    local serial = e and string.sub(e, 5, 20)
    if serial == p.serial then return e end
    if serial and serial < p.serial then low = i + 1 else high = i end
  end
  while from < n and bytes < 131072 do
    local es = redis.call('ZRANGEBYSCORE', delay, at, at, 'LIMIT', from, 32)
    for _, e in ipairs(es) do
      if string.sub(e, 5, 20) == p.serial then return e end
      bytes = bytes + #e
    end
    if #es < 32 then return nil end
    from = from + 32
  end
  return nil
end
