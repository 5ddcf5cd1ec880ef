-- Find the log with the first entry after a position, of logs of one conversation.
-- KEYS log* | ARGV position
-- Return its place among the keys, from 1, and the entry's position; false without such an entry.
local found, first_epoch = false, math.huge  -- each epoch is of one run
for i, log in ipairs(KEYS) do
  local entry = redis.call('XRANGE', log, '(' .. ARGV[1], '+', 'COUNT', 1)[1]
  if entry then
    local epoch = tonumber(string.match(entry[1], '%d+'))
    if epoch < first_epoch then found, first_epoch = {i, entry[1]}, epoch end
  end
end
return found
