-- Delete a conversation.
-- KEYS state messages receipts runs queue log* [due] | ARGV channel member run_id*
-- The logs are those of the runs that the caller names.
-- Return whether the conversation existed; false when these are no longer all of its runs.
local run_ids = redis.call('ZRANGE', KEYS[4], 0, -1)
if table.concat(run_ids, '\n') ~= table.concat(ARGV, '\n', 3) then return false end
local parts = 5 + #run_ids
local existed = redis.call('EXISTS', KEYS[1])
if #KEYS > parts then redis.call('ZCARD', KEYS[#KEYS]) end
-- nothing above this line writes

for i = 1, parts do redis.call('UNLINK', KEYS[i]) end
if #KEYS > parts then redis.call('ZREM', KEYS[#KEYS], ARGV[2]) end
redis.call('PUBLISH', ARGV[1], '')
return existed
