-- The ways by which elements leave a doing list, whatever becomes of them: no other script removes from one. What must
-- happen whenever one leaves has its place here. The ack of one plain message is the same as a command of its own, an
-- LREM.

-- leave removes one element. It returns 1, 0 where the element was not there, or the error of a list that cannot be
-- written to. from: '-1' looks from the end where the one taken first is, '1' from the other; numbers would have to
-- be formatted.
local function leave(doing, e, from) return redis.pcall('LREM', doing, from, e) end

-- leaveFirst removes the n elements that were taken first. first must have said that they are.
local function leaveFirst(doing, n) redis.call('LTRIM', doing, 0, -n - 1) end

-- leaveLast removes the n elements that were taken last.
local function leaveLast(doing, n) redis.call('LTRIM', doing, n, -1) end
