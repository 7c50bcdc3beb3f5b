-- The way by which an element leaves a doing list, whatever the verdict. What must happen whenever one leaves has its
-- place here; the ack of one plain message is the same as a command of its own, an LREM.

-- leave removes one element. It returns 1, 0 where the element was not there, or the error of a list that cannot be
-- written to. from: '-1' looks from the end where the one taken first is, '1' from the other; numbers would have to
-- be formatted.
local function leave(doing, e, from) return redis.pcall('LREM', doing, from, e) end
