-- Ends a call that waits or whose worker is gone; asks the workers to cancel a running one.
-- KEYS: the call's record, the key of its envelope if that is stored separately.
-- ARGV: the group, the packed reply, how long the end of a call is kept, and of a remembered one,
-- how long a reply stream is kept, and its length, the control stream or "", its length, the
-- record's name, after how many milliseconds without a renewed lease a call counts as abandoned,
-- and "1" if only a worker may end the call.
-- Returns "ended", "asked", "running", "done" or "unknown".
local record, call_key = KEYS[1], KEYS[2]
local group, reply, known_for, remembered_for = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local kept, most, control, most_asked, name = ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local abandoned, by_worker = tonumber(ARGV[10]), ARGV[11] == "1"
-- Restricted clients own their records, but may neither read nor change the stream. A worker that
-- takes the entry of a call that has ended drops it (current.lua).
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
  -- The worker that takes the call reads this, and signs its end.
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
  -- An ACL may deny access to the stream of another client, which polls the state anyway.
  redis.pcall("XADD", asker, "MAXLEN", "~", most, "*", "replies", string.char(0x91) .. reply)
  redis.pcall("PEXPIRE", asker, kept)
end
return "ended"
