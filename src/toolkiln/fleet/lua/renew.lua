-- Renews the leases of a consumer's entries.
-- KEYS: the stream. ARGV: the group, the consumer, entries. Returns 1 for each that it holds.
local stream, group, consumer = KEYS[1], ARGV[1], ARGV[2]
local answers = {}

for i = 3, #ARGV do
  -- Without a group this is an error, whose first item is nil.
  local held = redis.pcall("XPENDING", stream, group, ARGV[i], ARGV[i], 1)[1]
  local own = held and held[2] == consumer
  if own then redis.call("XCLAIM", stream, group, consumer, 0, ARGV[i], "JUSTID") end
  answers[#answers + 1] = own and 1 or 0
end
return answers
