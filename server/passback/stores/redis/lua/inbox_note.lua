-- Note in its owner's inbox that a conversation is about to owe something, by the microsecond.
-- KEYS inbox | ARGV member ttl room sample
-- Return some entries of an inbox that has more than `room`: members, each with its score.
local member, ttl, room, sample = unpack(ARGV, 1, 4)
redis.call('ZADD', KEYS[1], microseconds(), member)
if ttl == '' then redis.call('PERSIST', KEYS[1]) else redis.call('PEXPIRE', KEYS[1], ttl) end
local size = redis.call('ZCARD', KEYS[1])
if size <= tonumber(room) then return {} end
local first = time[2] % size
return redis.call('ZRANGE', KEYS[1], first, first + sample - 1, 'WITHSCORES')
