-- Requests that the result of a running call is remembered, although its id is random.
-- KEYS: the call's record, whose `print` is then not empty.
-- Returns 1, or 0 if it has ended or is unknown.
local state, entry, print = unpack(redis.call("HMGET", KEYS[1], "state", "entry", "print"))
if state or not entry then return 0 end
if print == "" then redis.call("HSET", KEYS[1], "print", "later") end
return 1
