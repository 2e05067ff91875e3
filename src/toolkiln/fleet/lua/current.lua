-- Says which entries of a stream are to be run: those that the records of their calls name.
-- A copy of an entry, or one whose call has ended, is not. KEYS: records. ARGV: their entries.
-- Returns for each 1, 2 if its caller asked for it to be cancelled while it waited, else 0.
local answers = {}
for i, record in ipairs(KEYS) do
  -- A key that is no record gives an error, whose first field is not there either.
  local known = redis.pcall("HMGET", record, "state", "entry", "cancel")
  local is_current = not known.err and not known[1] and known[2] == ARGV[i]
  answers[i] = is_current and (known[3] and 2 or 1) or 0
end
return answers
