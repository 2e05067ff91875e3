-- Returns the states of calls, and optionally adds a reply stream to them.
-- KEYS: records. ARGV: the group, a reply stream that is also notified of their ends, or "".
-- Returns for each its state, the milliseconds since it was queued or its lease was renewed, and
-- the remembered reply.
local group, asker = ARGV[1], ARGV[2]
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local answers = {}

for i, record in ipairs(KEYS) do
  local known = redis.pcall("HMGET", record, "state", "pool", "entry", "askers", "reply")
  local state, stream, entry, askers, reply = unpack(known)
  local answer = {"missing", 0, ""}
  if state then
    answer = {"done", 0, reply or ""}
  elseif entry then
    local age = math.max(0, now - tonumber(string.match(entry, "^%d+") or 0))
    -- Restricted clients own their records, but may not read the stream: assume that it is there.
    local is_own = string.find(record, "^toolkiln:call:.+:")
    -- With pcall: a damaged record must not hide the states of the others.
    if is_own or #redis.pcall("XRANGE", stream or "", entry, entry) > 0 then
      -- Without a group this is an error, whose first item is nil.
      local held = redis.pcall("XPENDING", stream or "", group, entry, entry, 1)[1]
      answer = held and {"running", held[3], ""} or {"waiting", age, ""}
    end
    askers = askers or ""
    local is_known = string.find(" " .. askers .. " ", " " .. asker .. " ", 1, true)
    if asker ~= "" and answer[1] ~= "missing" and not is_known then
      redis.call("HSET", record, "askers", askers .. " " .. asker)
    end
  end
  answers[i] = answer
end
return answers
