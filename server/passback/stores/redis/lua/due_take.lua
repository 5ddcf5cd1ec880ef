-- Take conversations that are due; they are the caller's for `lease` milliseconds.
-- KEYS due | ARGV limit lease
-- Return their new score, and the members.
local members = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', time_in(0), 'LIMIT', 0, ARGV[1])
local score = time_in(ARGV[2])
for _, member in ipairs(members) do redis.call('ZADD', KEYS[1], score, member) end
return {score, members}
