-- KEYS state messages receipts runs queue log* [due] | ARGV channel member run*
-- The logs are those of the runs, which are named by the caller: gives false when these are no longer all.
local runs = redis.call('ZRANGE', KEYS[4], 0, -1)
if table.concat(runs, '\n') ~= table.concat(ARGV, '\n', 3) then return false end
local parts = 5 + #runs
local existed = redis.call('EXISTS', KEYS[1])
if #KEYS > parts then redis.call('ZCARD', KEYS[#KEYS]) end
-- nothing above this line writes

for i = 1, parts do redis.call('UNLINK', KEYS[i]) end
if #KEYS > parts then redis.call('ZREM', KEYS[#KEYS], ARGV[2]) end
redis.call('PUBLISH', ARGV[1], '')
return existed
