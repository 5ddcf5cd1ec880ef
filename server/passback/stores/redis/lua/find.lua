-- Read the log, of those of a conversation, that has the first entry after a position.
-- KEYS logs log* | ARGV position limit size [run]: of the only log, which has to be among `logs`
-- Return its place among the keys, and entries: so many and of so many bytes at most, but one if
-- there is one. Without any, return none if there is such a run and its log, else false.
local place, first_epoch = false, math.huge  -- each epoch is of one run
if ARGV[4] and not redis.call('ZSCORE', KEYS[1], ARGV[4]) then return false end
for i = 2, #KEYS do
  local entry = redis.call('XRANGE', KEYS[i], '(' .. ARGV[1], '+', 'COUNT', 1)[1]
  local epoch = entry and tonumber(string.match(entry[1], '%d+'))
  if epoch and epoch < first_epoch then place, first_epoch = i, epoch end
end
if not place then return ARGV[4] and redis.call('EXISTS', KEYS[2]) == 1 and {2, {}} end
local found, total, position, limit = {}, 0, ARGV[1], tonumber(ARGV[2])
repeat
  local count = math.min(64, limit - #found)
  local entries = redis.call('XRANGE', KEYS[place], '(' .. position, '+', 'COUNT', count)
  for _, entry in ipairs(entries) do
    total, position = total + #entry[2][2], entry[1]
    if #found > 0 and total > tonumber(ARGV[3]) then return {place, found, 1} end
    found[#found + 1] = entry
  end
until #entries < 64 or #found == limit
return {place, found}
