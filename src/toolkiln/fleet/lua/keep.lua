-- Keeps documents for longer. KEYS: which. ARGV: milliseconds from now on.
-- Returns the places of those that are not there, from 1.
local missing = {}
for i, key in ipairs(KEYS) do
  if redis.call("PEXPIRE", key, ARGV[1]) == 0 then missing[#missing + 1] = i end
end
return missing
