-- Follow: acks a message and enqueues what is to follow it, all or nothing.
-- KEYS 1 receivers  2 doing  3 ids  4 cancelled  5 done  6 kept  7 running  8 waited; then for each that follows its
--      prepare, delay, ids and running
-- ARGV 1 element  2 its id or ''  3 serial  4 attempt  5 result  6 ms to keep what became of it  7 ms its id stays
--      taken after success  8 most kept  9 most bytes kept; then for each that follows 'now', 'in' or 'at', ms, its
--      id or '', ms after which it expires or 0, the element
-- reply: 0 where it was not there, and then nothing has changed; else 1, then for each 1, its due time in ms where it
--      is due later, or 0 where its id was taken
redis.call('ZREM', KEYS[1], '')
local at = redis.pcall('LPOS', KEYS[2], ARGV[1])
if type(at) == 'table' then -- before 6.0.6
  at = false
  for _, e in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do at = at or e == ARGV[1] end
end
if at == false or at == nil then return {0} end
local now, soonest = clock()
local out, added, hints, k = {1}, {}, {}, 9
local mine, raw = nil, nil -- its own record, once what follows has its id
for i = 10, #ARGV, 5 do
  local mode, ms, id, ttl, e = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2], tonumber(ARGV[i + 3]), ARGV[i + 4]
  local prepare, delay, ids, running = KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]
  k = k + 4
  local to, expires = now, 0
  if mode == 'in' then to = soonest + ms elseif mode == 'at' then to = math.max(now, ms) end
  if ttl > 0 then
    expires = now + ttl
    e = stamp(e, expires)
  end
  local free, err = true, nil
  if id ~= '' then
    local there, serial, state = redis.pcall('HLEN', ids), string.sub(e, 5, 20), to > now and 'd' or 'p'
    if type(there) == 'table' then
      err = there
    elseif id == ARGV[2] and ids == KEYS[3] and not mine and own(ids, id, ARGV[3]) then
      raw = redis.call('HGET', ids, id)
      mine = parsed(raw)
      redis.call('HSET', ids, id, record(serial, state, 0, to, expires, ''))
    else
      local able, is = pcall(enter, ids, running, id, serial, state, now, to, expires)
      if able then free = is else err = type(is) == 'table' and is or redis.error_reply(is) end
    end
  end
  if free and not err then
    local before = {}
    local done
    if to > now then
      before = redis.pcall('ZRANGE', delay, 0, 0, 'WITHSCORES')
      done = redis.pcall('ZADD', delay, 'NX', printed(to), e)
    else
      done = redis.pcall('LPUSH', prepare, e)
    end
    if type(done) == 'table' then
      err = done
      if id ~= '' then redis.call('HDEL', ids, id) end
    else
      added[#added + 1] = {to > now and delay or prepare, to > now, e, ids, id}
      if to > now and earliest(before, to) then hints[#hints + 1] = {delay, printed(to - now)} end
    end
  end
  if err then
    for _, a in ipairs(added) do
      if a[2] then redis.call('ZREM', a[1], a[3]) else redis.call('LREM', a[1], 1, a[3]) end
      if a[5] ~= '' then redis.call('HDEL', a[4], a[5]) end
    end
    if mine then redis.call('HSET', KEYS[3], ARGV[2], raw) end
    return err
  end
  out[#out + 1] = not free and 0 or to > now and to or 1
end
leave(KEYS[2], ARGV[1], '-1')
if ARGV[2] ~= '' then
  local m = {serial = ARGV[3], kind = 'a', attempt = tonumber(ARGV[4]), failure = '', result = ARGV[5],
    retain = tonumber(ARGV[6]), unique = tonumber(ARGV[7]), most = tonumber(ARGV[8]), bytes = tonumber(ARGV[9]),
    mine = mine}
  pcall(conclude, {KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]}, ARGV[2], m, now)
end
for _, h in ipairs(hints) do redis.pcall('PUBLISH', h[1], h[2]) end
return out
