-- Takes one token from each bucket, or none at all.
-- KEYS: buckets. ARGV: how many tokens each holds, and in how many microseconds it fills.
-- Returns the milliseconds until there would be enough; 0: they are taken.
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

-- Also when none are taken: a time that lies ahead, from before the clock was set back,
-- must not stay.
for i, key in ipairs(KEYS) do
  local bucket = buckets[i]
  local tokens = bucket.tokens - (wait > 0 and 0 or 1)
  redis.call("HSET", key, "tokens", tokens, "at", now)
  -- A full bucket is the same as none; one that is full already is deleted by this.
  redis.call("PEXPIRE", key, math.ceil((bucket.holds - tokens) * bucket.each / 1000))
end
return math.ceil(wait / 1000)
