-- Enqueues the call of a dead letter again, and deletes the letter.
-- KEYS: the stream, the stream of dead letters, the call's record.
-- ARGV: the group, the dead letter, the call's fingerprint, how long the record of a call that does
-- not end is kept.
-- Returns 1; 0 if the call is running again, or the letter is gone.
-- No caller waits for the reply: it was notified when the call was dead-lettered.
local stream, dead, record = KEYS[1], KEYS[2], KEYS[3]
local group, letter, print, kept = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local found = redis.call("XRANGE", dead, letter, letter)[1]
local known = redis.call("HMGET", record, "entry", "state")
if not found or (known[1] and not known[2]) then return 0 end
local fields = {}
for i = 1, #found[2], 2 do fields[found[2][i]] = found[2][i + 1] end

if redis.call("EXISTS", stream) == 0 then
  redis.call("XGROUP", "CREATE", stream, group, "0", "MKSTREAM")
end
local entry = redis.call("XADD", stream, "*", "record", fields.record, "call", fields.call,
  "by", 0, "tries", 0)
redis.call("DEL", record)
redis.call("HSET", record, "print", print, "pool", stream, "entry", entry, "askers", "")
redis.call("PEXPIRE", record, kept)
redis.call("XDEL", dead, letter)
return 1
