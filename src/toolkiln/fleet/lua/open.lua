-- Prepares a pool for workers, and returns the last entry whose delivery may have been lost: after
-- a restart, or on a replica that took over, a waiting call may have run before.
-- KEYS: the stream, its `lives`. ARGV: the group, "1" if the server logs each write before it
-- replies. Such a server loses nothing.
local stream, lives, group = KEYS[1], KEYS[2], ARGV[1]

local function info(section, name)
  return string.match(redis.call("INFO", section), name .. ":(%w+)")
end

local run = info("server", "run_id")
local known = redis.call("HMGET", lives, "run", "upto")
local upto = known[2] or "0-0"
-- Fronts can write here: ignore values that are not entry ids.
if #upto > 41 or not string.match(upto, "^%d+%-%d+$") then upto, known[1] = "0-0", "damaged" end

if redis.call("EXISTS", stream) == 0 then
  redis.call("XGROUP", "CREATE", stream, group, "0", "MKSTREAM")
elseif #redis.call("XINFO", "GROUPS", stream) == 0 then
  redis.call("XGROUP", "CREATE", stream, group, "0")
end
if known[1] == run then return upto end

local is_whole = ARGV[2] == "1" and info("persistence", "aof_enabled") == "1"
  and string.match(info("replication", "master_replid2"), "^0+$")
if known[1] and not is_whole then
  local about = redis.call("XINFO", "STREAM", stream)
  for i = 1, #about, 2 do
    if about[i] == "last-generated-id" then upto = about[i + 1] end
  end
end
redis.call("HSET", lives, "run", run, "upto", upto)
return upto
