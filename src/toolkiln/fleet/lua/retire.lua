-- Forgets a consumer that holds nothing.
-- KEYS: the stream. ARGV: the group, the consumer. Returns 1 if it is gone, else 0.
local stream, group, consumer = KEYS[1], ARGV[1], ARGV[2]
if #redis.call("XPENDING", stream, group, "-", "+", 1, consumer) > 0 then return 0 end
redis.call("XGROUP", "DELCONSUMER", stream, group, consumer)
return 1
