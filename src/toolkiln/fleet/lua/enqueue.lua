-- Puts calls into a pool's stream, each once.
-- KEYS: the stream, then each call's record.
-- ARGV: the group, how many may wait, for how many milliseconds the oldest may wait, how long
-- a record is kept of a call that does not end; then for each call its print, the stream that
-- its reply goes to or "", the milliseconds that it has or 0, "1" if it may run twice, its
-- record's name, what the entry says of it, and a key and an envelope where that is too large
-- for an entry, or "" and "".
-- Returns for each the id of its entry if it is accepted, else "running", "lost", "conflict", "overloaded" or, with what is
-- remembered of its reply, {"done", reply}.
-- The first write needs memory, whichever it is: where there is none, nothing has happened.
local stream, group = KEYS[1], ARGV[1]
local most, oldest, kept = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local HEAD, EACH = 4, 8
-- A client's own record: it may not read the stream, make it or say what it has forgotten.
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
      if is_own then return 0 end  -- until a worker is there
      redis.call("XGROUP", "CREATE", stream, group, "0", "MKSTREAM")
      -- From here on it is known if the server forgets something (open.lua).
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
  -- A key that is no record (only an attacker writes one) must not stop the others.
  local known = redis.pcall("HMGET", record, "print", "state", "entry", "askers", "reply", "pool")
  local askers, answer = asker, nil
  local open = known[2] == "open"

  if open then
    -- Nothing ran under this id: it can be used again.
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
    local entry = redis.call("XADD", stream, "*", "record", name, "call", call, "by", by, "tries", 0)
    if open then redis.call("DEL", record) end
    redis.call("HSET", record, "print", print, "pool", stream, "entry", entry, "askers", askers)
    redis.call("PEXPIRE", record, kept)
    answer = entry
  end
  answers[i] = answer
end
return answers
