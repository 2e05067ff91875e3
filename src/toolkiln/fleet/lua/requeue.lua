-- Requeues a call as another entry, unless it has ended or was requeued before.
-- KEYS: the stream, the call's record. ARGV: the group, the entry, how often it was started.
-- Returns 1 or 0. XACK is the first write, for the same reason as in finish.lua.
local stream, record = KEYS[1], KEYS[2]
local group, entry, tries = ARGV[1], ARGV[2], ARGV[3]

local found = redis.call("XRANGE", stream, entry, entry)[1]
if redis.call("XACK", stream, group, entry) == 0 or not found then return 0 end
local fields = {}
for i = 1, #found[2], 2 do fields[found[2][i]] = found[2][i + 1] end
local again = redis.call("XADD", stream, "*", "record", fields.record, "call", fields.call,
  "by", fields.by, "tries", tries)
redis.call("XDEL", stream, entry)
if redis.call("HGET", record, "entry") == entry then
  redis.call("HSET", record, "entry", again)
end
return 1
