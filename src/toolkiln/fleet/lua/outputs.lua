-- Texts to page through. ARGV: 1 what to do, see below, 2 the time in microseconds, or "" for
-- this server's, 3 the key of one: not in KEYS, which have to be writable for whoever reads.
local output = ARGV[3]
local time = redis.call("TIME")
local now = tonumber(ARGV[2]) or time[1] * 1e6 + time[2]
local acts = {}

-- ARGV: whose, how many characters, microseconds to keep it; then its parts.
function acts.keep()
  redis.call("HSET", output, "scope", ARGV[4], "total", ARGV[5],
    "kept", string.format("%.0f", now + ARGV[6]))
  for i = 7, #ARGV do redis.call("HSET", output, i - 7, ARGV[i]) end
  redis.call("PEXPIRE", output, string.format("%.0f", math.max(1, ARGV[6] / 1000)))
end

-- ARGV: whose, the first and the last part. Returns how many characters there are in all,
-- and the parts; nil if it is not theirs.
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

-- The body of a reply that is a key of its own.
function acts.body()
  return redis.call("GET", output)
end

return acts[ARGV[1]]()
