-- Sessions. KEYS[1]: the index of valid ones; for a lookup it is an argument, because keys must be
-- writable and clients may only read. ARGV[1]: the action.
-- A record outlives its session, for calls that run when it expires.
local KEPT = 24 * 3600 * 1000
local BATCH = 1000

local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local holding = KEYS[1] or ARGV[2]

-- Adds a record to an index that expires with its last record.
local function enter(index, record, expires, kept)
  redis.call("ZREMRANGEBYSCORE", index, "-inf", now - kept)
  redis.call("ZADD", index, expires, record)
  local last = redis.call("ZRANGE", index, -1, -1, "WITHSCORES")
  redis.call("PEXPIREAT", index, last[2] + kept)
end

local function hold(record, milliseconds)
  local expires = now + milliseconds
  redis.call("HSET", record, "expires", expires)
  redis.call("PEXPIREAT", record, expires + KEPT)
  enter(holding, record, expires, 0)
  local made_with = redis.call("HGET", record, "made_with")
  if made_with ~= "" then enter(made_with, record, expires, KEPT) end
end

local function forget(record)
  local made_with = redis.call("HGET", record, "made_with")
  if made_with and made_with ~= "" then redis.call("ZREM", made_with, record) end
  redis.call("ZREM", holding, record)
  return redis.call("DEL", record)
end

-- Returns the remaining milliseconds of a session, at least 0; nil if it is missing or damaged.
local function left(record)
  local kept = redis.call("HMGET", record, "made", "expires")
  local made, expires = tonumber(kept[1]), tonumber(kept[2])
  -- A session from the future is invalid: the clock was set back, by an unknown time.
  if not made or not expires or made / 1000 >= now + 1 then return nil end
  if expires > now then return expires - now end
  -- Stored, because a clock that is set back must not revive it. Restricted clients cannot.
  redis.pcall("HSET", record, "expires", 0)
  redis.pcall("ZREM", holding, record)
  return 0
end

local acts = {}

-- ARGV: the session, its milliseconds, the index of the key that made it or "", its name.
function acts.put()
  forget(KEYS[2])
  local made = time[1] * 1000000 + time[2]
  redis.call("HSET", KEYS[2], "session", ARGV[2], "made", made, "made_with", ARGV[4],
    "name", ARGV[5])
  hold(KEYS[2], tonumber(ARGV[3]))
end

-- ARGV: the index, the session. Returns the session and its remaining milliseconds.
function acts.get()
  local milliseconds = left(ARGV[3])
  return milliseconds and {redis.call("HGET", ARGV[3], "session"), milliseconds}
end

-- ARGV: milliseconds.
function acts.renew()
  if (left(KEYS[2]) or 0) == 0 then return 0 end
  hold(KEYS[2], tonumber(ARGV[2]))
  return 1
end

acts["end"] = function() return forget(KEYS[2]) end

-- ARGV: a name. Returns the valid session with that name, which it ends.
function acts.end_named()
  for _, record in ipairs(redis.call("ZRANGE", holding, 0, -1)) do
    if redis.call("HGET", record, "name") == ARGV[2] and (left(record) or 0) > 0 then
      local session = redis.call("HGET", record, "session")
      forget(record)
      return session
    end
  end
end

-- KEYS[2]: the index of the key. Returns how many it deleted, and how many of them were valid; in
-- batches, so that other clients do not wait long.
function acts.end_of_key()
  local records, held = redis.call("ZRANGE", KEYS[2], 0, BATCH - 1), 0
  for _, record in ipairs(records) do
    if (left(record) or 0) > 0 then held = held + 1 end
    forget(record)
    redis.call("ZREM", KEYS[2], record)  -- even if the record is gone
  end
  return {#records, held}
end

-- ARGV: the limit. Returns sessions, newest first, each followed by its remaining milliseconds.
function acts.alive()
  local found, answer = {}, {}
  for _, record in ipairs(redis.call("ZRANGE", holding, 0, -1)) do
    local milliseconds = left(record) or 0
    if milliseconds > 0 then
      local made = tonumber(redis.call("HGET", record, "made"))
      found[#found + 1] = {record = record, made = made, left = milliseconds}
    end
  end
  table.sort(found, function(one, other) return one.made > other.made end)
  for i = 1, math.min(#found, tonumber(ARGV[2])) do
    answer[#answer + 1] = redis.call("HGET", found[i].record, "session")
    answer[#answer + 1] = found[i].left
  end
  return answer
end

return acts[ARGV[1]]()
