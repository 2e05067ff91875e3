-- How calls stand, and optionally whom to tell as well.
-- KEYS: records. ARGV: the group, and a stream that is also notified of their ends, or "".
-- Returns for each its state, for how many milliseconds nothing was heard of it, and the reply
-- that is remembered.
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
    -- A client's own record: it may not read the stream, and takes the call to be there.
    local is_own = string.find(record, "^toolkiln:call:.+:")
    -- With pcall: a damaged record must not hide the state of the others.
    if is_own or #redis.pcall("XRANGE", stream or "", entry, entry) > 0 then
      -- Without a group there is an error, which has no first.
      local held = redis.pcall("XPENDING", stream or "", group, entry, entry, 1)[1]
      answer = held and {"running", held[3], ""} or {"waiting", age, ""}
    end
    askers = askers or ""
    local told = string.find(" " .. askers .. " ", " " .. asker .. " ", 1, true)
    if asker ~= "" and answer[1] ~= "missing" and not told then
      redis.call("HSET", record, "askers", askers .. " " .. asker)
    end
  end
  answers[i] = answer
end
return answers
