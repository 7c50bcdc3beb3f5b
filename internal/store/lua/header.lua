-- What scripts know of an element; the rules are those of element.go. Put before every script that needs them.

-- header says whether e begins with a valid header of version 1.
local function header(e)
  local n, byte = #e, string.byte
  if n < 21 then return false end
  local magic, version = byte(e, 1, 2)
  if magic ~= 193 or version < 16 or version > 31 then return false end
  local p = 21
  while true do
    local tag, high, low = byte(e, p, p + 2)
    if tag == 0 then return true end
    if not low then return false end
    p = p + 3 + high * 256 + low
    if p > n then return false end
  end
end

-- newer says whether e is of a version that only a newer shunt may rewrite.
local function newer(e)
  local magic, version = string.byte(e, 1, 2)
  return #e > 20 and magic == 193 and version > 31
end

-- identity is the serial, or a bare payload's SHA-1.
local function identity(e)
  if header(e) then return string.sub(e, 5, 20) end
  return redis.sha1hex(e)
end

-- field is the value of an element's first field with a tag and a length that it may have, or nil.
local function field(e, want, least, most)
  if not header(e) then return nil end
  local p = 21
  while true do
    local tag, high, low = string.byte(e, p, p + 2)
    if tag == 0 then return nil end
    local n = high * 256 + low
    if tag == want and n >= least and n <= most then return string.sub(e, p + 3, p + 2 + n) end
    p = p + 3 + n
  end
end

-- idOf is an element's id, or nil.
local function idOf(e) return field(e, 11, 1, 255) end

-- number is a field of eight bytes, 0 where there is none.
local function number(e, tag)
  local n = 0
  for _, byte in ipairs({string.byte(field(e, tag, 8, 8) or '', 1, -1)}) do n = n * 256 + byte end
  return n
end

-- taken is an element that does not expire any more.
local function taken(e)
  if string.byte(e, 21) ~= 1 or not field(e, 1, 9, 9) then return e end
  return string.sub(e, 1, 23) .. string.rep('\0', 8) .. string.sub(e, 32)
end
