-- Deletes a consumer without pending entries.
-- KEYS: the stream. ARGV: the group, the consumer. Returns 1 if it is deleted, else 0.
local stream, group, consumer = KEYS[1], ARGV[1], ARGV[2]
-- Without a group both commands are errors, and the list is empty.
if #redis.pcall("XPENDING", stream, group, "-", "+", 1, consumer) > 0 then return 0 end
redis.pcall("XGROUP", "DELCONSUMER", stream, group, consumer)
return 1
