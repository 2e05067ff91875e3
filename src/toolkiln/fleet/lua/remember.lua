-- Has the result of a call that is under way remembered, though its id is not its caller's own.
-- KEYS: the call's record, whose print then says that something is remembered.
-- Returns 1, or 0 if it has ended or is unknown.
local state, entry, print = unpack(redis.call("HMGET", KEYS[1], "state", "entry", "print"))
if state or not entry then return 0 end
if print == "" then redis.call("HSET", KEYS[1], "print", "later") end
return 1
