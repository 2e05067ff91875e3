-- Takes one token from each bucket, or none at all.
-- KEYS: buckets. ARGV: the size of each in tokens, and in how many microseconds it fills.
-- Returns 0 if the tokens were taken, else the milliseconds until there are enough.
local time = redis.call("TIME")
local now = time[1] * 1000000 + time[2]
local buckets, wait = {}, 0

for i, key in ipairs(KEYS) do
  local holds = tonumber(ARGV[2 * i - 1])
  local each = ARGV[2 * i] / holds  -- microseconds for one token
  local tokens = holds
  local kept = redis.call("HMGET", key, "tokens", "at")
  local left, at = tonumber(kept[1] or nil), tonumber(kept[2] or nil)
  if left and at then
    tokens = math.min(holds, left + math.max(0, now - at) / each)
  end
  wait = math.max(wait, (1 - tokens) * each)
  buckets[i] = {tokens = tokens, holds = holds, each = each}
end

-- Even if no token is taken: a time in the future, from before the clock was set back, must not
-- stay.
for i, key in ipairs(KEYS) do
  local bucket = buckets[i]
  local tokens = bucket.tokens - (wait > 0 and 0 or 1)
  redis.call("HSET", key, "tokens", tokens, "at", now)
  -- A full bucket is the same as a missing one; this deletes one that is already full.
  redis.call("PEXPIRE", key, math.ceil((bucket.holds - tokens) * bucket.each / 1000))
end
return math.ceil(wait / 1000)
