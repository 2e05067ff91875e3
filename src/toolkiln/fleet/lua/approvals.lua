-- Approval requests. KEYS: 1 all ids by the time until which they are kept, 2 all ids in lexical
-- order, 3 the ids of one call. ARGV: 1 the action, 2 the time in microseconds, or "" for the time
-- of this server. A request is returned as: id, request, state, created, expires, decided, answer.
local USE = 24 * 3600 * 1e6  -- how long an approval can be used
local PREFIX = "toolkiln:approval:"

local kept, ids = KEYS[1], KEYS[2]
local time = redis.call("TIME")
local now = tonumber(ARGV[2]) or time[1] * 1e6 + time[2]

local function whole(number)
  return string.format("%.0f", number)
end

local function row(id)
  local names = {"request", "state", "created", "expires", "decided", "answer", "fingerprint",
    "session", "arguments", "remembered_by", "remembered_until"}
  local values, found = redis.pcall("HMGET", PREFIX .. id, unpack(names)), {id = id}
  if values.err or not values[1] then return nil end
  for i, name in ipairs(names) do found[name] = values[i] end
  for _, name in ipairs({"created", "expires", "decided", "remembered_until"}) do
    found[name] = tonumber(found[name] or nil)
  end
  -- A damaged request counts as missing, so that the others stay visible.
  if not (found.created and found.expires) then return nil end
  if found.state == "approved" and not found.decided then return nil end
  -- A request from the future is not pending: the clock was set back.
  found.waits = found.state == "pending" and found.created <= now and found.expires > now
  found.usable = found.state == "approved" and found.decided > now - USE
  found.remembered = found.remembered_by and (found.remembered_until or 0) > now
    and found.decided and found.decided <= now
  return found
end

local function shown(found)
  local state = found.state
  if state == "pending" and not found.waits then state = "expired" end
  local decided = found.decided and whole(found.decided) or ""
  return {found.id, found.request, state, whole(found.created), whole(found.expires), decided,
    found.answer or ""}
end

-- Lets a key expire at a time, by the clock of this server.
local function keep(key, until_)
  redis.call("PEXPIRE", key, whole(math.max(1, (until_ - now) / 1000)))
end

local function enter(id, until_)
  redis.call("ZADD", kept, whole(until_), id)
  redis.call("ZADD", ids, 0, id)
  keep(PREFIX .. id, until_)
  local last = redis.call("ZRANGE", kept, -1, -1, "WITHSCORES")
  keep(kept, tonumber(last[2]))
  keep(ids, tonumber(last[2]))
end

local function clean()
  local old = redis.call("ZRANGEBYSCORE", kept, "-inf", whole(now), "LIMIT", 0, 100)
  for _, id in ipairs(old) do
    redis.call("ZREM", kept, id)
    redis.call("ZREM", ids, id)
    redis.call("DEL", PREFIX .. id)
  end
end

local acts = {}

-- ARGV: id, request, fingerprint, microseconds until it expires, the indexes of verdicts that are
-- remembered for the session and for the arguments, or "".
function acts.ask()
  clean()
  local of_call, same = KEYS[3], nil
  for _, id in ipairs(redis.call("ZRANGE", of_call, 0, -1)) do
    local found = row(id)
    if not found then
      redis.call("ZREM", of_call, id)
    elseif found.fingerprint == ARGV[5] and (found.waits or found.usable) then
      if not same or found.created > same.created then same = found end
    end
  end
  if same then return shown(same) end
  local id, expires = ARGV[3], now + ARGV[6]
  redis.call("HSET", PREFIX .. id, "request", ARGV[4], "state", "pending", "created", whole(now),
    "expires", whole(expires), "fingerprint", ARGV[5], "session", ARGV[7], "arguments", ARGV[8])
  enter(id, expires + USE)
  redis.call("ZADD", of_call, whole(now), id)
  keep(of_call, expires + 2 * USE)
  return shown(row(id))
end

-- ARGV: the prefix of an id. Returns the first two requests that match.
function acts.get()
  local answer = {}
  local fitting = redis.call("ZRANGEBYLEX", ids, "[" .. ARGV[3], "[" .. ARGV[3] .. "g")
  for _, id in ipairs(fitting) do
    local found = row(id)
    if found then answer[#answer + 1] = shown(found) end
    if #answer == 2 then break end
  end
  return answer
end

-- ARGV: id, state, answer, `session`, `arguments` or "", which the verdict is remembered for, and
-- for how many microseconds. Returns whether this verdict is the first, and the request; nil if it
-- cannot be remembered for that.
function acts.decide()
  local found = row(ARGV[3])
  if not found then return {0} end
  local until_, by = now + USE, ARGV[6] ~= "" and found[ARGV[6]]
  if ARGV[6] ~= "" and by == "" then return nil end
  if not found.waits then return {0, shown(found)} end
  local key = PREFIX .. found.id
  redis.call("HSET", key, "state", ARGV[4], "decided", whole(now), "answer", ARGV[5])
  if by then
    until_ = now + ARGV[7]
    redis.call("HSET", key, "remembered_by", by, "remembered_until", whole(until_))
    redis.call("ZADD", by, whole(now), found.id)
    redis.call("PEXPIRE", by, whole(ARGV[7] / 1000))
  end
  enter(found.id, until_)
  return {1, shown(row(found.id))}
end

-- ARGV: id, fingerprint.
function acts.use()
  local found = row(ARGV[3])
  if not found or not found.usable or found.fingerprint ~= ARGV[4] then return nil end
  redis.call("HSET", PREFIX .. found.id, "state", "used")
  return shown(row(found.id))
end

-- ARGV: id. The state is stored, because a clock that is set back must not make it pending again.
function acts.withdraw()
  local found = row(ARGV[3])
  if not found or found.state ~= "pending" then return 0 end
  redis.call("HSET", PREFIX .. found.id, "state", found.waits and "withdrawn" or "expired")
  return 1
end

-- ARGV: id.
function acts.forget()
  local found = row(ARGV[3])
  if not found or not found.remembered then return 0 end
  redis.call("HDEL", PREFIX .. found.id, "remembered_by")
  redis.call("ZREM", found.remembered_by, found.id)
  return 1
end

-- KEYS from 3 on: indexes. Returns the newest request that one of them remembers.
function acts.remembered()
  local newest
  for i = 3, #KEYS do
    for _, id in ipairs(redis.call("ZRANGE", KEYS[i], 0, -1)) do
      local found = row(id)
      if not found then
        redis.call("ZREM", KEYS[i], id)
      elseif found.remembered and found.remembered_by == KEYS[i] then
        if not newest or found.created > newest.created then newest = found end
      end
    end
  end
  return newest and shown(newest)
end

-- Returns the pending requests of one call, newest first.
function acts.of_call()
  local answer = {}
  for _, id in ipairs(redis.call("ZREVRANGE", KEYS[3], 0, -1)) do
    local found = row(id)
    if found and found.waits then answer[#answer + 1] = shown(found) end
  end
  return answer
end

-- ARGV: the limit, then states. Returns requests, newest first.
function acts.list()
  local wanted, found, answer = {}, {}, {}
  for i = 4, #ARGV do wanted[ARGV[i]] = true end
  for _, id in ipairs(redis.call("ZRANGE", kept, 0, -1)) do
    local one = row(id)
    if one and wanted[shown(one)[3]] then found[#found + 1] = one end
  end
  table.sort(found, function(one, other)
    if one.created == other.created then return one.id < other.id end
    return one.created > other.created
  end)
  for i = 1, math.min(#found, tonumber(ARGV[3])) do answer[i] = shown(found[i]) end
  return answer
end

return acts[ARGV[1]]()
