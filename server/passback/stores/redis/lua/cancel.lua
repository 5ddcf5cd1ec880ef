-- KEYS state | ARGV run
local running, run = unpack(redis.call('HMGET', KEYS[1], 'running', 'run'))
if running ~= '1' or run ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'cancelled', '1')
return 1
