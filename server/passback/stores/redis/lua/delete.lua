-- Delete a conversation with the logs of the runs that are named.
-- KEYS state messages logs log* [due all owing] | ARGV channel due_member member run*
-- Return whether there was one; false when these are no longer all of its runs.
local runs = redis.call('ZRANGE', KEYS[3], 0, -1)
if table.concat(runs, '\n') ~= table.concat(ARGV, '\n', 4) then return false end
local existed = redis.call('EXISTS', KEYS[1])
for i = #runs + 4, #KEYS do redis.call('ZCARD', KEYS[i]) end
-- nothing above this line writes

redis.call('UNLINK', unpack(KEYS, 1, #runs + 3))
for i = #runs + 4, #KEYS do redis.call('ZREM', KEYS[i], ARGV[i == #runs + 4 and 2 or 3]) end
redis.call('PUBLISH', ARGV[1], '')
return existed
