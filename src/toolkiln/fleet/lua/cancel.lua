-- Ends a call that waits, or whose workers are all gone; asks them to stop one that runs.
-- KEYS: the call's record, the key of its envelope, where it has one.
-- ARGV: the group, the packed reply, how long the end of a call is known, and of one that is
-- remembered, how long a stream of replies is kept, how many entries of it, the stream to ask
-- on or "", how many entries of it, the record's name, after how many milliseconds without
-- a sign of its worker a call counts as abandoned, and "1" if only a worker may end the call.
-- Returns "ended", "asked", "running", "done" or "unknown".
local record, call_key = KEYS[1], KEYS[2]
local group, reply, known_for, remembered_for = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local kept, most, control, most_asked, name = ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local abandoned, by_worker = tonumber(ARGV[10]), ARGV[11] == "1"
-- A client's own record: it may neither read the stream nor remove anything from it. A worker
-- that takes the entry of a call that has ended drops it (current.lua).
local is_own = string.find(record, "^toolkiln:call:.+:")

local known = redis.call("HMGET", record, "state", "pool", "entry", "askers", "print")
local state, stream, entry, askers, print = unpack(known)
if state then return "done" end
if not entry then return "unknown" end

-- Without a group there is an error, which has no first.
local held = redis.pcall("XPENDING", stream, group, entry, entry, 1)[1]
if held and held[3] < abandoned then
  if control == "" then return "running" end
  redis.call("HSET", record, "cancel", 1)
  redis.call("XADD", control, "MAXLEN", "~", most_asked, "*", "ask", "cancel", "of", name)
  return "asked"
end
if by_worker then
  -- The worker that takes it finds this, and signs its end.
  if not is_own and #redis.call("XRANGE", stream, entry, entry) == 0 then return "unknown" end
  redis.call("HSET", record, "cancel", 1)
  return "asked"
end
-- XACK or XDEL is the first write, for the same reason as in finish.lua.
if not is_own then
  if held then redis.call("XACK", stream, group, entry) end
  if redis.call("XDEL", stream, entry) == 0 then return "unknown" end
end
redis.call("DEL", call_key)
if print == "" then
  redis.call("HSET", record, "state", "done")
  redis.call("PEXPIRE", record, known_for)  -- 0 deletes it
else
  redis.call("HSET", record, "state", "done", "reply", reply)
  redis.call("PEXPIRE", record, remembered_for)
end
for asker in string.gmatch(askers or "", "toolkiln:replies:%S+") do
  -- Another client's stream may be none of ours to write to; it asks by itself.
  redis.pcall("XADD", asker, "MAXLEN", "~", most, "*", "replies", string.char(0x91) .. reply)
  redis.pcall("PEXPIRE", asker, kept)
end
return "ended"
