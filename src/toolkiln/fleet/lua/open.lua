-- Prepares a pool for workers, and returns which calls may have run without a trace.
-- KEYS: the stream, its lives. ARGV: the group, "1" if a log has each write before its answer.
-- Returns the last entry of that kind: after a restart, or on a replica that took over, a call
-- that waits may have run in what was forgotten. A server with such a log forgets nothing.
local stream, lives, group = KEYS[1], KEYS[2], ARGV[1]

local function said(section, name)
  return string.match(redis.call("INFO", section), name .. ":(%w+)")
end

local run = said("server", "run_id")
local known = redis.call("HMGET", lives, "run", "upto")
local upto = known[2] or "0-0"
-- Fronts can write here: what is no place in a stream says nothing.
if #upto > 41 or not string.match(upto, "^%d+%-%d+$") then upto, known[1] = "0-0", "damaged" end

if redis.call("EXISTS", stream) == 0 then
  redis.call("XGROUP", "CREATE", stream, group, "0", "MKSTREAM")
elseif #redis.call("XINFO", "GROUPS", stream) == 0 then
  redis.call("XGROUP", "CREATE", stream, group, "0")
end
if known[1] == run then return upto end

local is_whole = ARGV[2] == "1" and said("persistence", "aof_enabled") == "1"
  and string.match(said("replication", "master_replid2"), "^0+$")
if known[1] and not is_whole then
  local about = redis.call("XINFO", "STREAM", stream)
  for i = 1, #about, 2 do
    if about[i] == "last-generated-id" then upto = about[i + 1] end
  end
end
redis.call("HSET", lives, "run", run, "upto", upto)
return upto
