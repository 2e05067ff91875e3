-- Outputs. ARGV: 1 the action, 2 the time in microseconds, or "" for the time of this server, 3 the
-- key of an output: not in KEYS, which readers would need permission to write.
local output = ARGV[3]
local time = redis.call("TIME")
local now = tonumber(ARGV[2]) or time[1] * 1e6 + time[2]
local acts = {}

-- Removes a caller's expired outputs, and the oldest beyond a number of characters.
local function bound(of_caller, most)
  local found, sum, kept = redis.call("ZREVRANGE", of_caller, 0, -1, "WITHSCORES"), 0, 0
  for i = 1, #found, 2 do
    local key, length = string.match(found[i], "^(toolkiln:output:%x+) (%d+)$")
    sum = sum + (tonumber(length) or 0)
    if key == output or (sum <= most and tonumber(found[i + 1]) > now) then
      kept = kept + 1
    elseif key then
      redis.call("PEXPIRE", key, 0)
    end
  end
  redis.call("ZREMRANGEBYRANK", of_caller, 0, -kept - 1)
end

-- ARGV: the caller's scope, the number of characters, microseconds to keep it, the key of the
-- caller's outputs, how many characters of these are kept; then its parts.
function acts.keep()
  local kept = string.format("%.0f", now + ARGV[6])
  local seconds = string.format("%.0f", math.max(1, ARGV[6] / 1000))
  redis.call("HSET", output, "scope", ARGV[4], "total", ARGV[5], "kept", kept)
  for i = 9, #ARGV do redis.call("HSET", output, i - 9, ARGV[i]) end
  redis.call("PEXPIRE", output, seconds)
  redis.call("ZADD", ARGV[7], kept, output .. " " .. ARGV[5])
  redis.call("PEXPIRE", ARGV[7], seconds)
  bound(ARGV[7], tonumber(ARGV[8]))
end

-- ARGV: the caller's scope, the first and the last part. Returns the total number of characters
-- and the parts; nil if it belongs to another caller.
function acts.read()
  local scope, total, kept = unpack(redis.call("HMGET", output, "scope", "total", "kept"))
  if scope ~= ARGV[4] or tonumber(kept) <= now then return nil end
  local answer = {tonumber(total)}
  for number = tonumber(ARGV[5]), tonumber(ARGV[6]) do
    local part = redis.call("HGET", output, number)
    if not part then break end
    answer[#answer + 1] = part
  end
  return answer
end

-- Returns a reply that is stored under its own key.
function acts.body()
  return redis.call("GET", output)
end

return acts[ARGV[1]]()
