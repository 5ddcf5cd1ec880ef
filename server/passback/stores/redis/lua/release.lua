-- KEYS state [due] | ARGV fence channel member
-- Without a fence nobody can write. Which one it was is kept until another takes over, so that a repeat is known.
local fence, channel, member = unpack(ARGV, 1, 3)
local running, held, released, attempt = unpack(redis.call('HMGET', KEYS[1], 'running', 'fence', 'released', 'attempt'))
if running ~= '1' then return 0 end
if released == fence then return 1 end
if held ~= fence then return 0 end
if KEYS[2] then redis.call('ZCARD', KEYS[2]) end
-- nothing above this line writes

redis.call('HSET', KEYS[1], 'fence', '', 'released', fence, 'expires', '0', 'attempt', digits(attempt - 1))
if KEYS[2] then redis.call('ZADD', KEYS[2], moment(0), member) end
redis.call('PUBLISH', channel, '')
return 1
