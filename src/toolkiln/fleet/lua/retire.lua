-- Forgets a consumer that holds nothing.
-- KEYS: the stream. ARGV: the group, the consumer. Returns 1 if it is gone, else 0.
local stream, group, consumer = KEYS[1], ARGV[1], ARGV[2]
-- Without a group there are errors, which hold nothing.
if #redis.pcall("XPENDING", stream, group, "-", "+", 1, consumer) > 0 then return 0 end
redis.pcall("XGROUP", "DELCONSUMER", stream, group, consumer)
return 1
