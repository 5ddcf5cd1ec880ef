-- KEYS state [due] | ARGV fence channel member
-- Without a fence nobody can write; which one it was is kept, so that a repeat is known.
local fence, channel, member = unpack(ARGV, 1, 3)
local running, held, released, attempt = unpack(redis.call('HMGET', KEYS[1], 'running', 'fence', 'released', 'attempt'))
if released == fence then return 1 end
if running ~= '1' or held ~= fence then return 0 end
redis.call('HSET', KEYS[1], 'fence', '', 'released', fence, 'expires', '0', 'attempt', digits(attempt - 1))
if KEYS[2] then redis.call('ZADD', KEYS[2], moment(0), member) end
redis.call('PUBLISH', channel, '')
return 1
