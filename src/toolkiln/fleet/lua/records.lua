-- Calls by the ids that their callers chose: claims, results, states.
-- KEYS: 1 the claim, 2 the claims of its caller by creation time, 3 the call's record in the
-- queue, 4 its approval requests, which clients may not read. ARGV: 1 the action, 2 the time in
-- microseconds, or "" for the time of this server.
--
-- A claim with a token is of a call that runs in the claiming process. One without is of a queued
-- call, whose state is in its record in the queue.
local MOST = 1000            -- claims that are listed for one caller
local NOTED = 24 * 3600 * 1e6

local claim, claims = KEYS[1], KEYS[2]
local time = redis.call("TIME")
local now = tonumber(ARGV[2]) or time[1] * 1e6 + time[2]

local function whole(number)
  return string.format("%.0f", number)
end

local function read(key)
  local names = {"print", "state", "token", "lease", "kept", "attempt", "owner", "cancel", "id",
    "tool", "started", "progress", "reply", "record", "requests"}
  local values, found = redis.call("HMGET", key, unpack(names)), {}
  for i, name in ipairs(names) do found[name] = values[i] or nil end
  for _, name in ipairs({"lease", "kept"}) do found[name] = tonumber(found[name]) end
  return found.kept and found.kept > now and found or nil
end

-- Lets the claim expire at a time, by the clock of this server.
local function keep(until_)
  redis.call("HSET", claim, "kept", whole(until_))
  redis.call("PEXPIRE", claim, whole(math.max(1, (until_ - now) / 1000)))
end

local function enter(fields)
  redis.call("DEL", claim)
  redis.call("HSET", claim, "started", whole(now), "record", KEYS[3], "requests", KEYS[4] or "",
    unpack(fields))
  redis.call("ZADD", claims, whole(now), claim)
  redis.call("ZREMRANGEBYRANK", claims, 0, -MOST - 1)
  redis.call("PEXPIRE", claims, whole(NOTED / 1000))
end

-- Returns the claim if the token belongs to its owner.
local function held()
  local values = redis.call("HMGET", claim, "token", "state")
  return values[1] == ARGV[3] and not values[2]
end

local function is_waited_for(requests)
  if not requests or requests == "" then return false end
  for _, id in ipairs(redis.call("ZRANGE", requests, 0, -1)) do
    local one = redis.call("HMGET", "toolkiln:approval:" .. id, "state", "created", "expires")
    if one[1] == "pending" and tonumber(one[2]) <= now and tonumber(one[3]) > now then
      return true
    end
  end
  return false
end

-- Returns the state of a queued call, and its reply.
local function queued(record)
  local state, stream, entry, reply =
    unpack(redis.call("HMGET", record, "state", "pool", "entry", "reply"))
  if state then return "done", reply end
  if not entry then return nil end
  -- Restricted clients own their records, but may not read the stream: assume that it runs.
  if string.find(record, "^toolkiln:call:.+:") then return "running" end
  return #redis.pcall("XRANGE", stream or "", entry, entry) > 0 and "running" or "lost"
end

-- Returns a claim for its caller; nil if there is none.
local function shown(found)
  local state, reply
  if found.state then
    state, reply = "done", found.reply
  elseif found.token then
    state = found.lease > now and "running" or "lost"
  else
    state, reply = queued(found.record)
    if not state then return nil end
  end
  if state == "running" and is_waited_for(found.requests) then state = "pending" end
  return {found.id, found.tool, state, found.progress or "", found.started, reply or ""}
end

local acts = {}

-- ARGV: fingerprint, owner, token, microseconds of the lease and for which a lost call is kept, id,
-- tool. Returns {"claimed", attempt}, {"conflict"}, {"done", reply} or {"busy", owner, lease}.
function acts.claim()
  local known, attempt = read(claim), 1
  if known and known.print and known.state ~= "free" then
    if known.print ~= ARGV[3] then return {"conflict"} end
    if known.state then return {"done", known.reply} end
    if known.lease > now then return {"busy", known.owner, whole(known.lease - now)} end
    attempt = known.attempt + 1
  end
  local lease = now + ARGV[6]
  enter({"print", ARGV[3], "owner", ARGV[4], "token", ARGV[5], "lease", whole(lease),
    "attempt", attempt, "id", ARGV[8], "tool", ARGV[9]})
  keep(lease + ARGV[7])
  return {"claimed", attempt}
end

-- ARGV: id, tool of a queued call.
function acts.note()
  local known = read(claim)
  if known and known.state ~= "free" then return 0 end
  enter({"id", ARGV[3], "tool", ARGV[4]})
  keep(now + NOTED)
  return 1
end

-- ARGV: token, microseconds of the lease and for which a lost call is kept. Returns whether its
-- cancellation was requested; nil if the claim is lost.
function acts.renew()
  -- Redis lost the claim, and no other process runs the call: let it continue.
  if redis.call("EXISTS", claim) == 0 then return 0 end
  if not held() then return nil end
  redis.call("HSET", claim, "lease", whole(now + ARGV[4]))
  keep(now + ARGV[4] + ARGV[5])
  return redis.call("HEXISTS", claim, "cancel")
end

-- ARGV: token, reply, microseconds to keep it, `done`, or `free` if the id can be claimed again.
function acts.finish()
  if not held() then return 0 end
  redis.call("HSET", claim, "state", ARGV[6], "reply", ARGV[4])
  keep(now + ARGV[5])
  return 1
end

-- ARGV: token, or "" for a queued call; the text.
function acts.progress()
  local is_queued = ARGV[3] == "" and redis.call("HEXISTS", claim, "token") == 0
  if not held() and not (is_queued and redis.call("EXISTS", claim) == 1) then return 0 end
  redis.call("HSET", claim, "progress", ARGV[4])
  return 1
end

-- Returns 1 if its owner reads the request; else the stream of a queued call, or nil.
function acts.cancel()
  local found = read(claim)
  if found and found.token then
    if found.state or found.lease <= now then return nil end
    redis.call("HSET", claim, "cancel", 1)
    return 1
  end
  local state, stream = unpack(redis.call("HMGET", KEYS[3], "state", "pool"))
  return not state and stream or nil
end

function acts.task()
  local found = read(claim)
  return found and shown(found)
end

-- ARGV: the limit. Returns claims, newest first.
function acts.tasks()
  local most, found = tonumber(ARGV[3]), {}
  for _, key in ipairs(redis.call("ZREVRANGE", claims, 0, -1)) do
    if #found >= most then break end
    local one = read(key)
    local task = one and shown(one)
    if task then
      task[6] = ""
      found[#found + 1] = task
    elseif redis.call("EXISTS", key) == 0 then
      redis.call("ZREM", claims, key)
    end
  end
  return found
end

return acts[ARGV[1]]()
