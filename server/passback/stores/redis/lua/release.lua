-- End a lease at once; the attempt does not count.
-- KEYS state [due] | ARGV fence channel member
-- Return whether the lease was held. Without a fence nobody can write. `released_fence` stays until
-- another worker takes over, so that a repeat is known.
local fence, channel, member = unpack(ARGV, 1, 3)
local running, known_fence, released_fence, attempt = unpack(
  redis.call('HMGET', KEYS[1], 'running', 'fence', 'released_fence', 'attempt'))
if running ~= '1' then return 0 end
if released_fence == fence then return 1 end
if known_fence ~= fence then return 0 end
if KEYS[2] then redis.call('ZCARD', KEYS[2]) end
-- nothing above this line writes

redis.call('HSET', KEYS[1], 'fence', '', 'released_fence', fence, 'lease_expires', '0',
  'attempt', digits(attempt - 1))
if KEYS[2] then redis.call('ZADD', KEYS[2], time_in(0), member) end
redis.call('PUBLISH', channel, '')
return 1
