-- Adds calls to a pool's stream, each once.
-- KEYS: the stream, then each call's record.
-- ARGV: the group, how many calls may wait, how many milliseconds the oldest may wait, how long
-- the record of a call that does not end is kept; then for each call its fingerprint, its reply
-- stream or "", its time limit in milliseconds or 0, "1" if it is repeatable, its record's name,
-- the envelope or its digest, and a key and the envelope if that is too large for an entry, or ""
-- and "".
-- Returns for each the id of its entry if it is accepted, else "running", "lost", "conflict",
-- "overloaded" or, with the reply if it is remembered, {"done", reply}.
-- Whichever write is the first, it needs memory: without memory, nothing is changed.
local stream, group = KEYS[1], ARGV[1]
local most, oldest, kept = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local HEAD, EACH = 4, 8
-- Restricted clients own their records, but may neither read nor create the stream.
local is_own = KEYS[2] and string.find(KEYS[2], "^toolkiln:call:.+:")

local function now()
  local time = redis.call("TIME")
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- How many more calls may wait.
local function room()
  local length = redis.call("XLEN", stream)
  if length == 0 then
    if redis.call("EXISTS", stream) == 0 then
      if is_own then return 0 end  -- a worker creates it
      redis.call("XGROUP", "CREATE", stream, group, "0", "MKSTREAM")
      -- From here on, open.lua detects restarts of the server.
      local run = string.match(redis.call("INFO", "server"), "run_id:(%w+)")
      redis.call("HSET", stream .. ":lives", "run", run)
    end
    return most
  end
  local pending, delivered = 0, "0-0"
  for _, about in ipairs(redis.call("XINFO", "GROUPS", stream)) do
    if about[2] == group then pending, delivered = about[6], about[8] end
  end
  local waiting = not is_own and redis.call("XRANGE", stream, "(" .. delivered, "+", "COUNT", 1)[1]
  if waiting and now() - tonumber(string.match(waiting[1], "^%d+")) > oldest then return 0 end
  return most - (length - pending)
end

local function has(list, item)
  return string.find(" " .. list .. " ", " " .. item .. " ", 1, true)
end

local left, answers = room(), {}

for i = 1, #KEYS - 1 do
  local record = KEYS[i + 1]
  local at = HEAD + (i - 1) * EACH
  local print, asker, timeout = ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
  local repeatable, name, call = ARGV[at + 4] == "1", ARGV[at + 5], ARGV[at + 6]
  local body_key, body = ARGV[at + 7], ARGV[at + 8]
  -- A key of another type, which only an attacker writes, must not stop the other calls.
  local known = redis.pcall("HMGET", record, "print", "state", "entry", "askers", "reply", "pool")
  local askers, answer = asker, nil
  local open = known[2] == "open"

  if open then
    -- Nothing ran under this id: it can be reused.
  elseif known.err or (known[1] and known[1] ~= print) then
    answer = "conflict"
  elseif known[2] then
    answer = {"done", known[5]}
  elseif known[3] then
    askers = known[4] or ""
    if asker ~= "" and not has(askers, asker) then askers = askers .. " " .. asker end
    if is_own or redis.pcall("XRANGE", known[6] or "", known[3], known[3])[1] then
      if askers ~= known[4] then redis.call("HSET", record, "askers", askers) end
      answer = "running"
    elseif not repeatable then
      answer = "lost"
    end
  end
  if not answer and left <= 0 then answer = "overloaded" end

  if not answer then
    left = left - 1
    if body_key ~= "" then redis.call("SET", body_key, body, "PX", kept) end
    local by = timeout > 0 and now() + timeout or 0
    local entry = redis.call("XADD", stream, "*", "record", name, "call", call,
      "by", by, "tries", 0)
    if open then redis.call("DEL", record) end
    redis.call("HSET", record, "print", print, "pool", stream, "entry", entry, "askers", askers)
    redis.call("PEXPIRE", record, kept)
    answer = entry
  end
  answers[i] = answer
end
return answers
