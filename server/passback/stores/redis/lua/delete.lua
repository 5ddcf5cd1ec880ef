-- Delete a conversation.
-- KEYS state messages receipts runs queue log* [due list] | ARGV channel member list_member run_id*
-- The logs are those of the runs that the caller names.
-- Return whether the conversation existed; false when these are no longer all of its runs.
local run_ids = redis.call('ZRANGE', KEYS[4], 0, -1)
if table.concat(run_ids, '\n') ~= table.concat(ARGV, '\n', 4) then return false end
local parts = 5 + #run_ids
local existed = redis.call('EXISTS', KEYS[1])
for i = parts + 1, #KEYS do redis.call('ZCARD', KEYS[i]) end
-- nothing above this line writes

for i = 1, parts do redis.call('UNLINK', KEYS[i]) end
if #KEYS > parts then
  redis.call('ZREM', KEYS[parts + 1], ARGV[2])
  redis.call('ZREM', KEYS[parts + 2], ARGV[3])
end
redis.call('PUBLISH', ARGV[1], '')
return existed
