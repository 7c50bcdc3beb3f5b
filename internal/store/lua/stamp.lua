-- stamp writes into an element when it expires: 8 bytes, the highest first.
local function stamp(e, ms)
  local floor, high, low = math.floor, math.floor(ms / 4294967296), ms % 4294967296
  return string.sub(e, 1, 23) .. string.char(
    floor(high / 16777216) % 256, floor(high / 65536) % 256, floor(high / 256) % 256, high % 256,
    floor(low / 16777216), floor(low / 65536) % 256, floor(low / 256) % 256, low % 256) .. string.sub(e, 32)
end
