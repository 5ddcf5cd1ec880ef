-- KEYS state messages answers runs log* | ARGV channel run*
-- The logs are those of the runs, which are named by the caller: gives false when these are no longer all.
local runs = redis.call('ZRANGE', KEYS[4], 0, -1)
if table.concat(runs, '\n') ~= table.concat(ARGV, '\n', 2) then return false end
local existed = redis.call('EXISTS', KEYS[1])
for _, key in ipairs(KEYS) do redis.call('UNLINK', key) end
redis.call('PUBLISH', ARGV[1], '')
return existed
