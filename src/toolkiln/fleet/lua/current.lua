-- Returns for each entry of a stream whether to run it: its call's record must name it, which
-- excludes copies, and entries of calls that have ended. KEYS: records. ARGV: their entries.
-- Returns for each 1, 2 if its caller cancelled it while it was waiting, else 0.
local answers = {}
for i, record in ipairs(KEYS) do
  -- A key of another type gives an error, whose first field is nil too.
  local known = redis.pcall("HMGET", record, "state", "entry", "cancel")
  local is_current = not known.err and not known[1] and known[2] == ARGV[i]
  answers[i] = is_current and (known[3] and 2 or 1) or 0
end
return answers
