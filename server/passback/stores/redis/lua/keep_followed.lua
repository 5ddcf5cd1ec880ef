-- KEYS state | ARGV run milliseconds
local running, run = unpack(redis.call('HMGET', KEYS[1], 'running', 'run'))
if running == '1' and run == ARGV[1] then redis.call('HSET', KEYS[1], 'followed_until', digits(now + ARGV[2])) end
return 1
